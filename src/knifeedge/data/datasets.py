"""The data sets by name: BSDS500, BRIND, UDED, BIPED2, an own folder, and the synthetic one."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import numpy.typing as npt

from knifeedge.data.annotations import (
    Annotator,
    check_annotator,
    choose_annotator,
    read_annotations,
)
from knifeedge.data.images import image_size, ones_to_white, read_image
from knifeedge.data.layouts import LAYOUTS, Layout, find_root, own_folders
from knifeedge.data.pairing import Pair, Pairing, choose_pairs, find_pairs
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.data.splits import (
    TEST_SHARE,
    VALIDATION_SHARE,
    fold_splits,
    load_splits,
    seeded_splits,
)
from knifeedge.errors import ConfigError, DataError, closest
from knifeedge.typed import annotations, check_options, checked

# Edges are thin: a label with more than this share of white is most likely black on white.
MOSTLY_WHITE = 0.5
DATA_SETS = (*LAYOUTS, "folder", "synthetic")


@dataclass(frozen=True)
class LabelRule:
    """How the grey values of a label file become a label.

    Pixels to be ignored are told by the value that is saved. Labels of 0 and 1 become 0 and 255
    then, judged by the pixels that are left; last they are inverted and made hard.

    Args:
        annotator: Of several: 0 is the first; "merged" is an edge where any marked one.
        threshold: Share of white above which a pixel is an edge, in [0, 1); None keeps soft values.
        ignore: Grey value (0 to 255) of pixels that are neither; they leave the loss by the mask.
        invert: The labels are black on white.
    """

    annotator: Annotator = 0
    threshold: float | None = None
    ignore: int | None = None
    invert: bool = False

    def __post_init__(self) -> None:
        """Refuse values of another type or out of range."""
        for name, kind in get_type_hints(LabelRule).items():
            checked(name, getattr(self, name), kind)
        check_annotator(self.annotator)
        if self.threshold is not None and not 0 <= self.threshold < 1:
            raise ValueError(f"threshold must be in [0, 1) or None, got {self.threshold}")
        if self.ignore is not None and not 0 <= self.ignore <= 255:
            raise ValueError(f"ignore must be a grey value, 0 to 255, or None, got {self.ignore}")

    def apply(
        self, label: npt.NDArray[np.uint8]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_] | None]:
        """The label under this rule, and the mask of the pixels that count (None: all)."""
        mask = None if self.ignore is None else label != self.ignore
        label = ones_to_white(label, mask)
        if self.invert:
            label = 255 - label
        if self.threshold is not None:
            label = np.where(label > self.threshold * 255, np.uint8(255), np.uint8(0))
        if mask is not None:
            label = np.where(mask, label, np.uint8(0))
        return label, mask


class FileSet(EdgeSet):
    """Pairs of files.

    Args:
        name: For messages.
        pairs: From `pairing.find_pairs`.
        rule: How labels are read.
    """

    def __init__(self, name: str, pairs: Sequence[Pair], rule: LabelRule | None = None) -> None:
        self.name, self.pairs, self.rule = name, tuple(pairs), rule or LabelRule()
        self.names = tuple(pair.name for pair in self.pairs)
        self.has_mask = self.rule.ignore is not None

    def __getitem__(self, index: int) -> Sample:
        """Read one pair."""
        pair = self.pairs[index]
        image = read_image(pair.image)
        label, mask = self._read_label(pair)
        if label.shape != image.shape[:2]:
            raise DataError(
                f"{pair.image} is {_size(image)} but its label {pair.labels[0]} is {_size(label)}"
                " (width x height); they must be of one size"
            )
        warn_if_inverted(label, str(pair.labels[0]))
        return Sample(pair.name, image, label, mask)

    def size(self, index: int) -> tuple[int, int]:
        """See `EdgeSet.size`."""
        return image_size(self.pairs[index].image)

    def _read_label(self, pair: Pair) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_] | None]:
        """The label of a pair and its mask; of several files it is an edge where any has one."""
        files = [(path, read_annotations(path)) for path in pair.labels]
        read = [
            self.rule.apply(choose_annotator(found, self.rule.annotator, str(path)))
            for path, found in files
        ]
        if len({label.shape for label, _ in read}) > 1:
            where = ", ".join(map(str, pair.labels))
            raise DataError(f"labels of {pair.name} differ in size: {where}")
        masks = [mask for _, mask in read if mask is not None]
        label: npt.NDArray[np.uint8] = np.maximum.reduce([label for label, _ in read])
        return label, np.logical_or.reduce(masks) if masks else None


def load_dataset(
    name: str, split: str = "train", *, root: str | Path | None = None, **options: Any
) -> EdgeSet:
    """Open a data set by name.

    Args:
        name: BSDS500, BRIND, UDED, BIPED2, folder or synthetic, in any case.
        split: train, pretrain, validation, test or all.
        root: Its folder; else $KNIFEEDGE_DATA/NAME, else ./data/NAME. See `layouts`.
        options: The public sets: `annotator`, and `fold` (0 to 3) for the splits of a fold of
            cross-validation, see `splits.fold_splits`. folder: see `open_folder`. synthetic:
            `count`, `size`, `seed`, see `synthetic.SyntheticSet`.

    Returns:
        The samples of that split, read as they are asked for.

    Raises:
        ConfigError: No such data set, split or option, or an option of another type; the known
            ones are named.
        DataError: Folders or files are missing; all of them are named.

    >>> scenes = load_dataset("synthetic", "test", count=8, size=64)
    >>> len(scenes), scenes[0].image.shape, scenes[0].label.shape
    (2, (64, 64, 3), (64, 64))
    """
    openers: dict[str, Callable[..., EdgeSet]] = {"folder": open_folder, "synthetic": _synthetic}
    name = proper_name(name)
    check_options(name, options, data_options(name))
    if name in LAYOUTS:
        return _open_public(LAYOUTS[name], split, root, **options)
    return openers[name](split, root=root, **options)


def proper_name(name: str) -> str:
    """A data set's name, given in any case.

    >>> proper_name("uded")
    'UDED'
    """
    known = {proper.lower(): proper for proper in DATA_SETS}
    if str(name).lower() not in known:
        raise ConfigError(
            f"there is no data set {name!r}{closest(name, DATA_SETS)};"
            f" there are {', '.join(DATA_SETS)}"
        )
    return known[name.lower()]


def data_options(name: str) -> dict[str, Any]:
    """The options that a data set has, and what each may be.

    >>> list(data_options("synthetic"))
    ['count', 'size', 'seed']
    """
    from knifeedge.data.synthetic import SyntheticSet

    takers = {"folder": (open_folder, LabelRule), "synthetic": (SyntheticSet,)}
    known = annotations(*takers.get(name, (_open_public,)))
    elsewhere = ("layout", "split", "root", "difficulty")  # set elsewhere, or no plain values
    return {option: kind for option, kind in known.items() if option not in elsewhere}


def open_folder(
    split: str = "all",
    *,
    root: str | Path | None = None,
    images: str | Path | None = None,
    labels: str | Path | None = None,
    seed: int = 0,
    test_share: float = TEST_SHARE,
    validation_share: float = VALIDATION_SHARE,
    **rule: Any,
) -> FileSet:
    """Open an own folder of images and one of labels, paired by stem.

    Args:
        split: all, or train, pretrain, validation or test of a seeded division.
        root: Folder that holds both: images (or imgs) and labels (or gt, edges, masks).
        images: Instead: the image folder.
        labels: Instead: the label folder.
        seed: Of the division.
        test_share: Part of all images that tests.
        validation_share: Part of the training images that validates.
        rule: `annotator`, `threshold`, `ignore`, `invert`: see `LabelRule`.

    Returns:
        The samples.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for part in ("images", "labels"):
    ...     (folder / part).mkdir()
    ...     Image.new("L", (4, 3)).save(folder / part / "a.png")
    >>> open_folder(root=folder, threshold=0.5).names
    ('a',)
    """
    picture_folder, label_folder = own_folders(root, images=images, labels=labels)
    found = find_pairs([picture_folder], [label_folder])
    where = f"images in {picture_folder}, labels in {label_folder}"
    names = tuple(sorted({*found.problems, *(pair.name for pair in found.pairs)}))
    if not names:
        raise DataError(f"there is nothing to read: {where}")
    if split != "all":
        divided = seeded_splits(
            names, seed=seed, test_share=test_share, validation_share=validation_share
        )
        choose_pairs(found, names, where=where)  # a file left out would move all the others
        names = divided.names(split)
    return FileSet("folder", choose_pairs(found, names, where=where), LabelRule(**rule))


def find_public(layout: Layout, root: str | Path | None = None) -> tuple[Path, Pairing]:
    """The folder of a public data set and the pairs in it, of all splits.

    >>> find_public(LAYOUTS["UDED"], "nowhere")
    Traceback (most recent call last):
    knifeedge.errors.DataError: UDED is not in nowhere; ...
    """
    folder = find_root(layout.name, root)
    images, labels = layout.folders(folder)
    for found, what, parts in (
        (images, "images", layout.images),
        (labels, "labels", layout.labels),
    ):
        if not found:
            raise DataError(
                f"{folder} has no {what} of {layout.name}: none of {', '.join(parts)} is there;"
                f" get it with knifeedge data download {layout.name}"
            )
    return folder, find_pairs(images, labels, several=layout.several)


def warn_if_inverted(label: npt.NDArray[np.uint8], where: str) -> None:
    """Warn of a label that is mostly white: no edges, or black edges on white.

    >>> warn_if_inverted(np.zeros((2, 2), np.uint8), "a.png")
    """
    share = float(np.count_nonzero(label > 127)) / max(label.size, 1)
    if share > MOSTLY_WHITE:
        warnings.warn(
            f"label {where} has {share:.0%} of its pixels set, where edges are thin: is it"
            " inverted, black on white? Read it with invert=True (--data-option invert=true), or"
            " mend the file",
            stacklevel=2,
        )


def _open_public(
    layout: Layout,
    split: str,
    root: str | Path | None,
    annotator: Annotator | None = None,
    fold: int | None = None,
) -> FileSet:
    rule = LabelRule(annotator=layout.annotator if annotator is None else annotator)
    splits = load_splits(layout.splits)
    if fold is not None:
        splits = fold_splits(splits, fold, left_out=layout.left_out)
    wanted = None if split == "all" else splits.names(split)
    folder, found = find_public(layout, root)
    if wanted is None:
        wanted = tuple(pair.name for pair in found.pairs if pair.name not in layout.left_out)
    where = f"{layout.name} in {folder}"
    return FileSet(layout.name, choose_pairs(found, wanted, where=where), rule)


def _synthetic(split: str, *, root: str | Path | None = None, **options: Any) -> EdgeSet:
    from knifeedge.data.synthetic import SyntheticSet

    if root is not None:
        raise ConfigError("the synthetic set has no folder; leave root (--root) out")
    return SyntheticSet(split, **options)


def _size(array: npt.NDArray[np.uint8]) -> str:
    return f"{array.shape[1]} x {array.shape[0]}"
