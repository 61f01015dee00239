"""One-to-one matching of a map's edge pixels with a ground truth's, within a tolerance.

The field's rule: a pair may lie d apart if d^2 <= tolerance^2, each pixel is used once, and as
many pixels as possible are matched. Which pixels is settled by distance: see `nearest`. Where
only the number of pairs is asked, `maximum` counts it faster.
"""

import math

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.nearest import match_nearest, pair_costs
from knifeedge.metrics.protocols import FARTHEST
from knifeedge.metrics.thinning import Bits, pack, unpack
from knifeedge.metrics.tiles import survey

Mask = npt.NDArray[np.bool_]


def tolerance_squared(shape: tuple[int, ...], max_dist: float, unit: str = "diagonal") -> float:
    """Square of the largest distance at which two pixels may be matched, in pixels.

    Args:
        shape: (H, W) of the image.
        max_dist: the tolerance; a pair exactly that far apart may be matched.
        unit: "diagonal" if it is a fraction of sqrt(H^2 + W^2), "pixel" if it is in pixels.

    Example:
        >>> tolerance_squared((300, 400), 0.01)
        25.0
        >>> tolerance_squared((300, 400), 1.0, "pixel")
        1.0
    """
    if unit not in ("diagonal", "pixel"):
        raise ValueError(f'unit must be "diagonal" or "pixel", got {unit!r}')
    if not (math.isfinite(max_dist) and max_dist >= 0):
        raise ValueError(f"max_dist must be a finite number >= 0, got {max_dist}")
    radius = max_dist * math.sqrt(shape[0] ** 2 + shape[1] ** 2) if unit == "diagonal" else max_dist
    if radius > FARTHEST:
        found = f"{max_dist} pixels"
        if unit == "diagonal":
            found = f'{max_dist} of the diagonal, {radius:.0f}; for pixels give unit="pixel"'
        raise ValueError(f"max_dist must be at most {FARTHEST:g} pixels, got {found}")
    return float(radius * radius)


def match(pred: Mask, gt: Mask, *, radius_squared: float) -> tuple[Mask, Mask]:
    """Match one binary map with one ground truth.

    Of all maximum matchings, the one with the least total distance; of those the one whose map
    pixels come first in reading order.

    Args:
        pred: bool (H, W), the map's edge pixels.
        gt: bool (H, W), the ground truth's.
        radius_squared: see `tolerance_squared`.

    Returns:
        The matched pixels of `pred` and those of `gt`, bool (H, W) both.

    Example:
        >>> pred = np.array([[True, False, True, False, False]])
        >>> gt = np.array([[False, False, False, True, False]])
        >>> pred_hit, gt_hit = match(pred, gt, radius_squared=9.0)
        >>> pred_hit.astype(int), gt_hit.astype(int)
        (array([[0, 0, 1, 0, 0]]), array([[0, 0, 0, 1, 0]]))
    """
    pred, gt = np.asarray(pred), np.asarray(gt)
    if pred.dtype != bool or gt.dtype != bool or pred.shape != gt.shape or pred.ndim != 2:
        raise ValueError(
            f"pred and gt must be bool arrays (H, W) of one shape, got {pred.dtype} {pred.shape} "
            f"and {gt.dtype} {gt.shape}; compare with a threshold first"
        )
    if not 0 <= radius_squared <= FARTHEST**2:
        raise ValueError(
            f"radius_squared must be from 0 to {FARTHEST**2:g}, got {radius_squared}; "
            "tolerance_squared() gives it"
        )
    maps = pack(pred)[None]
    hits, gt_hits = np.zeros_like(maps), np.zeros_like(maps[0])
    add_matches(maps, pack(gt), radius_squared, hits, gt_hits)
    return unpack(hits[0], pred.shape[1]), unpack(gt_hits, pred.shape[1])


def add_matches(
    maps: Bits, ground_truth: Bits, radius_squared: float, hits: Bits, gt_hits: Bits
) -> npt.NDArray[np.int64]:
    """Match bit maps (K, H, words) with one of (H, words): see `match_nearest`."""
    plane, disc = survey(ground_truth, radius_squared)
    costs = pair_costs(radius_squared, ground_truth.size * 64, int(plane.edges))
    return match_nearest(maps, plane, disc, costs, hits, gt_hits.reshape(-1))
