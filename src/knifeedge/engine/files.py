"""Prediction from files to files: pictures in, maps out.

Reading and writing go on beside the network, by as many threads as there are cores, 16 at most.
Each map is written beside its place and renamed: what is there is whole, whenever the work is
interrupted. A picture that cannot be read does not stop the others; all such are named at the end.
"""

import glob
import io
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image
from torch import nn

from knifeedge.data.images import IMAGE_ENDINGS, read_image
from knifeedge.disk import check_target, write_atomically
from knifeedge.engine.predict import png, to_bytes
from knifeedge.engine.stream import Map, Pixels, Prediction, Shelf, Stream
from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.files import OVERLAY

MapFormat = Literal["png", "png16", "npy"]

INK = np.array([230, 40, 0], np.float32)  # edges over a picture
MOST_THREADS = 16  # that read, and as many that write


@dataclass(frozen=True)
class Job:
    """One picture and where its map goes."""

    image: Path
    target: Path
    overlay: Path


def predict_files(
    model: nn.Module,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    map_format: MapFormat = "png",
    threshold: float | None = None,
    overlay: bool = False,
    skip_existing: bool = False,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[Path]:
    """Predict pictures and write their maps.

    Tiles go through the network together, whichever picture they are of; see `predict_many`. Two
    pictures a thread are read before their turn, and as many maps wait to be written, or as many
    as have `stream.HELD_PIXELS` pixels.

    Args:
        model: See `predict`.
        inputs: Files, folders (all pictures below them) or patterns such as `photos/*.jpg`.
        out: Folder of the maps, named as the pictures; below it a folder's own folders are kept.
        map_format: png (8 bits), png16 (16 bits) or npy (float32).
        threshold: Write yes or no instead: 255 where the probability is at least this.
        overlay: Write NAME.overlay.png too: the edges over the picture.
        skip_existing: Leave out pictures whose map is there.
        progress: Called as progress(done, total) after each picture.
        options: Further options of `predict`.

    Returns:
        The maps, those that were there already among them.

    Raises:
        DataError: Some pictures could not be read; all others are done.
    """
    if map_format not in get_args(MapFormat):
        raise ConfigError(
            f"format must be one of {', '.join(get_args(MapFormat))}, got {map_format!r}"
        )
    if threshold is not None and not 0 < threshold <= 1:
        raise ConfigError(f"threshold must be in (0, 1], got {threshold}")
    stream = Stream(model, **options)
    check_target(Path(out), folder=True)
    ending = ".npy" if map_format == "npy" else ".png"
    jobs = find_jobs(inputs, Path(out), ending, overlay=overlay)
    todo = [job for job in jobs if not (skip_existing and _is_done(job, overlay))]
    tally = _Tally(jobs, len(jobs) - len(todo), progress)
    threads = min(MOST_THREADS, os.cpu_count() or 1)
    with (
        # Reading silences Pillow, and of two threads one may restore the silence of the other.
        warnings.catch_warnings(),
        ThreadPoolExecutor(threads) as reader,
        ThreadPoolExecutor(threads) as writer,
    ):
        under_way: deque[tuple[Job, Pixels]] = deque()
        writing: Shelf[Future[None]] = Shelf(2 * threads)
        try:
            pictures = _readable(_read_ahead(reader, todo, 2 * threads), under_way, tally)
            for prediction in stream.maps(pictures):
                job, image = under_way.popleft()
                pixels = prediction.pixels
                while writing.is_full(pixels) or (writing and writing.first().done()):
                    writing.take().result()
                task = (job, prediction, tally, map_format, threshold, image if overlay else None)
                writing.put(writer.submit(_finish, *task), pixels)
                tally.one_more()
            while writing:
                writing.take().result()
        finally:
            reader.shutdown(cancel_futures=True)
    tally.check()
    return [job.target for job in jobs]


def find_jobs(
    inputs: Sequence[str | Path], out: Path, ending: str, *, overlay: bool = False
) -> list[Job]:
    """The pictures that inputs name, in order, and where their maps go.

    Raises:
        DataError: Nothing is there, or two pictures would be written to one file.
    """
    jobs: dict[Path, Job] = {}
    written: dict[Path, Path] = {}
    for image, stem in _find_images(inputs, out):
        target = out / stem.with_name(stem.name + ending)
        job = Job(image, target, out / stem.with_name(stem.name + OVERLAY))
        for path in (target, job.overlay) if overlay else (target,):
            other = written.setdefault(path, image)
            if other != image:
                raise DataError(
                    f"{other} and {image} would both be written to {path}; predict them into"
                    " different folders (--out)"
                )
        jobs[target] = job
    sources = {job.image.resolve() for job in jobs.values()}
    for path in written:
        if path.resolve() in sources:
            raise DataError(f"{path} would be written over a picture; name another --out")
    return list(jobs.values())


def _find_images(inputs: Sequence[str | Path], out: Path) -> Iterator[tuple[Path, Path]]:
    """Each picture with the name of its map, below the output folder and without its ending."""
    for entry in inputs:
        path = Path(entry)
        if path.is_dir():
            found = _pictures_below(path)
            if path.resolve() in out.resolve().parents:  # maps of an earlier call are no pictures
                found = [p for p in found if out.resolve() not in p.resolve().parents]
            if not found:
                raise DataError(f"there are no pictures in {path}")
            yield from ((p, p.relative_to(path).with_suffix("")) for p in found)
        elif path.is_file():
            yield path, Path(path.stem)
        else:
            matched = sorted(Path(name) for name in glob.glob(str(entry), recursive=True))
            if not matched:
                raise DataError(f"there is no picture, folder or pattern {entry}")
            found = [p for p in matched if _is_picture(p.name) and not p.is_dir()]
            if not found:
                raise DataError(f"{entry} matches no pictures but {matched[0]}")
            yield from ((p, Path(p.stem)) for p in found)


def _pictures_below(folder: Path) -> list[Path]:
    """The pictures in a folder and those below it; what is hidden is passed over."""

    def refuse(error: OSError) -> None:
        raise DataError(
            f"folder {error.filename} cannot be read: {error.strerror}; allow it, or name others"
        ) from error

    found = []
    for where, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(where, n) for n in names if _is_picture(n) and not n.startswith(".")]
    return sorted(found)


def _is_picture(name: str) -> bool:
    return Path(name).suffix.lower() in IMAGE_ENDINGS


def _is_done(job: Job, overlay: bool) -> bool:
    return job.target.is_file() and (not overlay or job.overlay.is_file())


class _Tally:
    """How many pictures are done, and what is wrong with the others."""

    def __init__(
        self, jobs: Sequence[Job], done: int, progress: Callable[[int, int], None] | None
    ) -> None:
        self._jobs, self._done, self._progress = jobs, done, progress
        self.failures: dict[Job, str] = {}

    def one_more(self) -> None:
        """Tell of another picture."""
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, len(self._jobs))

    def check(self) -> None:
        """Name the pictures that were left out, in their order."""
        if self.failures:
            reasons = [self.failures[job] for job in self._jobs if job in self.failures]
            raise DataError(
                f"{len(reasons)} of {len(self._jobs)} pictures were left out: {'; '.join(reasons)}"
            )


def _read_ahead(
    reader: ThreadPoolExecutor, jobs: Sequence[Job], most: int
) -> Iterator[tuple[Job, Future[Pixels]]]:
    """Each job with its picture, which is being read while those before it are predicted."""
    reading: Shelf[tuple[Job, Future[Pixels]]] = Shelf(most)
    for job in jobs:
        pixels = _claimed_pixels(job.image)
        while reading.is_full(pixels):
            yield reading.take()
        reading.put((job, reader.submit(read_image, job.image)), pixels)
    while reading:
        yield reading.take()


def _claimed_pixels(path: Path) -> int:
    """How many pixels a picture has by its header; 0 if that is no picture's."""
    if not path.is_file():  # a pipe would never end
        return 0
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(path) as image:
            return image.width * image.height
    except Exception:  # whatever it is, reading it will say
        return 0


def _readable(
    readings: Iterable[tuple[Job, Future[Pixels]]],
    under_way: deque[tuple[Job, Pixels]],
    tally: _Tally,
) -> Iterator[Pixels]:
    """The pictures that can be read; each is under way from now on."""
    for job, reading in readings:
        try:
            image = reading.result()
        except DataError as error:
            tally.failures[job] = str(error)
            tally.one_more()
        else:
            under_way.append((job, image))
            yield image


def _finish(
    job: Job,
    prediction: Prediction,
    tally: _Tally,
    map_format: MapFormat,
    threshold: float | None,
    under: Pixels | None,
) -> None:
    """Wait for a map and write it, and the edges over a picture, if there is one under them."""
    try:
        prob = prediction.result()
    except DataError as error:
        tally.failures[job] = str(error)
        return
    if under is not None:
        write_atomically(job.overlay, png(draw_over(under, prob, threshold)))
    if threshold is not None:
        prob = (prob >= np.float32(threshold)).astype(np.float32)
    write_atomically(job.target, _encoded(prob, map_format))


def _encoded(prob: Map, map_format: MapFormat) -> bytes:
    if map_format == "png":
        return png(to_bytes(prob))
    if map_format == "png16":
        return png(np.rint(prob * np.float32(65535)).astype(np.uint16))
    buffer = io.BytesIO()
    np.save(buffer, prob)
    return buffer.getvalue()


def draw_over(image: Pixels, prob: Map, threshold: float | None = None) -> Pixels:
    """The edges in colour over the paled picture.

    >>> draw_over(np.zeros((1, 2, 3), np.uint8), np.array([[0, 1]], np.float32))[0].tolist()
    [[128, 128, 128], [230, 40, 0]]
    """
    strength = prob if threshold is None else (prob >= threshold).astype(np.float32)
    paled = image.astype(np.float32) / 2 + 128
    mixed = paled + (INK - paled) * strength[..., None]
    return mixed.clip(0, 255).astype(np.uint8)
