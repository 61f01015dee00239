"""Match counts of one image at the benchmark's 99 thresholds: all that its scores are made of.

At threshold t the map's edges are `prob >= t`, thinned or not. One map is scored against one or
several ground truths: the counts of matched and of all ground-truth pixels are summed over them,
and a map pixel counts as matched if it is in any of the matchings.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.kernels import kernel
from knifeedge.metrics.matching import add_matches, tolerance_squared
from knifeedge.metrics.maximum import matching_sizes
from knifeedge.metrics.thinning import LANES, count_pixels, level_maps, pack, thin_maps
from knifeedge.metrics.tiles import survey

Array = npt.NDArray[Any]
Counts = npt.NDArray[np.int64]
Levels = npt.NDArray[np.uint8]

THRESHOLDS: npt.NDArray[np.float64] = np.arange(1, 100) / 100
THRESHOLDS.flags.writeable = False


def match_counts(
    prob: Array,
    ground_truths: Array | Sequence[Array],
    *,
    max_dist: float = 0.0075,
    unit: str = "diagonal",
    thin: bool = True,
) -> Counts:
    """Count matched pixels at the thresholds 0.01 .. 0.99.

    The number of pairs is exact, the maximum. With several ground truths, which map pixels are
    matched counts too: those of the nearest maximum matching (see `match`).

    Args:
        prob: (H, W) in [0,1], float32 or float64.
        ground_truths: bool (H, W), or several, one an annotator.
        max_dist: the tolerance, inclusive.
        unit: "diagonal" if `max_dist` is a fraction of the diagonal, "pixel" if in pixels.
        thin: whether each thresholded map is thinned before it is matched.

    Returns:
        int64 (99, 4), columns: matched ground-truth pixels, ground-truth pixels, matched map
        pixels, map pixels. Without any ground-truth pixels the first three are 0.

    Example:
        >>> edges = np.eye(5, dtype=bool)
        >>> counts = match_counts(0.505 * edges, edges, max_dist=1, unit="pixel")
        >>> counts[[0, 49, 50]]
        array([[5, 5, 5, 5],
               [5, 5, 5, 5],
               [0, 5, 0, 0]])
    """
    checked = check_map(prob, "prob")
    truths = _check_ground_truths(ground_truths, checked.shape)
    radius_squared = tolerance_squared(checked.shape, max_dist, unit)
    leveled, present = _find_levels(checked)
    # Thresholds without pixels between them give the same map: each map is made once.
    at = np.flatnonzero(present[1:])[::-1] + 1
    maps = level_maps(leveled, at)
    if thin:
        thin_maps(maps, LANES)
    rows: Counts = np.zeros((at.size + 1, 4), dtype=np.int64)  # the last for maps without pixels
    rows[:-1, 3] = count_pixels(maps)
    if len(truths) == 1:
        rows[:-1, 0] = rows[:-1, 2] = matching_sizes(maps, *survey(truths[0], radius_squared))
    else:
        hits, unused = np.zeros_like(maps), np.zeros_like(truths[0])
        for truth in truths:
            rows[:-1, 0] += add_matches(maps, truth, radius_squared, hits, unused)
        rows[:-1, 2] = count_pixels(hits)
    rows[:, 1] = count_pixels(np.stack(truths)).sum()
    # How many of the levels that occur are at or above each threshold: the last of them is its
    # row, and where there is none, -1 is the empty one.
    reached = np.cumsum(present[:0:-1])[::-1]
    counts: Counts = rows[reached - 1]
    return counts


def levels(prob: Array) -> Levels:
    """Number of thresholds that each pixel reaches, 0 to 99; `levels >= k` is `prob >= k / 100`.

    The thresholds are rounded to the map's own precision, so that an 8-bit map divided by 255
    has the same levels in float32 and in float64.

    Example:
        >>> levels(np.array([[0.0, 0.2, 0.995]]))
        array([[ 0, 20, 99]], dtype=uint8)
    """
    checked = check_map(prob, "prob")
    return _find_levels(checked)[0]


def check_map(array: Array, name: str) -> Array:
    """Return a map (H, W) as float32 or float64 in [0,1], or raise ValueError with the remedy.

    Example:
        >>> check_map(np.array([[True, False]]), "map")
        array([[1., 0.]], dtype=float32)
    """
    array = np.asarray(array)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must be an array (H, W) with pixels, got shape {array.shape}")
    if array.dtype == bool:
        return array.astype(np.float32)
    if array.dtype not in (np.float32, np.float64):
        remedy = "divide by 255" if array.dtype == np.uint8 else "convert it to float32 in [0,1]"
        raise ValueError(f"{name} must be float32 or float64, got {array.dtype}; {remedy}")
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= 1):
        if np.isfinite(array).all():
            fault, remedy = f"values from {low:g} to {high:g}", "apply a sigmoid, or scale it"
        else:
            fault, remedy = f"{np.count_nonzero(~np.isfinite(array))} NaN or infinite", "mend them"
        raise ValueError(f"{name} must be in [0,1], got {fault}; {remedy}")
    return array


def _check_ground_truths(
    ground_truths: Array | Sequence[Array], shape: tuple[int, ...]
) -> list[npt.NDArray[np.uint64]]:
    """The ground truths as bit maps."""
    one = isinstance(ground_truths, np.ndarray) and ground_truths.ndim == 2
    truths = [np.asarray(truth) for truth in ([ground_truths] if one else ground_truths)]
    if not truths:
        raise ValueError("ground_truths must have at least one array, got none")
    for n, truth in enumerate(truths):
        if truth.shape != shape:
            raise ValueError(
                f"ground_truths[{n}] must have the map's shape {shape}, got {truth.shape}"
            )
        if truth.dtype != bool and not np.isin(truth, (0, 1)).all():
            raise ValueError(
                f"ground_truths[{n}] must be bool, got {truth.dtype} with other values than 0 and "
                "1; compare it with a threshold, as in truth > 127"
            )
    return [pack(truth.astype(bool, copy=False)) for truth in truths]


def _find_levels(prob: Array) -> tuple[Levels, npt.NDArray[np.bool_]]:
    # The least value of each level in the map's precision, and one that no pixel reaches.
    bounds = np.concatenate(([0.0], THRESHOLDS, [2.0])).astype(prob.dtype)
    # A read-only array, as joblib hands them on, would be another type and compiled again.
    return _levels(np.require(prob, requirements=["C", "W"]), bounds)


@kernel
def _levels(prob: Array, bounds: Array) -> tuple[Levels, npt.NDArray[np.bool_]]:
    """Levels of the pixels, and which of the levels 0 to 99 occur."""
    height, width = prob.shape
    result = np.empty((height, width), dtype=np.uint8)
    present = np.zeros(100, dtype=np.bool_)
    for y in range(height):
        for x in range(width):
            nearest = np.uint64(prob[y, x] * prob.dtype.type(100) + prob.dtype.type(0.5))
            result[y, x] = nearest - np.uint64(prob[y, x] < bounds[nearest])
        for x in range(width):
            present[result[y, x]] = True
    return result, present
