"""The threshold that serves best: found on a validation set, to be used elsewhere.

Use images the model was not trained on: it is surer of those it has seen, and a threshold tuned on
them comes out wrong for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from knifeedge.errors import DataError
from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.evaluate import evaluate
from knifeedge.metrics.inputs import GroundTruths, Maps, Reader, pair
from knifeedge.metrics.protocols import Protocol
from knifeedge.metrics.scores import EdgeScores
from knifeedge.metrics.values import positives

CONSTANT = (
    "every map has the same value at all of its pixels, so that no threshold tells them apart; "
    "check the model, or that these are its outputs"
)


@dataclass(frozen=True, eq=False)
class Calibration:
    """A threshold and what it rests on.

    Attributes:
        threshold: One of 0.01 .. 0.99; a pixel is marked where its probability is at least this.
        score: F of the summed counts there.
        curve: F at all 99 thresholds.
        protocol: What F was measured by, in full.
        beta: How many times as much recall weighs as precision.
    """

    threshold: float
    score: float
    curve: npt.NDArray[np.float64]
    protocol: Protocol
    beta: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "threshold": self.threshold,
            "score": self.score,
            "beta": self.beta,
            "protocol": self.protocol.to_dict(),
            "curve": self.curve.tolist(),
        }


def calibrate(
    maps: Maps,
    ground_truths: GroundTruths,
    *,
    protocol: str | Protocol = "paper-strict",
    **options: Any,
) -> Calibration:
    """Find the threshold with the greatest F on a validation set.

    F is that of the counts summed over the images, at the 99 thresholds themselves: the `ods` of
    `evaluate` may lie between two of them. Where several reach it, as on the plateau of a nearly
    binary map, the middle one is taken (of two, the lower): it is the farthest from both ends,
    beyond which F falls.

    For decisions where a near miss is a miss, such as masks, see `calibrate_pixels`.

    Args:
        maps: As for `evaluate`: arrays, lists or dicts of arrays, or a folder.
        ground_truths: As for `evaluate`.
        protocol: A name from `PROTOCOLS`, or a record.
        options: Further options of `evaluate`.

    Returns:
        The threshold, its F, and the whole curve.

    Raises:
        DataError: The maps are all constant, or no threshold matches anything.

    >>> edges = np.zeros((8, 8), dtype=bool)
    >>> edges[4] = True
    >>> calibrate(0.2 + 0.5 * edges, edges).threshold
    0.45
    """
    scores = evaluate(maps, ground_truths, protocol=protocol, **options)
    if _all_constant(maps, ground_truths, scores, options.get("names")):
        raise DataError(CONSTANT)
    return _best(scores.curves.f, scores.protocol)


def calibrate_pixels(
    maps: Iterable[npt.NDArray[Any]], labels: Iterable[npt.NDArray[Any]], *, beta: float = 1.0
) -> Calibration:
    """Find the threshold with the greatest F-beta when each pixel is judged by itself.

    One pass over the pixels, without matching: for masks, tables and anything where a near miss is
    a miss, or where `calibrate` would take too long. For thin edges it is not the same question.

    Args:
        maps: Probabilities in [0,1], arrays of any shape; read one by one.
        labels: Of the same shapes; positive is what is an edge to `evaluate`: true or 1, or more
            than half of full scale (255 in uint8, 1 in floats).
        beta: How many times as much recall weighs as precision.

    Returns:
        The threshold, its F-beta, and the whole curve; ties as in `calibrate`.

    Raises:
        DataError: The maps are all constant, or no threshold finds a positive.

    >>> calibrate_pixels([np.array([0.1, 0.4, 0.6, 0.9])], [np.array([0, 0, 1, 1])]).threshold
    0.5
    """
    if not 0 < beta < float("inf"):
        raise ValueError(f"beta must be > 0 and finite, got {beta}")
    # How many pixels reach how many of the thresholds, apart for positives and negatives.
    reach = np.zeros((2, len(THRESHOLDS) + 1), dtype=np.int64)
    lowest, highest = np.inf, -np.inf
    for prob, label in _pairs(maps, labels):
        if prob.dtype.kind != "f":
            prob = prob.astype(np.float64)
        if prob.shape != label.shape:
            raise DataError(
                f"maps must have their labels' shapes, got {prob.shape} and {label.shape}"
            )
        if prob.size == 0:
            continue
        low, high = float(prob.min()), float(prob.max())
        if not (low >= 0 and high <= 1):
            raise DataError(
                f"maps must be in [0,1], got {low:g} to {high:g}; apply a sigmoid, or scale them"
            )
        lowest, highest = min(lowest, low), max(highest, high)
        label = positives(label)
        level = np.searchsorted(THRESHOLDS.astype(prob.dtype), prob.ravel(), side="right")
        for kind, of_kind in enumerate((~label.ravel(), label.ravel())):
            reach[kind] += np.bincount(level[of_kind], minlength=reach.shape[1])
    if lowest == highest:
        raise DataError(CONSTANT)
    false_alarms, hits = (row[::-1].cumsum()[::-1][1:] for row in reach)
    squared = beta**2
    curve = (1 + squared) * hits / np.maximum(hits + false_alarms + squared * reach[1].sum(), 1)
    return _best(curve, Protocol("pixel", max_dist=0.0, unit="pixel", thin=False), beta)


def _pairs(
    maps: Iterable[npt.NDArray[Any]], labels: Iterable[npt.NDArray[Any]]
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Each map with its labels; one more of either is refused, and so are none."""
    count = 0
    for count, (prob, label) in enumerate(zip_longest(maps, labels), start=1):
        if prob is None or label is None:
            more, fewer = ("labels", "maps") if prob is None else ("maps", "labels")
            raise DataError(f"there are {count - 1} {fewer}, and more {more}; give one of each")
        yield np.asarray(prob), np.asarray(label)
    if count == 0:
        raise DataError("there are no maps to calibrate on; give at least one array")


def _best(curve: npt.NDArray[np.float64], protocol: Protocol, beta: float = 1.0) -> Calibration:
    """The middle of the thresholds with the greatest F; of two the lower."""
    if curve.max() == 0:
        raise DataError(
            "no threshold matches a single edge, so that none is better than another; check that "
            "the ground truths hold edges and belong to these maps"
        )
    best = np.flatnonzero(curve == curve.max())
    middle = best[(len(best) - 1) // 2]
    return Calibration(float(THRESHOLDS[middle]), float(curve[middle]), curve, protocol, beta)


def _all_constant(maps: Maps, ground_truths: GroundTruths, scores: EdgeScores, names: Any) -> bool:
    """Whether each scored map is constant; reads maps only up to the first that is not."""
    reader = Reader(**scores.options)
    scored = set(scores.names)
    images, _ = pair(maps, ground_truths, names)
    return all(np.ptp(reader.load(image)[0]) == 0 for image in images if image.name in scored)
