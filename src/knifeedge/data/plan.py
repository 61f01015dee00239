"""Which crop is cut at which step: a pure function of (seed, epoch, index).

Nothing is remembered from one step to the next, so a run goes on from any step without a saved
random state. The numbers are the raw stream of NumPy's counter-based Philox generator, keyed by
(seed, purpose, epoch), which no version of NumPy changes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from knifeedge.data.augment import HALVE_AT, VARIANTS, Box, enlarged, halve

_Ints = npt.NDArray[np.int64]
_ORDER, _CROP = 0, 1


@dataclass(frozen=True)
class CropSettings:
    """How training samples are made; the defaults are the paper's.

    Args:
        crop: Side of the square that is cut out.
        batch_size: Samples a step.
        seed: Of order and crops, 0 or more.
        refresh: Epochs that keep the same crops. 1, a new crop at every visit, is what the paper's
            author ran: there, "refreshed every 5 epochs" only re-seeds the random stream. 5 reads
            the paper's sentence by the letter. The order is new in every epoch.
        halve_at: A side of this many pixels or more is cut in two.
        turns: The eight rotations and flips, or the image as it is.
        noiseless: Each label also as an image; doubles the set.
    """

    crop: int = 320
    batch_size: int = 8
    seed: int = 0
    refresh: int = 1
    halve_at: int = HALVE_AT
    turns: bool = True
    noiseless: bool = True

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        for name in ("crop", "batch_size", "refresh"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")


@dataclass(frozen=True)
class Crops:
    """What to cut: arrays of one length. Rows and columns count after the turn."""

    piece: _Ints
    variant: _Ints
    noiseless: npt.NDArray[np.bool_]
    top: _Ints
    left: _Ints


class CropPlan:
    """The samples of an epoch and their order.

    A sample is a piece, a variant, and whether it is noiseless; there are pieces x 8 x 2.

    Args:
        sizes: (height, width) of each image.
        settings: See `CropSettings`.

    >>> plan = CropPlan([(480, 640), (400, 400)])
    >>> len(plan.pieces), len(plan), plan.steps
    (3, 48, 6)
    >>> plan.batch(epoch=0, step=5)
    array([36, 23,  6, 39, 13, 12,  4, 47])
    """

    def __init__(
        self, sizes: Sequence[tuple[int, int]], settings: CropSettings | None = None
    ) -> None:
        self.settings = settings or CropSettings()
        if not sizes:
            raise ValueError("a plan needs at least one image, got none")
        limit, crop = self.settings.halve_at, self.settings.crop
        self.pieces: list[tuple[int, Box]] = [
            (image, box) for image, size in enumerate(sizes) for box in halve(*size, limit=limit)
        ]
        self.sizes = np.array(
            [enlarged(box.height, box.width, crop=crop) for _, box in self.pieces], np.int64
        )
        self._turns = VARIANTS if self.settings.turns else 1
        self._last: dict[int, tuple[int, npt.NDArray[np.uint64]]] = {}

    def __len__(self) -> int:
        """Samples in an epoch."""
        return len(self.pieces) * self._turns * (2 if self.settings.noiseless else 1)

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return -(-len(self) // self.settings.batch_size)

    def order(self, epoch: int) -> _Ints:
        """The samples of an epoch in the order they are seen."""
        return np.argsort(self._raw(_ORDER, epoch, len(self)), kind="stable")

    def batch(self, epoch: int, step: int) -> _Ints:
        """The samples of one step of an epoch; the last step goes on with the epoch's first ones.

        So every batch is full: a step is compiled and captured for one shape alone.
        """
        if not 0 <= step < self.steps:
            raise ValueError(f"step must be in 0 .. {self.steps - 1}, got {step}")
        size = self.settings.batch_size
        return self.order(epoch).take(range(step * size, (step + 1) * size), mode="wrap")

    def crops(self, epoch: int, samples: Sequence[int] | _Ints) -> Crops:
        """Where each of these samples is cut in an epoch."""
        index = np.asarray(samples, np.int64)
        if index.size and not 0 <= index.min() <= index.max() < len(self):
            raise IndexError(f"samples must be in 0 .. {len(self) - 1}, got {index.tolist()}")
        source, number = np.divmod(index, self._turns)
        noiseless, piece = np.divmod(source, len(self.pieces))
        sizes = self.sizes[piece]
        turned = np.where((number % 2 == 1)[:, None], sizes[:, ::-1], sizes)
        raw = self._raw(_CROP, epoch // self.settings.refresh, 2 * len(self)).reshape(-1, 2)
        room = (turned - self.settings.crop + 1).astype(np.uint64)
        # The high 32 bits scaled to 0 .. room - 1: all integer, so the same everywhere.
        start = ((raw[index] >> np.uint64(32)) * room >> np.uint64(32)).astype(np.int64)
        return Crops(piece, number, noiseless.astype(bool), start[:, 0], start[:, 1])

    def batches(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, _Ints]]:
        """(epoch, samples) of each step of a run, counted from its beginning, without end."""
        step = start
        while stop is None or step < stop:
            epoch, part = divmod(step, self.steps)
            yield epoch, self.batch(epoch, part)
            step += 1

    def _raw(self, purpose: int, epoch: int, count: int) -> npt.NDArray[np.uint64]:
        """The numbers of an epoch; the last ones are kept, as the next step needs them again."""
        if epoch < 0:
            raise ValueError(f"epoch must be >= 0, got {epoch}")
        if self._last.get(purpose, (-1,))[0] != epoch:
            key = np.random.SeedSequence([self.settings.seed, purpose, epoch])
            self._last[purpose] = epoch, np.random.Philox(key).random_raw(count)
        return self._last[purpose][1]
