"""The pictures of a report: as many of the runs' gallery images as fit into the page.

An image comes with its label, each loss's map, and what the map hits, adds and misses at the fixed
threshold. Where there is room it also comes with the classes of its pixels at all thresholds, which
the explorer plays. Both are compared with the recorded counts: a map that does not belong to the
scores is left out, with the reason.
"""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from knifeedge.errors import DataError
from knifeedge.metrics.counts import Array
from knifeedge.metrics.curves import Counts, nearest_threshold, precision_recall_f
from knifeedge.metrics.inputs import Image as Pair, Reader
from knifeedge.metrics.matching import Mask
from knifeedge.metrics.pictures import PALETTE, match_classes
from knifeedge.metrics.scores import EdgeScores
from knifeedge.report.classes import judge
from knifeedge.report.records import Contents, Fault, Outcome, ProtocolRun, Scored

LONGEST = 480  # pixels of a picture's longer side in the gallery; the explorer has all of them
JPEG_QUALITY = 88
# What files that do not fit together can raise, such as a tolerance too wide for the image.
_DAMAGE = (DataError, ValueError, OSError)


@dataclass(frozen=True)
class Judged:
    """One map under one protocol: its counts at all thresholds, and the packed classes."""

    counts: Counts
    packed: str

    @property
    def bytes(self) -> int:
        """About what it adds to the page: three counts a threshold, of up to seven digits."""
        return len(self.packed) + 99 * 3 * 8 + 200


@dataclass(frozen=True)
class MapPicture:
    """One loss's map, and its hits, false alarms and misses at the fixed threshold."""

    loss: str
    map: str
    match: str
    threshold: float
    f: float


@dataclass(frozen=True)
class GalleryImage:
    """One test image; pictures are data addresses, `judged` is by protocol and loss."""

    name: str
    width: int
    height: int
    image: str
    label: str
    maps: tuple[MapPicture, ...]
    judged: dict[tuple[str, str], Judged] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """About what its pictures add to the page, each with its markup."""
        pictures = [self.image, self.label, *(p for m in self.maps for p in (m.map, m.match))]
        return sum(len(picture) + len(self.name) * 6 + 400 for picture in pictures)


@dataclass
class Gallery:
    """The images of one run that fit, how many more there are, and how many cannot be explored."""

    images: list[GalleryImage] = field(default_factory=list)
    left_out: int = 0
    unexplored: int = 0


def build_galleries(
    contents: Contents,
    budget: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[Gallery]:
    """The galleries of all runs: first the pictures, then what the explorer needs, while they fit.

    Room is given in turns: the first image of each run, then the second of each.

    Args:
        contents: The runs; what is wrong with their pictures is added to the faults.
        budget: Bytes that may be used.
        progress: Called as progress(done, total) after each image.

    Returns:
        One gallery a run.
    """
    galleries = [Gallery() for _ in contents.runs]
    turns = [
        (number, run, gallery)
        for number in range(max((len(run.gallery) for run in contents.runs), default=0))
        for run, gallery in zip(contents.runs, galleries, strict=True)
        if number < len(run.gallery)
    ]
    total = 2 * len(turns)
    for done, (number, run, gallery) in enumerate(turns, start=1):
        image = None if gallery.left_out else _read(run, run.gallery[number], contents.faults)
        if image is not None and image.bytes <= budget:
            gallery.images.append(image)
            budget -= image.bytes
        elif image is not None or gallery.left_out:
            gallery.left_out += 1
        if progress is not None:
            progress(done, total)
    for done, (number, run, gallery) in enumerate(turns, start=len(turns) + 1):
        if number < len(gallery.images) and not gallery.unexplored:
            judged = _judge_all(run, gallery.images[number], contents.faults)
            size = sum(one.bytes for one in judged.values())
            if size <= budget:
                gallery.images[number] = replace(gallery.images[number], judged=judged)
                budget -= size
            else:
                gallery.unexplored = len(gallery.images) - number
        if progress is not None:
            progress(done, total)
    return galleries


def fixed_threshold(outcome: Outcome, scored: Scored) -> float:
    """The threshold fixed beforehand; the best one where none is known."""
    return scored.summary["threshold"] if outcome.threshold is None else outcome.threshold


def _read(run: ProtocolRun, name: str, faults: list[Fault]) -> GalleryImage | None:
    """One image with its pictures; what cannot be read is a fault and left out."""
    folder = run.folder / "gallery"
    try:
        image = _open(folder / f"{name}.image.png", "RGB")
        label = _open(folder / f"{name}.label.png", "L")
    except DataError as error:
        faults.append(Fault(f"{run.name}/gallery", "damaged", str(error)))
        return None
    maps: list[MapPicture] = []
    for outcome in run.outcomes:
        try:
            picture = _map_picture(run, outcome, name)
        except _DAMAGE as error:
            faults.append(_fault(run, outcome, error))
            continue
        if picture is not None:
            maps.append(picture)
    edges = np.where(np.asarray(label) > 127, 0, 255).astype(np.uint8)
    return GalleryImage(
        name,
        *image.size,
        _address(_fit(image), "JPEG", quality=JPEG_QUALITY),
        _address(_fit(Image.fromarray(edges)), "PNG", optimize=True),
        tuple(maps),
    )


def _map_picture(run: ProtocolRun, outcome: Outcome, name: str) -> MapPicture | None:
    """One loss's map of one image, judged under the first protocol it was scored with."""
    for protocol in run.protocols:
        scored = outcome.scored.get(protocol)
        if scored is None or scored.scores is None or name not in scored.scores.names:
            continue
        scores = scored.scores
        index = nearest_threshold(fixed_threshold(outcome, scored))
        threshold = (index + 1) / 100
        prob, truth = _load(run, outcome, scores, name)
        classes = match_classes(prob, truth, threshold=threshold, protocol=scores.protocol)
        counts = scores.counts[scores.names.index(name), index]
        _, hits, false_alarms, _ = np.bincount(classes.ravel(), minlength=4).tolist()
        _check(name, threshold, [hits, hits + false_alarms], counts[2:].tolist())
        soft = 255 - np.round(prob * 255).astype(np.uint8)
        return MapPicture(
            outcome.loss,
            _address(_fit(Image.fromarray(soft)), "JPEG", quality=JPEG_QUALITY),
            _match_png(classes),
            threshold,
            float(precision_recall_f(counts).f),
        )
    return None


def _judge_all(
    run: ProtocolRun, image: GalleryImage, faults: list[Fault]
) -> dict[tuple[str, str], Judged]:
    """One image's maps at all thresholds, under every protocol."""
    drawn = {picture.loss for picture in image.maps}
    found: dict[tuple[str, str], Judged] = {}
    for outcome in run.outcomes:
        for protocol, scored in outcome.scored.items():
            if outcome.loss not in drawn or scored.scores is None:
                continue
            try:
                found[protocol, outcome.loss] = _judge(run, outcome, scored.scores, image.name)
            except _DAMAGE as error:
                faults.append(_fault(run, outcome, error))
    return found


def _judge(run: ProtocolRun, outcome: Outcome, scores: EdgeScores, name: str) -> Judged:
    """Classes and counts of one map, which must be those of the scores."""
    if name not in scores.names:
        raise DataError(f"{name} is not among the images scored under {scores.protocol.name}")
    prob, truth = _load(run, outcome, scores, name)
    packed, counts = judge(prob, truth, scores.protocol)
    recorded = scores.counts[scores.names.index(name)]
    for index in np.flatnonzero((counts != recorded).any(axis=1)):
        _check(name, (int(index) + 1) / 100, counts[index].tolist(), recorded[index].tolist())
    return Judged(counts, packed)


def _load(run: ProtocolRun, outcome: Outcome, scores: EdgeScores, name: str) -> tuple[Array, Mask]:
    """A map and its label, read as they were for the scores."""
    path = outcome.folder / "predictions" / f"{name}.png"
    if not path.exists():
        raise DataError(f"predictions/{path.name} is missing")
    try:
        reader = Reader(**scores.options)
        prob, truths = reader.load(Pair(name, path, run.folder / "gallery" / f"{name}.label.png"))
    except (*_DAMAGE, TypeError) as error:
        raise DataError(f"predictions/{path.name}: {error}") from error
    return prob, truths[0]


def _check(name: str, threshold: float, found: list[int], recorded: list[int]) -> None:
    if found != recorded:
        raise DataError(
            f"predictions/{name}.png does not belong to the scores: at {threshold:g} it gives the"
            f" counts {found}, recorded are {recorded}"
        )


def _fault(run: ProtocolRun, outcome: Outcome, error: Exception) -> Fault:
    reason = str(error).replace(f"{run.folder}/", "")
    return Fault(f"{run.name}/{outcome.folder.name}", "damaged", reason)


def _match_png(classes: npt.NDArray[np.uint8]) -> str:
    """A match picture, as a palette of its four colours."""
    small = Image.fromarray(classes).convert("P")
    small.putpalette([part for colour in PALETTE for part in colour])
    return _address(small, "PNG", bits=2, optimize=True)


def _open(path: Path, mode: str) -> Image.Image:
    try:
        with Image.open(path) as picture:
            return picture.convert(mode)
    except FileNotFoundError:
        raise DataError(f"{path.parent.name}/{path.name} is missing") from None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path.parent.name}/{path.name} is no whole picture: {error}") from error


def _fit(picture: Image.Image) -> Image.Image:
    scale = LONGEST / max(picture.size)
    if scale >= 1:
        return picture
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.LANCZOS)


def _address(picture: Image.Image, format: str, **options: object) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, format=format, **options)
    return f"data:image/{format.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
