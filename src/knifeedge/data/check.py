"""A data set looked through: every problem at once, and what its labels are like."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from knifeedge.data.annotations import read_annotations
from knifeedge.data.datasets import MOSTLY_WHITE, LabelRule, find_public
from knifeedge.data.images import image_size, ones_to_white, picture_mode, read_image
from knifeedge.data.layouts import LAYOUTS, detect_layout, own_folders
from knifeedge.data.pairing import Pair, Pairing, find_pairs
from knifeedge.errors import DataError

_PLAIN_IMAGES = ("RGB", "L", "P", "1")
_PLAIN_LABELS = ("L", "1", "I;16", "I")
# Grey values up to this, and perhaps white, are numbers of classes rather than soft edges.
MOST_CLASSES = 8
REMARKS = ("mode", "values", "empty")


@dataclass(frozen=True)
class Problem:
    """What is wrong with one name.

    Kinds: unpaired, unreadable, size, empty, inverted, and those of `REMARKS`.
    """

    name: str
    kind: str
    message: str


@dataclass(frozen=True)
class Report:
    """What was found in a data set.

    Args:
        layout: The public data set whose folders these are, or folder.
        pairs: Images with a label.
        problems: In the order of the names; those of `REMARKS` are none to keep a file from use.
        edge_share: Smallest, middle and largest share of edge pixels among the labels.
        soft: Labels with values between 0 and 255.
        annotators: How many labels have how many annotators.
        sizes: Smallest and largest (height, width) by area.
    """

    layout: str
    pairs: int
    problems: tuple[Problem, ...]
    edge_share: tuple[float, float, float] | None
    soft: int
    annotators: dict[int, int]
    sizes: tuple[tuple[int, int], tuple[int, int]] | None

    @property
    def usable(self) -> bool:
        """Nothing but remarks, and an edge somewhere."""
        kinds = [problem.kind for problem in self.problems]
        labels = sum(number * count for number, count in self.annotators.items())
        return kinds.count("empty") < labels and all(kind in REMARKS for kind in kinds)


@dataclass
class _Tally:
    shares: list[float] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    soft: int = 0
    annotators: Counter[int] = field(default_factory=Counter)


def check_folder(
    root: str | Path | None = None,
    *,
    images: str | Path | None = None,
    labels: str | Path | None = None,
    rule: LabelRule | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Look through a data set: a public one in its own folders, or images and labels.

    Args:
        root: Folder of BSDS500, BRIND, UDED or BIPED2, or one with images and labels in it.
        images: Instead: the image folder.
        labels: Instead: the label folder.
        rule: How labels are to be read.
        progress: Called with (done, all).

    Returns:
        Every problem, and the labels' statistics.

    Raises:
        DataError: There are no folders to look through.

    >>> import tempfile
    >>> from PIL import Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for part, size in (("images", (4, 3)), ("labels", (4, 4))):
    ...     (folder / part).mkdir()
    ...     Image.new("L", size).save(folder / part / "a.png")
    >>> [(p.kind, p.message) for p in check_folder(folder).problems]
    [('empty', 'label a.png has no edge'), ('size', 'image a.png is 4 x 3, its label 4 x 4')]
    """
    layout, found = _find(root, images, labels)
    problems = [Problem(name, "unpaired", text) for name, text in found.problems.items()]
    tally = _Tally()
    for done, pair in enumerate(found.pairs, start=1):
        problems += _check_pair(pair, rule or LabelRule(), tally)
        if progress is not None:
            progress(done, len(found.pairs))
    shares = np.array(tally.shares)
    by_area = sorted(tally.sizes, key=lambda size: (size[0] * size[1], size))
    return Report(
        layout=layout,
        pairs=len(found.pairs),
        problems=tuple(sorted(problems, key=lambda p: (p.name, p.kind))),
        edge_share=_three(shares) if shares.size else None,
        soft=tally.soft,
        annotators=dict(sorted(tally.annotators.items())),
        sizes=(by_area[0], by_area[-1]) if by_area else None,
    )


def _find(
    root: str | Path | None, images: str | Path | None, labels: str | Path | None
) -> tuple[str, Pairing]:
    if root is not None and images is None and labels is None:
        if not Path(root).is_dir():
            raise DataError(
                f"there is no folder {root}; give one with images and labels in it, or the folder"
                f" of {', '.join(LAYOUTS)}"
            )
        public = detect_layout(root)
        if public is not None:
            return public.name, find_public(public, root)[1]
    folders = own_folders(root, images=images, labels=labels)
    return "folder", find_pairs([folders[0]], [folders[1]])


def _check_pair(pair: Pair, rule: LabelRule, tally: _Tally) -> Iterator[Problem]:
    image = _image_size(pair)
    if isinstance(image, Problem):
        yield image
    elif picture_mode(pair.image) not in _PLAIN_IMAGES:
        mode = picture_mode(pair.image)
        yield Problem(pair.name, "mode", f"image {pair.image.name} is {mode}; it is read as RGB")
    for path in pair.labels:
        try:
            annotations = read_annotations(path)
        except DataError as error:
            yield Problem(pair.name, "unreadable", str(error))
            continue
        tally.annotators[len(annotations)] += 1
        size = annotations[0].shape
        if not isinstance(image, Problem):
            tally.sizes.append(image)
            if size != image:
                yield Problem(
                    pair.name,
                    "size",
                    f"image {pair.image.name} is {image[1]} x {image[0]},"
                    f" its label {size[1]} x {size[0]}",
                )
        if path.suffix.lower() != ".mat" and picture_mode(path) not in _PLAIN_LABELS:
            text = f"label {path.name} is {picture_mode(path)}; it is read as grey"
            yield Problem(pair.name, "mode", text)
        yield from _check_annotations(pair.name, path, annotations, rule, tally)


def _image_size(pair: Pair) -> tuple[int, int] | Problem:
    """The size of the image, which is decoded to see that it can be."""
    try:
        read_image(pair.image)
        return image_size(pair.image)
    except DataError as error:
        return Problem(pair.name, "unreadable", str(error))


def _check_annotations(
    name: str,
    path: Path,
    annotations: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]],
    rule: LabelRule,
    tally: _Tally,
) -> Iterator[Problem]:
    for number, grey in enumerate(annotations):
        which = f"label {path.name}" + (f", annotator {number}," if len(annotations) > 1 else "")
        label, mask = rule.apply(grey)
        share = float(np.count_nonzero(label > 127)) / label.size
        tally.shares.append(share)
        tally.soft += bool(np.any((label > 0) & (label < 255)))
        if share > MOSTLY_WHITE:
            text = (
                f"{which} has {share:.0%} of its pixels set: inverted, black on white? It is read"
                " with --data-option invert=true"
            )
            yield Problem(name, "inverted", text)
        elif not label.any():
            yield Problem(name, "empty", f"{which} has no edge")
        values = ones_to_white(grey if mask is None else grey * mask)
        most = values[values < 255].max(initial=0)
        if 0 < most <= MOST_CLASSES:
            white = " and 255" if (values == 255).any() else ""
            text = (
                f"{which} has no grey values but 0 to {most}{white}: are these classes? An edge is"
                " 255, or 1 beside 0; other values are told by ignore"
            )
            yield Problem(name, "values", text)


def _three(shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[float, float, float]:
    return float(shares.min()), float(np.median(shares)), float(shares.max())
