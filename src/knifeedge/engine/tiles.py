"""Where an image is cut into tiles, and how the tiles' maps come together again.

Tiles overlap, and where they do their maps are averaged, as in the paper. Each starts at a multiple
of 16, the networks' largest stride, so that a network sees it on the same grid as the whole image:
away from the tiles' borders the map is that of the whole image. The last tile in a row or column
ends at the border and may be up to 15 pixels smaller. (The paper's starts up to 15 pixels earlier
instead, off the grid.)
"""

from collections.abc import Iterator
from itertools import groupby, product

import torch
from torch import Tensor

TILE, OVERLAP, STRIDE = 320, 16, 16


def tile_starts(length: int, tile: int = TILE, overlap: int = OVERLAP) -> list[int]:
    """Where tiles begin along one side.

    >>> tile_starts(700), tile_starts(321), tile_starts(100)
    ([0, 304, 384], [0, 16], [0])
    """
    if not 0 <= overlap < tile:
        raise ValueError(f"overlap must be >= 0 and less than the tile's {tile}, got {overlap}")
    # A step too small for the grid is taken as it is.
    stride = STRIDE if tile - overlap >= STRIDE else 1
    last = -(-max(0, length - tile) // stride) * stride
    return [*range(0, last, (tile - overlap) // stride * stride), last]


def cut_tiles(
    pixels: Tensor, batch_size: int, tile: int = TILE, overlap: int = OVERLAP
) -> Iterator[tuple[list[tuple[int, int]], Tensor]]:
    """Batches of tiles, each of one size, of an image (H, W, C), with their corners."""
    height, width = pixels.shape[:2]
    corners = product(tile_starts(height, tile, overlap), tile_starts(width, tile, overlap))

    def size(corner: tuple[int, int]) -> tuple[int, int]:
        return min(tile, height - corner[0]), min(tile, width - corner[1])

    for _, group in groupby(sorted(corners, key=size), key=size):
        same = list(group)
        for first in range(0, len(same), batch_size):
            batch = same[first : first + batch_size]
            yield batch, torch.stack([pixels[y : y + tile, x : x + tile] for y, x in batch])


class TileSum:
    """The maps of an image's tiles, added up.

    >>> whole = torch.arange(12.0).view(3, 4)
    >>> total = TileSum(3, 4, tile=2, overlap=1)
    >>> for corners, tiles in cut_tiles(whole, 4, tile=2, overlap=1):
    ...     total.add(corners, tiles)
    >>> torch.equal(total.mean(), whole)
    True
    """

    def __init__(
        self,
        height: int,
        width: int,
        *,
        tile: int = TILE,
        overlap: int = OVERLAP,
        device: torch.device | str = "cpu",
    ) -> None:
        self._sum = torch.zeros(height, width, device=device)
        self._rows, self._columns = (
            _coverage(length, tile, overlap).to(device) for length in (height, width)
        )

    def add(self, corners: list[tuple[int, int]], tiles: Tensor) -> None:
        """Add the maps (N, h, w) of tiles at these corners."""
        height, width = tiles.shape[1:]
        for (top, left), tile in zip(corners, tiles, strict=True):
            self._sum[top : top + height, left : left + width] += tile

    def mean(self) -> Tensor:
        """The map (H, W); nothing may be added afterwards."""
        return self._sum.div_(self._rows[:, None]).div_(self._columns)


def _coverage(length: int, tile: int, overlap: int) -> Tensor:
    """How many tiles lie over each place along one side."""
    count = torch.zeros(length)
    for start in tile_starts(length, tile, overlap):
        count[start : start + tile] += 1
    return count
