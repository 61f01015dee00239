"""The images to train and test on: both sets, apart from each other, and mixed into batches."""

from argparse import Namespace
from collections.abc import Iterable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from knifeedge.data import CropPool, CropSettings, load_dataset
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.errors import DataError

SETS = ("BSDS500", "UDED")
SPLITS = ("pretrain", "validation", "train", "test")
THUMBNAIL, SAME = 16, 0.99  # its side, and the correlation above which pictures are the same

Sets = dict[str, dict[str, EdgeSet]]


class Part(EdgeSet):
    """Some images of a set, by their numbers."""

    def __init__(self, dataset: EdgeSet, numbers: Iterable[int]) -> None:
        self.dataset, self.numbers = dataset, tuple(numbers)
        self.name, self.has_mask = dataset.name, dataset.has_mask
        self.names = tuple(dataset.names[number] for number in self.numbers)

    def __getitem__(self, index: int) -> Sample:
        return self.dataset[self.numbers[index]]

    def size(self, index: int) -> tuple[int, int]:
        return self.dataset.size(self.numbers[index])


def open_sets(given: Namespace) -> Sets:
    """Every split of both sets, without what must not be in them."""
    sets: Sets = {}
    for name in SETS:
        root = given.root and given.root / name
        learnt = {"annotator": given.annotator} if name == "BSDS500" else {}
        sets[name] = {
            split: load_dataset(
                name, split, root=root, **(learnt if split in ("pretrain", "train") else {})
            )
            for split in SPLITS
        }
        if given.images:
            for split, images in sets[name].items():
                sets[name][split] = Part(images, range(min(given.images, len(images))))
    return separated(sets)


def separated(sets: Sets) -> Sets:
    """Refuse test images among those to train on; leave out validation images to pre-train on.

    Raises:
        DataError: A picture is in a training and a test set.
    """
    seen = {name: {k: thumbnails(v) for k, v in splits.items()} for name, splits in sets.items()}
    for name, splits in sets.items():
        known = set()
        for where, other in sets.items():
            for i, j in same_pictures(seen[name]["train"], seen[where]["test"]):
                raise DataError(
                    f"{splits['train'].names[i]} of {name} to train on is the picture"
                    f" {other['test'].names[j]} of {where} to test on"
                )
            known |= {
                i for i, _ in same_pictures(seen[name]["pretrain"], seen[where]["validation"])
            }
        kept = [i for i in range(len(splits["pretrain"])) if i not in known]
        splits["pretrain"] = Part(splits["pretrain"], kept)
    return sets


def thumbnails(dataset: EdgeSet) -> np.ndarray:
    """Each image as a small grey one: (N, 16, 16), of mean 0 and length 1."""
    side = (THUMBNAIL, THUMBNAIL)
    small = [
        np.asarray(Image.fromarray(s.image).convert("L").resize(side, Image.Resampling.BOX))
        for s in dataset
    ]
    values = np.stack(small).astype(np.float64)
    values -= values.mean(axis=(1, 2), keepdims=True)
    return values / np.maximum(np.sqrt((values**2).sum(axis=(1, 2), keepdims=True)), 1e-9)


def same_pictures(left: np.ndarray, right: np.ndarray) -> list[tuple[int, int]]:
    """Of two sets' thumbnails the numbers of those that are one picture, turned or not."""
    alike = np.zeros((len(left), len(right)), bool)
    for turn in range(8):
        turned = np.rot90(right, turn % 4, axes=(1, 2))
        turned = turned[:, :, ::-1] if turn >= 4 else turned
        alike |= np.einsum("ihw,jhw->ij", left, turned) > SAME
    return [(int(i), int(j)) for i, j in np.argwhere(alike)]


def shares(batch_size: int, share: float) -> tuple[int, int]:
    """How many samples of a batch are of each set, with about this share of the second."""
    second = min(max(round(batch_size * share), 1), batch_size - 1)
    return batch_size - second, second


class Mixture:
    """Batches with so many samples of each set; a set that is over begins again."""

    def __init__(self, sets: Iterable[EdgeSet], given: Namespace, device: torch.device) -> None:
        sizes = shares(given.batch_size, given.share)
        self._pools = [
            CropPool(
                dataset,
                CropSettings(
                    crop=given.crop,
                    batch_size=size,
                    seed=given.seed,
                    noiseless=given.noiseless,
                ),
                device=device,
            )
            for dataset, size in zip(sets, sizes, strict=True)
        ]
        self.samples = sum(len(pool) for pool in self._pools)
        self._seed, self._jitter = given.seed, given.jitter
        self._draws = torch.Generator(device)

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Image and target of a step."""
        parts = [pool.batch(*divmod(step, pool.steps)) for pool in self._pools]
        image, target = (torch.cat(planes) for planes in zip(*parts, strict=True))
        if self._jitter:
            self._draws.manual_seed(self._seed * 1_000_003 + step)
            image = jittered(image, self._jitter, self._draws)
        return image, target


def jittered(image: Tensor, strength: float, draws: torch.Generator) -> Tensor:
    """Each image in another light, with other colours and some noise: its edges stay.

    Args:
        image: (N, 3, H, W), normalised.
        strength: 0 leaves it as it is.
        draws: On the same device.
    """

    def draw(channels: int) -> Tensor:
        shape = (len(image), channels, 1, 1)
        return strength * torch.rand(shape, generator=draws, device=image.device)

    signed = [2 * draw(channels) - strength for channels in (1, 3, 3)]
    image = image * (signed[0] + signed[1] / 2).exp() + signed[2] / 2
    image = image.lerp(image.mean(dim=1, keepdim=True), draw(1))
    noise = torch.empty_like(image).normal_(generator=draws)
    return image + noise * draw(1) / 4
