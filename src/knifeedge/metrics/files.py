"""Edge maps and ground truths from files: PNG, NPY, NPZ and MAT, paired by stem.

Maps. PNG is grey and read by its bit depth: v/255 in 8 bits, v/65535 in 16. NPY, NPZ and MAT hold
one 2-D array. NPZ: its only array, or the one named `map`. MAT: its only 2-D numeric variable.

Ground truths. NPY and NPZ (its only array, or `ground_truth`) hold (H, W) or (annotators, H, W).
MAT is BSDS style: a cell array `groundTruth` of one struct an annotator, each with `Boundaries`.

What the numbers mean is told in `values`. Nothing is ever unpickled, and whatever is wrong with a
file becomes a DataError that names it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knifeedge.errors import DataError
from knifeedge.metrics.formats import ENDINGS, read_array, read_variables
from knifeedge.metrics.values import (
    FULL_SCALE,
    LABEL_THRESHOLD,
    Annotators,
    Array,
    Edges,
    Scale,
    as_ground_truths,
    as_prob,
    check_options,
)

OVERLAY = ".overlay.png"  # pictures that `predict` writes beside its maps, and that are none


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
        or a name that two files of one folder share. Hidden files, other endings and the overlays
        of `predict` are passed over.

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
            unpaired[name] = f"no ground truth in {ground_truths}"
        elif not found:
            unpaired[name] = f"no map in {maps}"
        else:
            pairs.append(Pair(name, found[0], truths[0]))
    return pairs, unpaired


def read_map(path: str | Path, *, scale: Scale = "unit") -> Array:
    """Read one edge map.

    Args:
        path: A PNG, NPY, NPZ or MAT file.
        scale: See `as_prob`; but a PNG is read by its own bit depth where it is "255", too.

    Returns:
        (H, W) in [0,1], float32, or float64 where the file's numbers are wider than float32.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> np.save(path, np.array([[0.0, 255.0]], dtype=np.float32))
    >>> read_map(path, scale="255")
    array([[0., 1.]], dtype=float32)
    """
    check_options(scale=scale)
    path = Path(path)
    array = read_array(path, key="map")
    if path.suffix.lower() == ".png":
        array = array.astype(np.float32) / FULL_SCALE[array.dtype.name]
        scale = "stretch" if scale == "stretch" else "unit"
    return as_prob(array, scale=scale, name=path)


def read_ground_truths(
    path: str | Path,
    *,
    annotators: Annotators = "all",
    label_threshold: float = LABEL_THRESHOLD,
) -> list[Edges]:
    """Read the ground truth of one image; see `as_ground_truths`.

    Args:
        path: A PNG, NPY, NPZ or BSDS-style MAT file.
        annotators: "all", "first" or "merged".
        label_threshold: An edge is greater than this fraction of full scale, in [0,1).

    Returns:
        (H, W) boolean arrays of one shape.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> np.save(path, np.array([[[1, 0]], [[0, 0]]]))
    >>> read_ground_truths(path, annotators="merged")
    [array([[ True, False]])]
    """
    check_options(annotators=annotators, label_threshold=label_threshold)
    path = Path(path)
    source: Array | list[Array]
    if path.suffix.lower() == ".mat":
        source = _boundaries(path, read_variables(path))
    else:
        source = read_array(path, key="ground_truth")
    return as_ground_truths(
        source, annotators=annotators, label_threshold=label_threshold, name=path
    )


def _files_by_stem(folder: Path) -> dict[str, list[Path]]:
    """Usable files of a folder itself, by stem."""
    try:
        paths = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.is_file())
    except NotADirectoryError:
        raise DataError(f"{folder} is a file; give the folder that holds the files") from None
    except OSError as error:
        raise DataError(f"folder {folder} cannot be read: {error.strerror}") from error
    usable: dict[str, list[Path]] = {}
    for path in paths:
        if path.suffix.lower() in ENDINGS and not path.name.endswith(OVERLAY):
            usable.setdefault(path.stem, []).append(path)
    if not usable:
        others = sorted({p.suffix or p.name for p in paths})
        found = f"only {', '.join(others[:5])}" if others else "no files"
        raise DataError(
            f"{folder} holds nothing to read ({found}); {', '.join(ENDINGS)} files are looked for,"
            " not in folders below it"
        )
    return usable


def _boundaries(path: Path, variables: dict[str, Any]) -> list[Array]:
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
    matrices = [entry["Boundaries"] for entry in structs]
    for matrix in matrices:
        if not isinstance(matrix, np.ndarray):
            kind = matrix if isinstance(matrix, str) else "cell or struct"
            raise DataError(
                f"{path}: Boundaries is a {kind} array and not real numbers; save those, of a "
                "sparse one full(Boundaries)"
            )
    return matrices
