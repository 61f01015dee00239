"""Training batches: from memory, on the device, or item by item for a DataLoader.

`CropPool` keeps every piece once, as uint8, on the device, and cuts a whole batch there: each turn,
flip and crop is a start and two strides into one long row of pixels, so a batch is one gather and
one normalisation. `CropDataset` makes the same samples, bit by bit, with NumPy's rot90 and slices,
for sets too large for memory.

A batch is (image, target), or (image, target, mask) where the set has a mask. image: (N, 3, H, W)
float32, normalised by ImageNet's mean and deviation, channels-last. target: (N, 1, H, W) in [0,1].
mask: (N, 1, H, W) bool.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from knifeedge.data.augment import Piece, cut, variant
from knifeedge.data.plan import CropPlan, Crops, CropSettings
from knifeedge.data.samples import EdgeSet

MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)

_REPEAT = 0x01010101  # times a byte: that byte four times


def normalise(pixels: Tensor) -> Tensor:
    """RGB bytes as a network takes them: (v / 255 - mean) / deviation, channels-last.

    Args:
        pixels: (N, H, W, 3) uint8.

    Returns:
        (N, 3, H, W) float32.

    >>> normalise(torch.zeros(1, 2, 2, 3, dtype=torch.uint8))[0, :, 0, 0]
    tensor([-2.1179, -2.0357, -1.8044])
    """
    return _standardise(pixels.float())


class CropPool:
    """A whole training set in memory, cut into batches on its device.

    Args:
        dataset: Read once, completely; 4 bytes a pixel stay (5 with a mask, or with soft labels).
        settings: See `CropSettings`.
        device: Where the pixels stay and the batches are made.

    >>> from knifeedge.data.synthetic import SyntheticSet
    >>> pool = CropPool(SyntheticSet(count=2, size=64), CropSettings(crop=32, batch_size=4))
    >>> len(pool), pool.steps
    (32, 8)
    >>> image, target = pool.batch(epoch=0, step=3)
    >>> image.shape, target.shape
    (torch.Size([4, 3, 32, 32]), torch.Size([4, 1, 32, 32]))
    """

    def __init__(
        self,
        dataset: EdgeSet,
        settings: CropSettings | None = None,
        *,
        device: torch.device | str = "cpu",
    ) -> None:
        self.settings = settings or CropSettings()
        samples = list(dataset)
        self.plan = CropPlan([s.label.shape for s in samples], self.settings)
        crop = self.settings.crop
        pieces = [cut(samples[image], box, crop=crop) for image, box in self.plan.pieces]
        self.device = torch.device(device)
        self._words = self._store([_word(piece) for piece in pieces])
        # Hard labels are their own noiseless data; only soft ones need the plane of edges.
        soft = any(not np.array_equal(piece.label, piece.edges) for piece in pieces)
        self._edges = self._store([piece.edges for piece in pieces]) if soft else None
        masks = [_mask(piece) for piece in pieces] if dataset.has_mask else None
        self._masks = None if masks is None else self._store(masks)
        self.has_edges = any(bool(piece.label.any()) for piece in pieces)
        self._starts = np.cumsum([0, *(piece.label.size for piece in pieces[:-1])])
        side = torch.arange(crop, device=self.device)
        self._rows, self._columns = side.view(1, crop, 1), side.view(1, 1, crop)

    def __len__(self) -> int:
        """Samples in an epoch."""
        return len(self.plan)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return self.plan.steps

    def batch(self, epoch: int, step: int) -> tuple[Tensor, ...]:
        """The batch of one step of an epoch."""
        return self.samples(epoch, self.plan.batch(epoch, step))

    def epoch(self, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, ...]]:
        """The batches of an epoch, from any step on."""
        return (self.batch(epoch, step) for step in range(start, self.steps))

    def samples(
        self, epoch: int, samples: Sequence[int] | npt.NDArray[np.int64]
    ) -> tuple[Tensor, ...]:
        """These samples of an epoch as one batch; a share of a batch on each of several devices."""
        crops = self.plan.crops(epoch, samples)
        first, down, right = (self._to_device(part) for part in self._strides(crops))
        index = first + down * self._rows + right * self._columns
        words = self._words.index_select(0, index.view(-1)).view(index.shape)
        flags = np.flatnonzero(crops.noiseless)
        if flags.size:
            chosen = torch.from_numpy(flags).to(self.device, non_blocking=True)
            edges = words[chosen] >> 24 if self._edges is None else self._edges[index[chosen]]
            words[chosen] = (edges.int() & 255) * _REPEAT
        values = words.view(torch.uint8).view(*words.shape, 4).float()
        image = _standardise(values[..., :3])
        target = _of_white(values[..., 3]).unsqueeze(1)
        if self._masks is None:
            return image, target
        return image, target, self._masks[index].bool().unsqueeze(1)

    def _store(self, planes: list[npt.NDArray[Any]]) -> Tensor:
        flat = np.concatenate([plane.reshape(-1) for plane in planes])
        return torch.from_numpy(flat).to(self.device)

    def _to_device(self, numbers: npt.NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(numbers).to(self.device, non_blocking=True).view(-1, 1, 1)

    def _strides(self, crops: Crops) -> tuple[npt.NDArray[np.int64], ...]:
        """Where each crop starts in the row of pixels, and its steps down and to the right.

        With rot90 r times, pixel (i, j) comes from (i, j), (j, W-1-i), (H-1-i, W-1-j), (H-1-j, i).
        """
        height, width = self.plan.sizes[crops.piece].T
        one = np.ones_like(width)
        turn = crops.variant % 4
        down = np.choose(turn, [width, -one, -width, one])
        right = np.choose(turn, [one, width, -one, -width])
        corner = np.choose(turn, [0 * one, width - 1, height * width - 1, (height - 1) * width])
        flipped = crops.variant >= 4
        turned_width = np.where(turn % 2 == 1, height, width)
        corner = np.where(flipped, corner + right * (turned_width - 1), corner)
        right = np.where(flipped, -right, right)
        first = self._starts[crops.piece] + corner + down * crops.top + right * crops.left
        return first, down, right


class CropDataset(Dataset[tuple[Tensor, ...]]):
    """The samples of a `CropPool` one by one, each file read when it is visited.

    Args:
        dataset: Its headers are read now, its pixels when they are asked for.
        settings: See `CropSettings`.

    Give it to a DataLoader with its own sampler; worker processes may live for the whole run:

    >>> from knifeedge.data.synthetic import SyntheticSet
    >>> items = CropDataset(SyntheticSet(count=2, size=64), CropSettings(crop=32, batch_size=4))
    >>> sampler = items.sampler(start=3, stop=4)
    >>> loader = torch.utils.data.DataLoader(items, batch_sampler=sampler)
    >>> [image.shape for image, target in loader]
    [torch.Size([4, 3, 32, 32])]
    """

    def __init__(self, dataset: EdgeSet, settings: CropSettings | None = None) -> None:
        self.dataset, self.settings = dataset, settings or CropSettings()
        self.plan = CropPlan([dataset.size(i) for i in range(len(dataset))], self.settings)

    def __len__(self) -> int:
        """Samples in an epoch."""
        return len(self.plan)

    def __getitem__(self, key: tuple[int, int] | int) -> tuple[Tensor, ...]:
        """The sample (epoch, number); a number alone is of epoch 0."""
        epoch, number = key if isinstance(key, tuple) else (0, key)
        crops = self.plan.crops(epoch, [number])
        image, box = self.plan.pieces[int(crops.piece[0])]
        crop, top, left = self.settings.crop, int(crops.top[0]), int(crops.left[0])
        part = np.s_[top : top + crop, left : left + crop]
        piece = cut(self.dataset[image], box, crop=crop)
        planes = [piece.image, piece.label]
        if crops.noiseless[0]:
            planes = [np.repeat(piece.edges[..., None], 3, axis=2), piece.edges]
        if self.dataset.has_mask:
            planes.append(_mask(piece))
        pixels, label, *mask = (
            torch.from_numpy(np.ascontiguousarray(variant(plane, int(crops.variant[0]))[part]))
            for plane in planes
        )
        made = normalise(pixels[None])[0], _of_white(label.float())[None]
        return (*made, *(plane.bool()[None] for plane in mask))

    def sampler(self, start: int = 0, stop: int | None = None) -> "CropSampler":
        """The batches of a run from step `start` on, for a DataLoader's `batch_sampler`."""
        return CropSampler(self.plan, start, stop)


class CropSampler(Sampler[list[tuple[int, int]]]):
    """The keys (epoch, number) of each step of a run, counted from its beginning.

    Args:
        plan: Of the data set.
        start: First step.
        stop: Step after the last; None goes on without end.

    >>> sampler = CropSampler(CropPlan([(400, 400)]), start=2, stop=3)
    >>> len(next(iter(sampler)))
    8
    """

    def __init__(self, plan: CropPlan, start: int = 0, stop: int | None = None) -> None:
        self.plan, self.start, self.stop = plan, start, stop

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """One list a step."""
        for epoch, samples in self.plan.batches(self.start, self.stop):
            yield [(epoch, int(sample)) for sample in samples]


def _standardise(values: Tensor) -> Tensor:
    scale, shift = _constants(values.shape[1], values.shape[2], values.device)
    return (values * scale).sub_(shift).permute(0, 3, 1, 2)


def _of_white(values: Tensor) -> Tensor:
    """The values / 255, to the same bit on every device: CUDA divides by a number only roughly."""
    return values / values.new_full((), 255)


def _word(piece: Piece) -> npt.NDArray[np.int32]:
    """Red, green, blue and label of each pixel as the bytes of one number: one gather for all."""
    return np.dstack([piece.image, piece.label]).view(np.int32)


def _mask(piece: Piece) -> npt.NDArray[np.uint8]:
    if piece.mask is None:
        return np.ones(piece.label.shape, np.uint8)
    return piece.mask.astype(np.uint8)


@lru_cache(maxsize=4)
def _constants(height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Scale and shift at full size: a last axis of 3 alone would be broadcast four times slower."""
    scale = torch.tensor([1 / (255 * d) for d in DEVIATION], device=device)
    shift = torch.tensor([m / d for m, d in zip(MEAN, DEVIATION, strict=True)], device=device)
    shape = (height, width, 3)
    return scale.expand(shape).contiguous(), shift.expand(shape).contiguous()
