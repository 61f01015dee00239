"""Images in, maps out: tiles of one size go through the network together, whosever they are.

On a CUDA device nothing waits before a map is asked for: pixels go there, and maps come back, while
the host has other things to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Generic, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from knifeedge.config import Precision
from knifeedge.data.pool import normalise
from knifeedge.engine.tiles import OVERLAP, TILE, Tile, TiledImage, TileQueue, tile_spans
from knifeedge.errors import ConfigError, DataError

Map = npt.NDArray[np.float32]
Pixels = npt.NDArray[np.uint8]
Item = TypeVar("Item")

# Tiles at a time. On a CPU 8 of them took tiny 1.4 times as long each as 1 to 4: their features are
# too large for memory that is used again.
CUDA_BATCH, CPU_BATCH = 8, 4
# What one shelf holds, unless it is a single image: 108 of 321 x 481, 120 MB with their maps.
HELD_PIXELS = 2**24


class Stream:
    """Images in, maps out in their order; the arguments are those of `predict`."""

    def __init__(
        self,
        model: nn.Module,
        tile: int = TILE,
        overlap: int = OVERLAP,
        whole: bool = False,
        batch_size: int | None = None,
        precision: Precision = "32-true",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ConfigError(
                f"model must be a torch.nn.Module, got {type(model).__name__}; load_model() gives"
                " the network and what is known of it: take the first"
            )
        if not whole:
            tile_spans(1, tile, overlap)  # refuses what does not go together
        self.device = next(model.parameters(), torch.zeros(0)).device
        if batch_size is None:
            batch_size = CUDA_BATCH if self.device.type == "cuda" else CPU_BATCH
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        if precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise ConfigError(f"precision must be one of {known}, got {precision!r}")
        self._model, self._tile, self._overlap, self._whole = model, tile, overlap, whole
        self.batch_size, self._precision = batch_size, precision
        # Whole images go together only as far as they take no more memory than a batch of tiles.
        self._queue = TileQueue(batch_size, pixels=batch_size * tile**2)

    def maps(self, images: Iterable[Pixels]) -> Iterator[Prediction]:
        """The map of each image (H, W, 3), as soon as its tiles were given to the network."""
        # Twice the batch: where each image has one tile of a size, the next batch fills up while
        # the maps of this one are taken.
        held: Shelf[TiledImage] = Shelf(2 * self.batch_size)
        for pixels in images:
            size = pixels.shape[0] * pixels.shape[1]
            while held.is_full(size):
                yield self._finish(held.take())
            held.put(self._take_up(pixels), size)
            while held and held.first().is_complete:
                yield self._finish(held.take())
        while held:
            yield self._finish(held.take())

    def _take_up(self, pixels: Pixels) -> TiledImage:
        """Cut an image, and run the batches that it fills."""
        tile = max(*pixels.shape[:2], 2 * self._overlap) if self._whole else self._tile
        with self._enough_memory(tile):
            there = torch.from_numpy(pixels)
            if self.device.type == "cuda":
                there = there.pin_memory().to(self.device, non_blocking=True)
            image = TiledImage(there, tile=tile, overlap=self._overlap)
            for batch in self._queue.put(image):
                self._run(batch)
            return image

    def _finish(self, image: TiledImage) -> Prediction:
        """Run what an image waits for, in batches that may not be full."""
        with self._enough_memory(image.tile):
            for batch in self._queue.take(image):
                self._run(batch)
            return Prediction(image.map.clamp_(0, 1))  # shares sum to 1 up to the last bit

    @torch.inference_mode()
    def _run(self, batch: list[Tile]) -> None:
        was_training = self._model.training
        self._model.eval()
        try:
            tiles = torch.stack([tile.pixels() for tile in batch])
            with self._autocast():
                logit: Tensor = self._model(_normalised(tiles))[-1]
            for tile, prob in zip(batch, logit.float().sigmoid()[:, 0], strict=True):
                tile.image.add(tile, prob)
        finally:
            self._model.train(was_training)

    def _autocast(self) -> AbstractContextManager[object]:
        if self._precision == "32-true":
            return nullcontext()  # a validation's own autocast stays in force
        return torch.autocast(self.device.type, torch.bfloat16)

    @contextmanager
    def _enough_memory(self, tile: int) -> Iterator[None]:
        """Too little of it is an error with a remedy."""
        try:
            yield
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            remedy = "leave out whole (--whole)"
            if not self._whole:
                remedy = "lower batch_size (--batch-size) or tile (--tile)"
            raise ConfigError(
                f"memory does not do for {self.batch_size} tiles of {tile} pixels; {remedy}"
            ) from None


class Prediction:
    """A map on its way from the device; any thread may wait for it."""

    def __init__(self, prob: Tensor) -> None:
        self.pixels = prob.numel()
        self._prob = prob.to("cpu", non_blocking=True)  # pinned, where it comes from a CUDA device
        self._arrival: torch.cuda.Event | None = None
        if prob.is_cuda:
            # Blocking: a thread that waits leaves its core to others.
            self._arrival = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._arrival.record(torch.cuda.current_stream(prob.device))

    def result(self) -> Map:
        """The map; wait until it is there."""
        prob: Map = self._prob.numpy()
        if self._arrival is not None:
            self._arrival.synchronize()
            prob = prob.copy()  # pinned memory is scarce, and not given back: it is used again
        if not np.isfinite(prob).all():
            raise DataError(
                "the network's output is no number at some pixels: its weights are broken"
            )
        return prob


class Shelf(Generic[Item]):
    """A queue with room for so many images and pixels, but always for one.

    >>> shelf = Shelf(2, pixels=100)
    >>> shelf.is_full(1000)
    False
    >>> shelf.put("a", 60)
    >>> shelf.is_full(40), shelf.is_full(41)
    (False, True)
    """

    def __init__(self, images: int, pixels: int = HELD_PIXELS) -> None:
        self._items: deque[tuple[Item, int]] = deque()
        self._images, self._room = images, pixels

    def __len__(self) -> int:
        """How many there are."""
        return len(self._items)

    def is_full(self, pixels: int) -> bool:
        """Whether something must be taken before so many pixels may be put."""
        return bool(self._items) and (len(self) >= self._images or pixels > self._room)

    def put(self, item: Item, pixels: int) -> None:
        """Put one more."""
        self._items.append((item, pixels))
        self._room -= pixels

    def first(self) -> Item:
        """The oldest, which stays."""
        return self._items[0][0]

    def take(self) -> Item:
        """The oldest."""
        item, pixels = self._items.popleft()
        self._room += pixels
        return item


def _normalised(tiles: Tensor) -> Tensor:
    """Tiles (N, h, w, 3) as a network takes them."""
    if not tiles.is_cuda:
        return normalise(tiles)
    # It keeps constants for a few sizes, and making them anew waits for the device: as single
    # pixels all tiles have one size.
    return normalise(tiles.view(-1, 1, 1, 3)).view(tiles.shape).permute(0, 3, 1, 2)
