"""The threshold that serves best: found on a validation set, to be used elsewhere.

Use images the model was not trained on: it is surer of those it has seen, and a threshold tuned on
them comes out wrong for others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from knifeedge.errors import DataError
from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.evaluate import evaluate
from knifeedge.metrics.inputs import GroundTruths, Maps, Reader, pair
from knifeedge.metrics.protocols import Protocol
from knifeedge.metrics.scores import EdgeScores


@dataclass(frozen=True, eq=False)
class Calibration:
    """A threshold and what it rests on.

    Attributes:
        threshold: One of 0.01 .. 0.99; a pixel is marked where its probability is at least this.
        score: F of the summed counts there.
        curve: F at all 99 thresholds.
        protocol: What F was measured by, in full.
    """

    threshold: float
    score: float
    curve: npt.NDArray[np.float64]
    protocol: Protocol


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

    For decisions where a near miss is a miss, such as masks, match each pixel with itself:
    `protocol=PROTOCOLS["one-pixel"].replace(max_dist=0.0, thin=False)`.

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
        raise DataError(
            "every map has the same value at all of its pixels, so that no threshold tells them "
            "apart; check the model, or that these are its outputs"
        )
    curve = scores.curves.f
    best = np.flatnonzero(curve == curve.max())
    if curve.max() == 0:
        raise DataError(
            "no threshold matches a single edge, so that none is better than another; check that "
            "the ground truths hold edges and belong to these maps"
        )
    middle = best[(len(best) - 1) // 2]
    return Calibration(float(THRESHOLDS[middle]), float(curve[middle]), curve, scores.protocol)


def _all_constant(maps: Maps, ground_truths: GroundTruths, scores: EdgeScores, names: Any) -> bool:
    """Whether each scored map is constant; reads maps only up to the first that is not."""
    reader = Reader(**scores.options)
    scored = set(scores.names)
    images, _ = pair(maps, ground_truths, names)
    return all(np.ptp(reader.load(image)[0]) == 0 for image in images if image.name in scored)
