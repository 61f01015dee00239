"""Labels from files: pictures, and the MAT files of BSDS500 and of BSDS-RIND.

A BSDS500 file holds a cell array `groundTruth` of one struct an annotator, each with `Boundaries`.
The training files of BSDS-RIND hold a struct `gtStruct` whose `gt_theta` is a cell with an array
(H, W, 4), depth, normal, reflectance and illumination edges, or (H, W, 5), a background before
them; each kind counts as an annotator here. An edge is a value above 0.
"""

from pathlib import Path
from typing import Any, Literal, TypeGuard

import numpy as np
import numpy.typing as npt

from knifeedge.data.images import IMAGE_ENDINGS, read_grey
from knifeedge.errors import DataError
from knifeedge.mat import parse_mat

Annotator = int | Literal["merged"]

LABEL_ENDINGS = (*IMAGE_ENDINGS, ".mat")
MAX_MAT_BYTES = 2**28

_Bytes = npt.NDArray[np.uint8]
_KINDS = 4


def read_annotations(path: str | Path) -> list[_Bytes]:
    """Read every annotator of one label file.

    Args:
        path: A picture (one annotator), or a MAT file.

    Returns:
        (H, W) uint8 arrays of one shape, 255 on an edge; a picture's values are as they are saved.

    Raises:
        DataError: The file cannot be read, is damaged, or holds no label.

    >>> import tempfile, scipy.io
    >>> path = Path(tempfile.mkdtemp()) / "a.mat"
    >>> truth = np.empty((1, 2), object)
    >>> truth[0, 0], truth[0, 1] = {"Boundaries": np.eye(2)}, {"Boundaries": np.zeros((2, 2))}
    >>> scipy.io.savemat(path, {"groundTruth": truth})
    >>> [label.max() for label in read_annotations(path)]
    [np.uint8(255), np.uint8(0)]
    """
    path = Path(path)
    if path.suffix.lower() != ".mat":
        return [read_grey(path)]
    variables = _variables(path)
    arrays = _kinds(variables) if "gtStruct" in variables else _boundaries(variables)
    if not arrays:
        raise DataError(
            f"{path} holds no groundTruth cells with Boundaries, as BSDS500, and no"
            f" gtStruct.gt_theta, as BSDS-RIND; its variables: {', '.join(variables) or 'none'}"
        )
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1 or any(a.ndim != 2 or a.size == 0 for a in arrays):
        raise DataError(f"{path} holds labels of shapes {sorted(shapes)}; one (H, W) is needed")
    return [(array > 0).astype(np.uint8) * np.uint8(255) for array in arrays]


def choose_annotator(labels: list[_Bytes], annotator: Annotator, where: str) -> _Bytes:
    """One label of several: the annotator of that number, or an edge where any marked one.

    Args:
        labels: One array an annotator.
        annotator: 0 is the first; "merged" takes the largest value at each pixel.
        where: The file, for the error.

    Returns:
        (H, W) uint8.

    >>> both = [np.array([[0, 255]], np.uint8), np.array([[255, 0]], np.uint8)]
    >>> choose_annotator(both, "merged", "a.mat")
    array([[255, 255]], dtype=uint8)
    """
    if annotator == "merged":
        merged: _Bytes = np.maximum.reduce(labels)
        return merged
    if not 0 <= annotator < len(labels):
        raise DataError(
            f"{where} has no annotator {annotator}; it has 0 to {len(labels) - 1}, or 'merged'"
        )
    return labels[annotator]


def check_annotator(annotator: Annotator) -> None:
    """Refuse what is neither a number from 0 nor "merged".

    >>> check_annotator("merged")
    """
    number = isinstance(annotator, int) and not isinstance(annotator, bool) and annotator >= 0
    if not number and annotator != "merged":
        raise ValueError(
            f"annotator must be 0 (the first), 1, .. or 'merged' (any of them), got {annotator!r}"
        )


def _variables(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() and path.exists():
            raise DataError(f"{path} is not a file; give a MAT file")
        if path.stat().st_size > MAX_MAT_BYTES:
            raise DataError(f"{path} has more than {MAX_MAT_BYTES} bytes; it is no edge label")
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return parse_mat(data)
    except (ValueError, MemoryError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} is damaged or no MAT file of version 5 to 7 ({reason}); download it again, or"
            " save it in MATLAB with -v7"
        ) from error


def _boundaries(variables: dict[str, Any]) -> list[npt.NDArray[Any]]:
    """`Boundaries` of each struct in `groundTruth`; nothing if the file is built otherwise."""
    # A cell holds a list of one struct; the entry of a struct array is the struct itself.
    cells = variables.get("groundTruth")
    structs = [c[0] if isinstance(c, list) and c else c for c in _list(cells)]
    found = [s.get("Boundaries") if isinstance(s, dict) else None for s in structs]
    arrays = [array for array in found if _is_numeric(array)]
    return arrays if len(arrays) == len(structs) else []


def _kinds(variables: dict[str, Any]) -> list[npt.NDArray[Any]]:
    """The last four planes of `gtStruct.gt_theta`; nothing if the file is built otherwise."""
    structs = _list(variables["gtStruct"])
    theta = structs[0].get("gt_theta") if structs and isinstance(structs[0], dict) else None
    array: Any = theta[0] if isinstance(theta, list) and theta else theta
    if not _is_numeric(array) or array.ndim != 3 or array.shape[2] < _KINDS:
        return []
    return list(np.moveaxis(array[:, :, -_KINDS:], 2, 0))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_numeric(value: Any) -> TypeGuard[npt.NDArray[Any]]:
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
