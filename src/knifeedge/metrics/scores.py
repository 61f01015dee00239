"""ODS, OIS, AP and R50 from match counts, by the boundary benchmark's conventions.

Counts are int64 (n_images, 99, 4): matched ground-truth pixels, ground-truth pixels, matched map
pixels, map pixels, at the thresholds 0.01 .. 0.99. With R = matched / all of the ground truth and
P = matched / all of the map, F = 2PR / (P + R); each is 0 where its divisor is 0.

What follows from that, stated once:

- an image without edges has R = F = 0 at every threshold, whatever the map: it adds 0 to
  `ois_mean`, and its false alarms lower the precision of the sums;
- a tie goes to the lowest threshold (the first maximum), as in the benchmark;
- a map that equals its ground truth pixel for pixel, not thinned, scores exactly 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.curves import (
    Counts,
    Curves,
    Point,
    average_precision,
    best_point,
    nearest_threshold,
    precision_recall_f,
    recall_at_half_precision,
)
from knifeedge.metrics.protocols import Protocol


class ImageScore(NamedTuple):
    """One image at its own best threshold, and the crispness of its map."""

    name: str
    threshold: float
    precision: float
    recall: float
    f: float
    crispness: float


class LeftOut(NamedTuple):
    """An image that was not scored, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False)
class EdgeScores:
    """The scores of a set of images, with all it takes to check and compare them.

    Attributes:
        ods: Best F of the summed counts, along linear interpolation between adjacent thresholds.
        threshold: Where `ods` is reached; it may lie between two thresholds.
        precision: Precision there.
        recall: Recall there.
        ois: F of the counts summed at each image's own best threshold.
        ois_mean: Mean of the images' best F; what papers often describe as OIS.
        ap: Precision averaged over recall.
        r50: Recall where precision is 0.5.
        crispness: Mean share of a map's mass that survives NMS.
        curves: Precision, recall and F of the summed counts at the 99 thresholds.
        images: Each image at its best threshold.
        counts: int64 (n_images, 99, 4), what everything above is computed from.
        protocol: The protocol, in full.
        options: How maps and ground truths were read, where that was recorded.
        left_out: Images that were not scored, with the reasons.
    """

    ods: float
    threshold: float
    precision: float
    recall: float
    ois: float
    ois_mean: float
    ap: float
    r50: float
    crispness: float
    curves: Curves
    images: tuple[ImageScore, ...]
    counts: Counts
    protocol: Protocol
    options: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scored images."""
        return tuple(image.name for image in self.images)

    def at(self, threshold: float) -> Point:
        """The summed scores at a threshold fixed beforehand, not tuned on these images.

        Args:
            threshold: In [0,1]. Counts exist at 0.01 .. 0.99: the nearest of these is taken, the
                lower of two equally near, and the answer says which.
        """
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be in [0,1], got {threshold}")
        index = nearest_threshold(threshold)
        return Point(float(THRESHOLDS[index]), *(float(curve[index]) for curve in self.curves))

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values; `EdgeScores.from_dict` gives the same object back."""
        return {
            **{name: getattr(self, name) for name in NUMBERS},
            "protocol": self.protocol.to_dict(),
            "options": dict(self.options),
            "left_out": [item._asdict() for item in self.left_out],
            "curves": {
                "threshold": THRESHOLDS.tolist(),
                **{name: curve.tolist() for name, curve in self.curves._asdict().items()},
            },
            "images": [image._asdict() for image in self.images],
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> EdgeScores:
        """The object that `to_dict` wrote.

        The numbers are computed anew from the counts, which are the whole truth.
        """
        try:
            return score(
                np.array(record["counts"], dtype=np.int64),
                protocol=Protocol(**record["protocol"]),
                names=[image["name"] for image in record["images"]],
                crispness=[image["crispness"] for image in record["images"]],
                options=record["options"],
                left_out=[LeftOut(**item) for item in record["left_out"]],
            )
        except (KeyError, TypeError, ValueError, OverflowError, ConfigError) as error:
            raise DataError(f"this is no record of scores ({error!r})") from error


NUMBERS = (
    "ods",
    "threshold",
    "precision",
    "recall",
    "ois",
    "ois_mean",
    "ap",
    "r50",
    "crispness",
)


def score(
    counts: npt.ArrayLike,
    *,
    protocol: Protocol,
    crispness: Sequence[float],
    names: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    left_out: Sequence[LeftOut] = (),
) -> EdgeScores:
    """All scores from the images' match counts.

    Args:
        counts: Integers (n_images, 99, 4).
        protocol: What the counts were made with; recorded.
        crispness: One value an image.
        names: One name an image; their numbers if none are given.
        options: How the inputs were read; recorded.
        left_out: Images that were not scored; recorded.

    Returns:
        The scores. The order of the images changes nothing but the order of the table.

    >>> from knifeedge.metrics.protocols import PROTOCOLS
    >>> counts = np.tile([80, 100, 80, 100], (2, 99, 1))
    >>> score(counts, protocol=PROTOCOLS["bsds"], crispness=[0.5, 1.0]).ods
    0.8
    """
    table = _checked(counts)
    n_images = len(table)
    labels = [str(i) for i in range(n_images)] if names is None else list(names)
    if len(labels) != n_images or len(crispness) != n_images:
        raise ValueError(
            f"names and crispness must have one entry an image, got {len(labels)} names and "
            f"{len(crispness)} crispness values for {n_images} images"
        )
    summed = table.sum(axis=0)
    curves = precision_recall_f(summed)
    best = best_point(curves)
    per_image = precision_recall_f(table)
    first_best = np.argmax(per_image.f, axis=1)
    rows = np.arange(n_images)
    chosen = (
        THRESHOLDS[first_best].tolist(),
        *(curve[rows, first_best].tolist() for curve in per_image),
    )
    images = tuple(map(ImageScore, labels, *chosen, map(float, crispness)))
    ois = precision_recall_f(table[rows, first_best].sum(axis=0))
    return EdgeScores(
        ods=best.f,
        threshold=best.threshold,
        precision=best.precision,
        recall=best.recall,
        ois=float(ois.f),
        # fsum rounds once, so that the order of the images cannot change the last digit.
        ois_mean=math.fsum(image.f for image in images) / n_images,
        ap=average_precision(curves),
        r50=recall_at_half_precision(curves, summed[:, 3] > 0),
        crispness=math.fsum(image.crispness for image in images) / n_images,
        curves=curves,
        images=images,
        counts=table,
        protocol=protocol,
        options=dict(options or {}),
        left_out=tuple(left_out),
    )


def _checked(counts: npt.ArrayLike) -> Counts:
    """Counts as a private read-only int64 (n, 99, 4), n >= 1."""
    table = np.array(counts)
    if table.ndim != 3 or table.shape[1:] != (len(THRESHOLDS), 4) or len(table) == 0:
        raise ValueError(
            f"counts must be (n_images, {len(THRESHOLDS)}, 4) of at least one image, got shape "
            f"{table.shape}; stack what match_counts gives for each image"
        )
    if table.dtype.kind not in "iu":
        raise TypeError(f"counts must be integers, got {table.dtype}")
    table = table.astype(np.int64)
    table.flags.writeable = False
    return table
