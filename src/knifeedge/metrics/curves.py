"""Precision, recall and F along the 99 thresholds, and what the benchmark reads off them.

R = matched / all of the ground truth, P = matched / all of the map, F = 2PR / (P + R); each is 0
where its divisor is 0. A tie goes to the lowest threshold, the first maximum.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.counts import THRESHOLDS

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

INTERPOLATION_POINTS = 100  # between two adjacent thresholds, both ends included
RECALL_GRID = np.arange(101) / 100


class Point(NamedTuple):
    """Precision, recall and F at one threshold."""

    threshold: float
    precision: float
    recall: float
    f: float


class Curves(NamedTuple):
    """Precision, recall and F of the summed counts at the 99 thresholds."""

    precision: Floats
    recall: Floats
    f: Floats


def nearest_threshold(threshold: float) -> int:
    """Index of the nearest of the 99 thresholds; the lower of two equally near.

    >>> nearest_threshold(0.704)
    69
    """
    # Rounded, so that 0.705 lies half way although neither it nor 0.70 is a binary fraction.
    return int(np.argmin(np.round(np.abs(THRESHOLDS - threshold), 12)))


def precision_recall_f(counts: Counts) -> Curves:
    """Precision, recall and F of counts (..., 4); 0 where the divisor is 0.

    >>> [float(value) for value in precision_recall_f(np.array([1, 2, 1, 4]))]
    [0.25, 0.5, 0.3333333333333333]
    """
    matched_gt, gt, matched_map, in_map = np.moveaxis(counts, -1, 0)
    precision = matched_map / np.maximum(in_map, 1)
    recall = matched_gt / np.maximum(gt, 1)
    return Curves(precision, recall, f_measure(precision, recall))


def f_measure(precision: Floats, recall: Floats) -> Floats:
    """Harmonic mean of precision and recall; 0 where both are 0.

    >>> f_measure(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    array([1., 0.])
    """
    total = precision + recall
    # The quotient first: with equal precision and recall it is exactly 1/2, and F exactly both.
    result: Floats = 2 * precision * (recall / np.where(total == 0, 1, total))
    return result


def best_point(curves: Curves) -> Point:
    """The best F along 100 linear interpolation points between adjacent thresholds.

    Precision, recall and threshold are interpolated, F is computed from them; the first maximum
    wins.

    >>> flat = np.ones(99)
    >>> best_point(Curves(flat, flat, flat))
    Point(threshold=0.01, precision=1.0, recall=1.0, f=1.0)
    """
    threshold, precision, recall = (
        _interpolated(values) for values in (THRESHOLDS, curves.precision, curves.recall)
    )
    f = f_measure(precision, recall)
    first = int(np.argmax(f))
    return Point(*(float(values[first]) for values in (threshold, precision, recall, f)))


def average_precision(curves: Curves) -> float:
    """Precision interpolated at the recalls 0, 0.01, .., 1, summed, times 0.01.

    Recalls outside the curve's range count 0, and so does a curve of a single recall. Of equal
    recalls the lowest threshold counts. By this rule, the benchmark's own, 101 points weigh 0.01
    each: the greatest value is 1.01.

    >>> recall = np.linspace(1, 0, 99)
    >>> round(average_precision(Curves(np.full(99, 0.5), recall, recall)), 6)
    0.505
    """
    recall, first = np.unique(curves.recall, return_index=True)
    if len(recall) < 2:
        return 0.0
    precision = np.interp(RECALL_GRID, recall, curves.precision[first], left=0, right=0)
    return math.fsum(precision) * 0.01


def recall_at_half_precision(curves: Curves, marked: npt.NDArray[np.bool_]) -> float:
    """Recall where precision is 0.5, interpolated along increasing precision.

    0 where precision never reaches 0.5; the recall of the lowest precision where that is above 0.5.
    Of equal precisions the lowest threshold counts.

    Args:
        curves: The summed curves.
        marked: (99,) whether any pixel is in the maps: an empty map has no precision to speak of.

    >>> precision, recall = np.linspace(0, 1, 99), np.linspace(1, 0, 99)
    >>> round(recall_at_half_precision(Curves(precision, recall, recall), precision >= 0), 6)
    0.5
    """
    precision, first = np.unique(curves.precision[marked], return_index=True)
    if len(precision) == 0 or precision[-1] < 0.5:
        return 0.0
    return float(np.interp(0.5, precision, curves.recall[marked][first]))


def _interpolated(values: Floats) -> Floats:
    """100 points on each of the 98 segments, in order.

    start + share * (end - start) keeps a level stretch exactly level, which the weighted mean of
    the two ends does not: rounding there would invent a threshold. The end is then set exactly.
    """
    share = np.linspace(0, 1, INTERPOLATION_POINTS)
    points = values[:-1, None] + share * np.diff(values)[:, None]
    points[:, -1] = values[1:]
    return points.ravel()
