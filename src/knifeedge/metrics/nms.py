"""Non-maximum suppression of a soft edge map, by the field's standard settings, and crispness.

Written from the published description (structured edge detection, and the benchmarks since):

1. the map is smoothed with a triangle filter of radius 4, borders mirrored about the image's edge
   (the edge pixel is repeated);
2. second derivatives of the smoothed map, by central differences (one-sided at the border), give
   the direction across the edge, atan(Oyy * sign(-Oxy) / (Oxx + 1e-5)). On an ideal ridge with
   normal angle a this is atan(tan(a)^2), exact at 0, 45 and 90 degrees and within 13 between;
3. a pixel becomes 0 where 1.01 times its value is less than the map one pixel away along that
   direction, on either side, interpolated bilinearly; the map continues beyond the border with its
   edge value. Equal neighbours survive;
4. the 5 outermost pixels on each side fade, scaled by 0, 1/5, .., 4/5 from the border inwards (in a
   small image at most half of its shorter side).

sign(0) is taken as 1: with 0, an exactly horizontal ridge would be searched along itself. Where
the smoothed map is convex, far down a flank, the formula gives the mirrored angle, and a broad
ridge may keep a faint second line there; that belongs to the standard, and is kept.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.counts import check_map
from knifeedge.metrics.kernels import kernel

Floats = npt.NDArray[np.floating[Any]]

SMOOTHING_RADIUS = 4
MULTIPLIER = 1.01  # a pixel yields only to a neighbour that is clearly greater
FADE = 5
EPSILON = 1e-5  # keeps the direction of flat and of exactly horizontal places defined


def suppress(prob: npt.NDArray[Any]) -> Floats:
    """Keep a soft map's ridges and set the rest to 0.

    Args:
        prob: (H, W) in [0,1].

    Returns:
        A new array of the map's shape and precision: its values on ridges, faded at the border.

    >>> prob = np.tile([0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.9, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0], (13, 1))
    >>> suppress(prob)[6].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    checked = np.ascontiguousarray(check_map(prob, "prob"))
    smooth = _smooth(checked, *(_mirrored(side) for side in checked.shape))
    return _fade(_keep_ridges(checked, *_slopes(smooth)))


def crispness(prob: npt.NDArray[Any]) -> float:
    """Share of a map's mass that survives NMS: sum(suppress(prob)) / sum(prob).

    Its mean over images is the literature's average crispness. A map without mass scores 0, so that
    answering nothing earns nothing.

    >>> crispness(np.zeros((20, 20)))
    0.0
    """
    checked = check_map(prob, "prob")
    return surviving_share(suppress(checked), checked)


def surviving_share(suppressed: Floats, prob: Floats) -> float:
    """Crispness, where the suppressed map is at hand already.

    >>> surviving_share(np.array([[0.0, 0.5]]), np.array([[0.5, 0.5]]))
    0.5
    """
    mass = float(prob.sum(dtype=np.float64))
    return float(suppressed.sum(dtype=np.float64)) / mass if mass > 0 else 0.0


def _mirrored(size: int) -> npt.NDArray[np.int64]:
    """Where each of -radius .. size-1+radius lies, mirrored about the edges as often as needed."""
    index = np.arange(-SMOOTHING_RADIUS, size + SMOOTHING_RADIUS) % (2 * size)
    return np.where(index < size, index, 2 * size - 1 - index)


def _fade(kept: Floats) -> Floats:
    """Scale the outer pixels down towards the border, in place."""
    width = min(FADE, *(side // 2 for side in kept.shape))
    for i in range(width):
        share = kept.dtype.type(i / width)
        kept[[i, -1 - i], :] *= share
        kept[:, [i, -1 - i]] *= share
    return kept


@kernel
def _smooth(prob: Floats, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]) -> Floats:
    """Triangle filter of radius 4: weights 1 2 3 4 5 4 3 2 1, over 25, along each axis."""
    height, width = prob.shape
    across = np.empty_like(prob)
    padded = np.empty(columns.size, prob.dtype)
    for y in range(height):
        for x in range(columns.size):
            padded[x] = prob[y, columns[x]]
        for x in range(width):
            across[y, x] = (
                5 * padded[x + 4]
                + 4 * (padded[x + 3] + padded[x + 5])
                + 3 * (padded[x + 2] + padded[x + 6])
                + 2 * (padded[x + 1] + padded[x + 7])
                + (padded[x] + padded[x + 8])
            ) / 25
    smooth = np.empty_like(prob)
    for y in range(height):
        r = rows[y : y + 9]
        for x in range(width):
            smooth[y, x] = (
                5 * across[r[4], x]
                + 4 * (across[r[3], x] + across[r[5], x])
                + 3 * (across[r[2], x] + across[r[6], x])
                + 2 * (across[r[1], x] + across[r[7], x])
                + (across[r[0], x] + across[r[8], x])
            ) / 25
    return smooth


@kernel
def _slopes(smooth: Floats) -> tuple[Floats, Floats]:
    """First derivatives along y and x: central differences, one-sided at the border."""
    height, width = smooth.shape
    along_y, along_x = np.zeros_like(smooth), np.zeros_like(smooth)
    for y in range(height):
        above, below = max(y - 1, 0), min(y + 1, height - 1)
        scale = 1 / max(below - above, 1)
        for x in range(width):
            along_y[y, x] = (smooth[below, x] - smooth[above, x]) * scale
        for x in range(1, width - 1):
            along_x[y, x] = (smooth[y, x + 1] - smooth[y, x - 1]) * 0.5
        if width > 1:
            along_x[y, 0] = smooth[y, 1] - smooth[y, 0]
            along_x[y, width - 1] = smooth[y, width - 1] - smooth[y, width - 2]
    return along_y, along_x


@kernel
def _keep_ridges(prob: Floats, along_y: Floats, along_x: Floats) -> Floats:
    """Steps 2 and 3 of the module's description, from the smoothed map's first derivatives."""
    height, width = prob.shape
    kept = np.zeros_like(prob)
    for y in range(height):
        # A clamped neighbour is at once the one-sided difference and the map's edge value.
        above, below = max(y - 1, 0), min(y + 1, height - 1)
        scale_y = 1 / max(below - above, 1)
        for x in range(width):
            value = prob[y, x]
            if value == 0:
                continue
            left, right = max(x - 1, 0), min(x + 1, width - 1)
            scale_x = 1 / max(right - left, 1)
            d_xx = (along_x[y, right] - along_x[y, left]) * scale_x
            d_xy = (along_y[y, right] - along_y[y, left]) * scale_x
            d_yy = (along_y[below, x] - along_y[above, x]) * scale_y
            # cos and sin of atan(up / over), up to a common sign, which only swaps the two sides.
            over = d_xx + EPSILON
            up = -d_yy if d_xy > 0 else d_yy
            length = math.sqrt(up * up + over * over)
            cos, sin = (abs(over) / length, abs(up) / length) if length > 0 else (1.0, 0.0)
            ahead, behind = (below, above) if (up < 0) == (over < 0) else (above, below)
            here = (1 - cos) * value
            one = (1 - sin) * (here + cos * prob[y, right]) + sin * (
                (1 - cos) * prob[ahead, x] + cos * prob[ahead, right]
            )
            other = (1 - sin) * (here + cos * prob[y, left]) + sin * (
                (1 - cos) * prob[behind, x] + cos * prob[behind, left]
            )
            if MULTIPLIER * value >= max(one, other):
                kept[y, x] = value
    return kept
