"""Shapes as masks, and the exact one-pixel edges between regions."""

from functools import cache

import numpy as np
import numpy.typing as npt

_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float32]

# The eight neighbours in the order of going round, as (row, column).
_ROUND = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


def ellipse_mask(y: _Floats, x: _Floats, *, radii: tuple[float, float], angle: float) -> _Bools:
    """The inside of an ellipse around the origin.

    Args:
        y: Rows, (H, 1).
        x: Columns, (1, W).
        radii: Along its own two axes.
        angle: Of the first of them, in radians.

    Returns:
        (H, W).

    >>> axis = np.arange(-1, 2, dtype=np.float32)
    >>> int(ellipse_mask(axis[:, None], axis[None], radii=(1.2, 1.2), angle=0).sum())
    5
    """
    cos, sin = np.cos(angle), np.sin(angle)
    along, across = (x * cos + y * sin) / radii[0], (y * cos - x * sin) / radii[1]
    inside: _Bools = along * along + across * across < 1
    return inside


def polygon_mask(y: _Floats, x: _Floats, corners: npt.NDArray[np.floating]) -> _Bools:
    """The inside of a polygon, by the even-odd rule.

    Args:
        y: Rows, (H, 1), growing.
        x: Columns, (1, W).
        corners: (K, 2) rows and columns, in order.

    Returns:
        (H, W).

    >>> axis = np.arange(4, dtype=np.float32)
    >>> square = np.array([[0.5, 0.5], [0.5, 2.5], [2.5, 2.5], [2.5, 0.5]])
    >>> int(polygon_mask(axis[:, None], axis[None], square).sum())
    4
    """
    inside = np.zeros((y.shape[0], x.shape[1]), np.bool_)
    rows, columns = y[:, 0], x[0]
    for (y0, x0), (y1, x1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        # The rows this side crosses, none if it is level.
        first, last = np.searchsorted(rows, (min(y0, y1), max(y0, y1)))
        if first < last:
            cross = x0 + (rows[first:last] - y0) * ((x1 - x0) / (y1 - y0))
            inside[first:last] ^= columns < cross[:, None].astype(np.float32)
    return inside


def region_edges(regions: npt.NDArray[np.integer]) -> _Bools:
    """The edges of a map of region numbers, one pixel wide.

    An edge pixel is one whose right or lower neighbour belongs to another region. The corners of
    the steps that this makes are taken away where the line stays connected without them.

    Args:
        regions: (H, W) numbers.

    Returns:
        (H, W).

    >>> region_edges(np.array([[0, 0, 1], [0, 1, 1], [1, 1, 1]])).astype(int)
    array([[0, 1, 0],
           [1, 0, 0],
           [0, 0, 0]])
    """
    edges = np.zeros(regions.shape, np.bool_)
    edges[:, :-1] |= regions[:, :-1] != regions[:, 1:]
    edges[:-1] |= regions[:-1] != regions[1:]
    return _thin(edges)


def _thin(edges: _Bools) -> _Bools:
    """Take away pixels that neither end nor connect anything, until there are none.

    Pixels of one of the four fields (row and column odd or even) are never neighbours, so a field
    at a time can go at once and no line breaks.
    """
    padded = np.pad(edges, 1).astype(np.uint8)
    inner = padded[1:-1, 1:-1]
    height, width = edges.shape
    while True:
        before = int(inner.sum())
        for row in (0, 1):
            for column in (0, 1):
                field = inner[row::2, column::2]
                code = np.zeros(field.shape, np.uint8)
                for bit, (dy, dx) in enumerate(_ROUND):
                    top, left = 1 + row + dy, 1 + column + dx
                    code |= (
                        padded[top : top + height - row : 2, left : left + width - column : 2]
                        << bit
                    )
                field &= _kept()[code]
        if int(inner.sum()) == before:
            return inner.astype(np.bool_)


@cache
def _kept() -> npt.NDArray[np.uint8]:
    """For each of the 256 neighbourhoods, 1 if its middle must stay.

    It may go if it has two neighbours or more, all of them in one connected run, which leaves
    background beside it (a full ring has no beginning): then nothing breaks, ends or opens.
    """
    kept = np.ones(256, np.uint8)
    for code in range(256):
        ring = [code >> bit & 1 for bit in range(8)]
        # Runs of neighbours that touch: a gap at a corner alone does not part two sides.
        closed = [
            v or (k % 2 == 1 and ring[k - 1] and ring[(k + 1) % 8]) for k, v in enumerate(ring)
        ]
        runs = sum(1 for k in range(8) if closed[k] and not closed[k - 1])
        if sum(ring) >= 2 and runs == 1:
            kept[code] = 0
    return kept
