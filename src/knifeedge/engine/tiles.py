"""Where an image is cut into tiles, which tiles go together, and how their maps become one again.

A side is divided evenly, into as many tiles as fit: they have 320 pixels or somewhat more, less
than twice as many, and an image below 600 is one tile. Nothing is computed twice but the overlap,
and a network sees no less around a pixel than in training. Each tile starts at a multiple of 16,
the networks' largest stride, so that a network sees it on the same grid as the whole image. Where
tiles overlap each says the less the nearer its border is, where it sees least: there is no seam.
(The paper's are of 320 exactly, the last one aligned to the border, off the grid, and half of an
image is seen twice; plain averages leave seams.)

A batch has tiles of one size, so that they wait in a `TileQueue` for those of other images.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from knifeedge.models.geometry import STRIDE

TILE, OVERLAP = 320, 32


def tile_spans(length: int, tile: int = TILE, overlap: int = OVERLAP) -> list[slice]:
    """Where the tiles of one side are.

    >>> tile_spans(481), tile_spans(700)
    ([slice(0, 481, None)], [slice(0, 368, None), slice(336, 700, None)])
    """
    if not 0 <= 2 * overlap <= tile:  # with more, tiles hardly get on
        raise ValueError(f"overlap must be from 0 to half of the tile's {tile}, got {overlap}")
    # A step too small for the grid is taken as it is.
    stride = STRIDE if tile - overlap >= STRIDE else 1
    rest = max(1, length - overlap)
    count = max(1, rest // (tile - overlap))
    step = -(-rest // (count * stride)) * stride
    last = -(-max(0, rest - step) // stride) * stride
    starts = [*range(0, last, step), last]
    return [slice(start, min(start + step + overlap, length)) for start in starts]


class Tile(NamedTuple):
    """A part of an image."""

    image: "TiledImage"
    rows: slice
    columns: slice

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def pixels(self) -> Tensor:
        """What the image has there."""
        return self.image.pixels[self.rows, self.columns]


class TiledImage:
    """An image in tiles, and the map that those make that were added.

    Args:
        pixels: (H, W, ...).
        tile: Least side of a tile; see `tile_spans`.
        overlap: Of neighbouring tiles.

    >>> whole = torch.arange(12.0).view(3, 4)
    >>> image = TiledImage(whole, tile=2, overlap=1)
    >>> for tile in image.tiles():
    ...     image.add(tile, tile.pixels())
    >>> image.is_complete, torch.equal(image.map, whole)
    (True, True)
    """

    def __init__(self, pixels: Tensor, *, tile: int = TILE, overlap: int = OVERLAP) -> None:
        self.pixels, self.tile, self._overlap = pixels, tile, overlap
        self._spans = [tile_spans(length, tile, overlap) for length in pixels.shape[:2]]
        self._missing = len(self._spans[0]) * len(self._spans[1])
        self.map = torch.zeros(pixels.shape[:2], device=pixels.device)

    def tiles(self) -> Iterator[Tile]:
        """Its tiles, row by row."""
        return (Tile(self, *spans) for spans in product(*self._spans))

    def add(self, tile: Tile, prob: Tensor) -> None:
        """Add the map (h, w) of a tile."""
        down, across = (
            _shares(length, self.tile, self._overlap, self.map.device)[side.start]
            for length, side in zip(self.map.shape, (tile.rows, tile.columns), strict=True)
        )
        self.map[tile.rows, tile.columns] += prob * down[:, None] * across
        self._missing -= 1

    @property
    def is_complete(self) -> bool:
        """Whether the maps of all tiles were added."""
        return self._missing == 0


class TileQueue:
    """Tiles that wait for others of their size.

    Args:
        batch_size: Tiles of a full batch.
        pixels: The most that a batch of several may hold.

    >>> queue = TileQueue(2, pixels=1000)
    >>> first, second = (TiledImage(torch.zeros(9, 70), tile=32, overlap=0) for _ in range(2))
    >>> [len(batch) for batch in queue.put(first)]
    []
    >>> [len(batch) for batch in queue.put(second)]
    [2, 2]
    """

    def __init__(self, batch_size: int, pixels: int) -> None:
        self._batch_size, self._pixels = batch_size, pixels
        self._waiting: dict[tuple[int, int], list[Tile]] = {}

    def put(self, image: TiledImage) -> Iterator[list[Tile]]:
        """Take up an image; its tiles fill these batches."""
        for tile in image.tiles():
            height, width = tile.size
            waiting = self._waiting.setdefault(tile.size, [])
            waiting.append(tile)
            if len(waiting) >= min(self._batch_size, max(1, self._pixels // (height * width))):
                yield self._waiting.pop(tile.size)

    def take(self, image: TiledImage) -> Iterator[list[Tile]]:
        """The batches an image waits for, full or not."""
        sizes = [
            size
            for size, waiting in self._waiting.items()
            if any(tile.image is image for tile in waiting)
        ]
        return (self._waiting.pop(size) for size in sizes)


# Kept: a copy to a CUDA device waits for all that it has to do before.
@lru_cache(maxsize=64)
def _shares(length: int, tile: int, overlap: int, device: torch.device) -> dict[int, Tensor]:
    """How much each tile says at each of its places along one side, by where it starts.

    A share rises evenly to where the tile before ends, and falls from where the next one starts; at
    each place the shares sum to 1.
    """
    spans = tile_spans(length, tile, overlap)
    starts = torch.tensor([span.start for span in spans])[:, None]
    ends = torch.tensor([span.stop for span in spans])[:, None]
    before = torch.cat([starts[:1], ends[:-1]])  # the first and the last have no neighbour there
    after = torch.cat([starts[1:], ends[-1:]])
    place = torch.arange(length)
    rise, fall = (place - starts + 1) / (before - starts + 1), (ends - place) / (ends - after + 1)
    shares = torch.minimum(rise, fall).clamp(0, 1)
    shares = (shares / shares.sum(0)).to(device)
    return {span.start: row[span] for span, row in zip(spans, shares, strict=True)}
