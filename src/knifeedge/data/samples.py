"""What every data set hands out."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Sample:
    """One image with its label.

    Args:
        name: Unique in its data set.
        image: (H, W, 3) uint8, RGB.
        label: (H, W) uint8, 255 on an edge; values between are soft.
        mask: (H, W), False where a pixel is to be ignored; None if all count.
    """

    name: str
    image: npt.NDArray[np.uint8]
    label: npt.NDArray[np.uint8]
    mask: npt.NDArray[np.bool_] | None = None


class EdgeSet(ABC):
    """A sequence of samples; each is read or made when it is asked for."""

    name: str
    names: tuple[str, ...]
    has_mask: bool = False

    def __len__(self) -> int:
        """How many samples there are."""
        return len(self.names)

    def __iter__(self) -> Iterator[Sample]:
        """Every sample in turn."""
        return (self[i] for i in range(len(self)))

    @abstractmethod
    def __getitem__(self, index: int) -> Sample:
        """The sample of that number."""

    @abstractmethod
    def size(self, index: int) -> tuple[int, int]:
        """Height and width of that sample, without reading its pixels."""
