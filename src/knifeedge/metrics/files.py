"""Edge maps and ground truths from files: PNG, NPY, NPZ and MAT, paired by stem.

Maps. PNG is grey and read by its bit depth: v/255 in 8 bits, v/65535 in 16. NPY, NPZ and MAT hold
one 2-D array of floats in [0,1] or of booleans; `scale` says where it is otherwise. NPZ: its only
array, or the one named `map`. MAT: its only 2-D numeric variable.

Ground truths. An edge is where the value, as a fraction of full scale, is greater than
`label_threshold`: by default 0.5, so > 127 in 8 bits. Integers that are all 0 or 1, in a PNG as in
an array, are labels already: 1 is an edge. NPY and NPZ (its only array, or `ground_truth`) hold
(H, W) or (annotators, H, W). MAT is BSDS style: a cell array `groundTruth` of one struct an
annotator, each with `Boundaries`.

Nothing is ever unpickled, and whatever is wrong with a file becomes a DataError that names it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from knifeedge.errors import DataError
from knifeedge.metrics.formats import ENDINGS, FULL_SCALE, read_array, read_variables

Annotators = Literal["all", "first", "merged"]
Scale = Literal["unit", "255", "stretch"]

LABEL_THRESHOLD = 0.5

_Array = npt.NDArray[Any]
_Floats = npt.NDArray[np.float32] | npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pair:
    """A map and its ground truth: two files with the same stem."""

    name: str
    map: Path
    ground_truth: Path


def find_pairs(maps: str | Path, ground_truths: str | Path) -> tuple[list[Pair], dict[str, str]]:
    """Pair the files of two folders by stem, in the order of their names.

    Args:
        maps: Folder of edge maps.
        ground_truths: Folder of ground truths.

    Returns:
        One pair an image, and the names that cannot be paired, each with the reason: no partner,
        or a name that two files of one folder share. Hidden files and other endings are passed
        over.

    >>> import tempfile
    >>> maps, truths = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    >>> for path in (maps / "a.npy", maps / "b.npy", truths / "a.npy"):
    ...     np.save(path, np.zeros((2, 3)))
    >>> pairs, unpaired = find_pairs(maps, truths)
    >>> [pair.name for pair in pairs], list(unpaired)
    (['a'], ['b'])
    """
    map_files, truth_files = _files_by_stem(Path(maps)), _files_by_stem(Path(ground_truths))
    pairs: list[Pair] = []
    unpaired: dict[str, str] = {}
    for name in sorted(map_files.keys() | truth_files.keys()):
        found, truths = map_files.get(name, []), truth_files.get(name, [])
        twins = next((files for files in (found, truths) if len(files) > 1), None)
        if twins is not None:
            listed = ", ".join(path.name for path in twins)
            unpaired[name] = f"{listed} in {twins[0].parent} have the same name"
        elif not truths:
            unpaired[name] = f"{found[0]} has no ground truth in {ground_truths}"
        elif not found:
            unpaired[name] = f"{truths[0]} has no map in {maps}"
        else:
            pairs.append(Pair(name, found[0], truths[0]))
    return pairs, unpaired


def read_map(path: str | Path, *, scale: Scale = "unit") -> _Floats:
    """Read one edge map.

    Args:
        path: A PNG, NPY, NPZ or MAT file.
        scale: "unit": values are in [0,1]. "255": an array's values are in 0..255 and divided by
            255 (a PNG is always read by its own bit depth). "stretch": each map's own minimum
            becomes 0 and its maximum 1, a constant map all 0; a threshold then means something
            else in every image.

    Returns:
        (H, W) in [0,1], float32, or float64 where the file's numbers are wider than float32.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> np.save(path, np.array([[0.0, 255.0]], dtype=np.float32))
    >>> read_map(path, scale="255")
    array([[0., 1.]], dtype=float32)
    """
    _check_choice("scale", scale, get_args(Scale))
    path = Path(path)
    is_png = path.suffix.lower() == ".png"
    array = np.ascontiguousarray(read_array(path, key="map"))
    _check_array(path, array, ndims=(2,))
    # float32 where it holds the numbers exactly: a double cast to it may cross a threshold.
    narrow = np.result_type(array.dtype, np.float32) == np.float32
    with np.errstate(over="ignore"):  # beyond a double is infinity, refused below
        values: _Floats = array.astype(np.float32) if narrow else array.astype(np.float64)
    if is_png:
        values = values / FULL_SCALE[array.dtype.name]
    low, high = float(values.min()), float(values.max())
    if scale == "stretch":
        return _stretch(path, values, low, high)
    if scale == "255" and not is_png:
        _check_range(path, low, high, top=255, remedy="rescale the array")
        return values / 255
    if array.dtype.kind in "iu" and not is_png:
        raise DataError(
            f"{path} holds integers ({array.dtype}), whose scale is not known;"
            " read values in 0..255 with scale='255' (--scale 255), or save floats in [0,1]"
        )
    remedy = "read values in 0..255 with scale='255' (--scale 255), or save probabilities"
    _check_range(path, low, high, top=1, remedy=remedy)
    return values


def read_ground_truths(
    path: str | Path,
    *,
    annotators: Annotators = "all",
    label_threshold: float = LABEL_THRESHOLD,
) -> list[npt.NDArray[np.bool_]]:
    """Read the ground truth of one image.

    Args:
        path: A PNG, NPY, NPZ or BSDS-style MAT file.
        annotators: "all": one array an annotator; "first": the first only; "merged": one array, an
            edge where any annotator marked one.
        label_threshold: An edge is greater than this fraction of full scale, in [0, 1).

    Returns:
        (H, W) boolean arrays of one shape.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> np.save(path, np.array([[[1, 0]], [[0, 0]]]))
    >>> read_ground_truths(path, annotators="merged")
    [array([[ True, False]])]
    """
    _check_choice("annotators", annotators, get_args(Annotators))
    if not 0 <= label_threshold < 1:
        raise ValueError(f"label_threshold must be in [0, 1), got {label_threshold}")
    path = Path(path)
    if path.suffix.lower() == ".mat":
        arrays = _boundaries(path, read_variables(path))
        truths = [_labels(path, array, label_threshold) for array in arrays]
        shapes = sorted({truth.shape for truth in truths})
        if len(shapes) > 1:
            raise DataError(f"{path} holds annotators of shapes {shapes}; they must be one image's")
    else:
        labels = _labels(path, read_array(path, key="ground_truth"), label_threshold, ndims=(2, 3))
        truths = [labels] if labels.ndim == 2 else list(labels)
    if annotators == "first":
        return truths[:1]
    return [np.logical_or.reduce(truths)] if annotators == "merged" else truths


def _stretch(path: Path, values: _Floats, low: float, high: float) -> _Floats:
    """Carry low..high to 0..1; a constant map to 0."""
    if high - low > float(np.finfo(np.float32).max):
        raise DataError(f"{path} holds values from {low:g} to {high:g}, too far apart to stretch")
    return (values - values.dtype.type(low)) / values.dtype.type(high - low or 1)


def _files_by_stem(folder: Path) -> dict[str, list[Path]]:
    """Usable files of a folder, by stem."""
    try:
        paths = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.is_file())
    except NotADirectoryError:
        raise DataError(f"{folder} is a file; give the folder that holds the files") from None
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror}") from error
    usable: dict[str, list[Path]] = {}
    for path in paths:
        if path.suffix.lower() in ENDINGS:
            usable.setdefault(path.stem, []).append(path)
    if not usable:
        others = sorted({p.suffix or p.name for p in paths})
        found = f"only {', '.join(others[:5])}" if others else "no files"
        raise DataError(
            f"{folder} holds nothing to read ({found}); {', '.join(ENDINGS)} files are looked for"
        )
    return usable


def _boundaries(path: Path, variables: dict[str, Any]) -> list[_Array]:
    """`Boundaries` of each struct in `groundTruth`, a cell array or a struct array."""
    wanted = "groundTruth, a cell array of structs with Boundaries, as in BSDS500"
    if "groundTruth" not in variables:
        found = ", ".join(variables) or "nothing"
        raise DataError(f"{path} has no variable groundTruth but {found}; save {wanted}")
    cells = variables["groundTruth"]
    if not isinstance(cells, list) or not cells:
        raise DataError(f"{path}: groundTruth is empty or no cell array; save {wanted}")
    # A cell holds a list of one struct; the entry of a struct array is the struct itself.
    structs = [cell[0] if isinstance(cell, list) and len(cell) == 1 else cell for cell in cells]
    if not all(isinstance(entry, dict) and "Boundaries" in entry for entry in structs):
        raise DataError(f"{path}: an entry of groundTruth has no Boundaries; save {wanted}")
    return [np.asarray(entry["Boundaries"]) for entry in structs]


def _labels(
    path: Path, array: _Array, label_threshold: float, *, ndims: Sequence[int] = (2,)
) -> npt.NDArray[np.bool_]:
    """Edges: labels as they are, other values by `label_threshold`."""
    _check_array(path, array, ndims=ndims)
    top = array.max()
    if array.dtype.kind in "biu" and array.min() >= 0 and top <= 1:
        return np.ascontiguousarray(array == 1)
    full = FULL_SCALE.get(array.dtype.name, 1)
    remedy = "save labels as 0 and 1, 8-bit 0 and 255, or floats in [0,1]"
    _check_range(path, float(array.min()), float(top), top=full, remedy=remedy)
    return np.ascontiguousarray(array / full > label_threshold)


def _check_array(path: Path, array: _Array, *, ndims: Sequence[int]) -> None:
    """Refuse what is not an array of finite real numbers of the right number of axes."""
    if array.dtype.kind not in "biuf":
        raise DataError(f"{path} holds {array.dtype} and not real numbers; save floats or booleans")
    if array.ndim not in ndims or array.size == 0:
        axes = "(height, width)" if 3 not in ndims else "(height, width) or (annotators, ...)"
        raise DataError(f"{path} holds an array of shape {array.shape}; {axes} is needed")
    if not np.isfinite(array).all():
        raise DataError(f"{path} holds NaN or infinite values; mend what wrote it")


def _check_range(path: Path, low: float, high: float, *, top: int, remedy: str) -> None:
    if low < 0 or high > top:
        raise DataError(f"{path} holds values from {low:g} to {high:g}, not in [0,{top}]; {remedy}")


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
