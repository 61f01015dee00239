"""A reader of MATLAB's MAT files, versions 5 to 7: real matrices, cells and structs.

Written from the published layout. A file is a 128-byte header and then elements; an element is a
tag (type, number of bytes) and data padded to 8 bytes. A variable is an element of type matrix, its
parts again elements, as it is or inside a zlib stream.

Why not `scipy.io.loadmat`: on a file with one flipped bit it can end the whole process with a
segmentation fault, which no caller can catch. Here every length is checked before it is used.
"""

import math
import struct
import zlib
from typing import Any

import numpy as np

# Sizes beyond this are taken for damage, or for a small file made to swell.
MAX_BYTES = 2**30
MAX_DEPTH = 8

_MATRIX, _COMPRESSED = 14, 15
_STORED = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_CELL, _STRUCT = 1, 2
_NUMERIC = {
    6: np.float64,
    7: np.float32,
    8: np.int8,
    9: np.uint8,
    10: np.int16,
    11: np.uint16,
    12: np.int32,
    13: np.uint32,
    14: np.int64,
    15: np.uint64,
}
_OTHER = {3: "object", 4: "char", 5: "sparse", 16: "function", 17: "opaque"}
_LOGICAL, _COMPLEX = 0x02, 0x08


def parse_mat(data: bytes) -> dict[str, Any]:
    """The variables of a MAT file.

    Args:
        data: The whole file.

    Returns:
        Name to value. A real matrix is an array of its MATLAB class, which may be wider than it is
        stored; a cell array is a list; a struct array is a list of dictionaries; of anything else
        only the name of its class is given, a string.

    Raises:
        ValueError: The file is damaged, or not of these versions.

    >>> import io, scipy.io
    >>> file = io.BytesIO()
    >>> scipy.io.savemat(file, {"edge": np.array([[0.0, 1.0]]), "note": "text"})
    >>> parse_mat(file.getvalue())
    {'edge': array([[0., 1.]]), 'note': 'char'}
    """
    if len(data) < 128 or data[126:128] not in (b"IM", b"MI"):
        raise ValueError("no header of a MAT file")
    order = "<" if data[126:128] == b"IM" else ">"
    (version,) = struct.unpack(f"{order}H", data[124:126])
    if version != 0x0100:
        raise ValueError(f"version {version:#06x} where 0x0100 was expected")
    variables: dict[str, Any] = {}
    elements = _Elements(data[128:], order)
    while elements.left:
        kind, content = elements.next()
        if kind == _COMPRESSED:
            kind, content = _Elements(_inflate(content), order).next()
        if kind != _MATRIX:
            raise ValueError(f"an element of type {kind} where a variable was expected")
        name, value = _matrix(content, order, depth=0)
        if name:  # MATLAB keeps a workspace of its own under an empty name
            variables[name] = value
    return variables


class _Elements:
    """Steps through the elements of a stretch of bytes."""

    def __init__(self, data: bytes, order: str) -> None:
        self.data, self.order, self.at = data, order, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def next(self) -> tuple[int, bytes]:
        """Type and data of the next element."""
        kind, size = struct.unpack(f"{self.order}II", self._take(8))
        if kind >> 16:  # up to 4 bytes of data are kept in the tag itself
            kind, size = kind & 0xFFFF, kind >> 16
            if size > 4:
                raise ValueError(f"a short element of {size} bytes")
            return kind, self.data[self.at - 4 : self.at - 4 + size]
        content = self._take(size)
        if kind != _COMPRESSED:
            self.at = min(self.at + -size % 8, len(self.data))
        return kind, content

    def numbers(self) -> np.ndarray[Any, Any]:
        """The next element as numbers of the type it is stored in."""
        kind, content = self.next()
        if kind not in _STORED:
            raise ValueError(f"an element of type {kind} where numbers were expected")
        dtype = np.dtype(self.order + _STORED[kind])
        return np.frombuffer(content, dtype)

    def integers(self) -> list[int]:
        """The next element as whole numbers, which it must be stored as."""
        numbers = self.numbers()
        if numbers.dtype.kind == "f":
            raise ValueError(f"{numbers.dtype} where whole numbers were expected")
        found: list[int] = numbers.tolist()
        return found

    def _take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError(f"{size} bytes are announced, {self.left} are left")
        self.at += size
        return self.data[self.at - size : self.at]


def _inflate(content: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(content, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not stream.eof:
        raise ValueError("a compressed variable breaks off, or has more than 1 GiB")
    return data


def _matrix(content: bytes, order: str, *, depth: int) -> tuple[str, Any]:
    """Name and value of one matrix element."""
    if depth > MAX_DEPTH:
        raise ValueError(f"cells or structs nested more than {MAX_DEPTH} deep")
    if not content:
        return "", np.zeros((0, 0))
    parts = _Elements(content, order)
    flags = parts.integers()
    if len(flags) != 2:
        raise ValueError("a matrix without its flags")
    kind, bits = flags[0] & 0xFF, flags[0] >> 8
    if kind == 17:  # opaque objects go on differently, and have no size
        return "", _OTHER[kind]
    shape = parts.integers()
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) > MAX_BYTES:
        raise ValueError(f"a matrix of shape {shape}")
    name = parts.numbers().tobytes().decode("latin-1")
    if kind == _CELL:
        return name, [_submatrix(parts, depth) for _ in range(math.prod(shape))]
    if kind == _STRUCT:
        return name, _structs(parts, math.prod(shape), depth)
    if kind in _OTHER or (kind in _NUMERIC and bits & _COMPLEX):
        return name, _OTHER.get(kind, "complex")
    if kind not in _NUMERIC:
        raise ValueError(f"a matrix of class {kind}")
    values = parts.numbers()
    if values.size != math.prod(shape):
        raise ValueError(f"a matrix of shape {shape} with {values.size} numbers")
    dtype = np.bool_ if bits & _LOGICAL else _NUMERIC[kind]
    with np.errstate(invalid="ignore"):  # a damaged double where whole numbers belong
        return name, values.reshape(shape, order="F").astype(dtype)


def _structs(parts: _Elements, count: int, depth: int) -> list[dict[str, Any]]:
    """The elements of a struct array: for each of them, each field in turn."""
    lengths, names = parts.integers(), parts.numbers().tobytes()
    width = lengths[0] if len(lengths) == 1 else 0
    if width <= 0 or len(names) % width:
        raise ValueError("a struct without the names of its fields")
    fields = [
        names[i : i + width].split(b"\0")[0].decode("latin-1") for i in range(0, len(names), width)
    ]
    if not fields:
        return []
    return [{field: _submatrix(parts, depth) for field in fields} for _ in range(count)]


def _submatrix(parts: _Elements, depth: int) -> Any:
    kind, content = parts.next()
    if kind != _MATRIX:
        raise ValueError(f"an element of type {kind} where a matrix was expected")
    return _matrix(content, parts.order, depth=depth + 1)[1]
