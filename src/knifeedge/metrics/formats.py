"""The bytes of PNG, NPY, NPZ and MAT files as arrays; what the numbers mean is told in `values`.

On damaged bytes Pillow and numpy raise whatever they stumble over. All of that becomes one
DataError here, and nothing is ever unpickled.
"""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from knifeedge.errors import DataError
from knifeedge.mat import parse_mat
from knifeedge.metrics.values import FULL_SCALE

ENDINGS = (".png", ".npy", ".npz", ".mat")

_Array = npt.NDArray[Any]
_PNG_KINDS = {2: "a colour", 3: "a palette", 4: "a grey-with-alpha", 6: "a colour-with-alpha"}


def read_array(path: Path, *, key: str) -> _Array:
    """Read the one array of a file.

    Args:
        path: A PNG (grey: bool, uint8 or uint16 by its depth), NPY, NPZ or MAT file.
        key: The array's name in an NPZ that holds several. A MAT file holds one numeric matrix.

    Returns:
        The array as it was saved; its numbers and shape are not looked at.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npz"
    >>> np.savez(path, map=np.zeros((2, 3)), other=np.ones(1))
    >>> read_array(path, key="map").shape
    (2, 3)
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise DataError(f"{path} is none of {', '.join(ENDINGS)}; convert it")
    if ending == ".mat":
        return _only_matrix(path, read_variables(path))
    data = _read_bytes(path)
    if ending == ".png":
        return _read_png(path, data)
    try:
        arrays = _load(data, key)
    except Exception as error:  # a damaged header can raise nearly anything
        raise _damaged(path, error) from error
    if len(arrays) != 1:
        raise DataError(
            f"{path} holds {len(arrays)} arrays ({', '.join(arrays)}); save one, or name it {key!r}"
        )
    return next(iter(arrays.values()))


def read_variables(path: Path) -> dict[str, Any]:
    """Read the variables of a MAT file, versions 5 to 7; see `parse_mat` for their values.

    >>> import tempfile, scipy.io
    >>> path = Path(tempfile.mkdtemp()) / "a.mat"
    >>> scipy.io.savemat(path, {"edges": np.zeros((2, 3), bool)})
    >>> read_variables(path)["edges"].shape
    (2, 3)
    """
    data = _read_bytes(path)
    # 7.3 is HDF5, and version 4 begins with small integers.
    if data.startswith(b"MATLAB 7.3") or b"\0" in data[:4]:
        raise DataError(f"{path} is not a version 5 to 7 MAT file; save it in MATLAB with -v7")
    try:
        return parse_mat(data)
    except ValueError as error:
        raise _damaged(path, error) from error


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error


def _read_png(path: Path, data: bytes) -> _Array:
    """Grey pixels as bool (1 bit), uint8 or uint16."""
    if len(data) < 26 or data[:8] != b"\x89PNG\r\n\x1a\n":
        raise DataError(f"{path} is not a PNG file, or a damaged one; write it again")
    # From the header, before Pillow: it would decode colour, and only warn of an enormous image.
    width, height, _, colour = struct.unpack(">IIBB", data[16:26])
    if colour in _PNG_KINDS:
        raise DataError(f"{path} is {_PNG_KINDS[colour]} PNG; convert it to grey (8 or 16 bit)")
    if width * height > (Image.MAX_IMAGE_PIXELS or width * height):
        raise DataError(
            f"{path} claims {width} x {height} pixels, more than Pillow's limit of"
            f" {Image.MAX_IMAGE_PIXELS}; if that is right, save it as .npy"
        )
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            image.verify()  # decoding alone takes a file cut after its last pixel
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            array = np.asarray(image)
    except Exception as error:  # Pillow: SyntaxError, OSError, ValueError, struct.error, ...
        raise _damaged(path, error) from error
    if array.dtype.name not in FULL_SCALE:
        raise DataError(f"{path} is a PNG of {array.dtype} pixels; convert it to 8 or 16 bit grey")
    return array


def _load(data: bytes, key: str) -> dict[str, _Array]:
    """The array of that name in an NPZ, else all of them; an NPY's has an empty name."""
    loaded = np.load(io.BytesIO(data), allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return {"": loaded}
    with loaded:
        names = [key] if key in loaded.files else loaded.files  # the others may be no arrays
        # An archive may hold other things than arrays; numpy hands those out as bytes.
        arrays = {name: loaded[name] for name in names}
        return {name: value for name, value in arrays.items() if isinstance(value, np.ndarray)}


def _only_matrix(path: Path, variables: dict[str, Any]) -> _Array:
    """The only 2-D numeric variable of a MAT file."""
    matrices = {
        name: value
        for name, value in variables.items()
        if isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "biuf"
    }
    if len(matrices) != 1:
        raise DataError(
            f"{path} holds {len(matrices)} numeric matrices among its variables"
            f" ({', '.join(variables) or 'none'}); save exactly one"
        )
    return next(iter(matrices.values()))


def _damaged(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return DataError(f"{path} is damaged or not a {path.suffix[1:].upper()} file ({reason})")
