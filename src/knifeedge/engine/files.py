"""Prediction from files to files: pictures in, maps out.

Reading and writing go on beside the network. Each map is written beside its place and renamed: what
is there is whole, whenever the work is interrupted. A picture that cannot be read does not stop the
others; all such are named at the end.
"""

import glob
import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import nn

from knifeedge.data.images import IMAGE_ENDINGS, read_image
from knifeedge.disk import check_target, write_atomically
from knifeedge.engine.predict import Map, png, predict, to_bytes
from knifeedge.errors import ConfigError, DataError

MapFormat = Literal["png", "png16", "npy"]

INK = np.array([230, 40, 0], np.float32)  # edges over a picture
AHEAD = 4  # pictures read before their turn, and maps not yet written


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
    check_target(Path(out), folder=True)
    ending = ".npy" if map_format == "npy" else ".png"
    jobs = find_jobs(inputs, Path(out), ending, overlay=overlay)
    done = [job for job in jobs if skip_existing and _is_done(job, overlay)]
    todo = [job for job in jobs if job not in done]
    failures: list[str] = []
    with ThreadPoolExecutor(max_workers=2) as reader, ThreadPoolExecutor(max_workers=2) as writer:
        writing: deque[Future[None]] = deque()
        try:
            for count, (job, reading) in enumerate(_read_ahead(reader, todo), start=len(done) + 1):
                try:
                    image = reading.result()
                    prob = predict(model, image, **options)
                except DataError as error:
                    failures.append(str(error))
                else:
                    writing.append(
                        writer.submit(_write, job, image, prob, map_format, threshold, overlay)
                    )
                while len(writing) > AHEAD or (writing and writing[0].done()):
                    writing.popleft().result()
                if progress is not None:
                    progress(count, len(jobs))
            for future in writing:
                future.result()
        finally:
            reader.shutdown(cancel_futures=True)
    if failures:
        raise DataError(
            f"{len(failures)} of {len(jobs)} pictures were left out: {'; '.join(failures)}"
        )
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
        job = Job(image, target, out / stem.with_name(f"{stem.name}.overlay.png"))
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
            found = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_ENDINGS)
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
            found = [p for p in matched if p.suffix.lower() in IMAGE_ENDINGS]
            if not found:
                raise DataError(f"{entry} matches no pictures but {matched[0]}")
            yield from ((p, Path(p.stem)) for p in found)


def _is_done(job: Job, overlay: bool) -> bool:
    return job.target.is_file() and (not overlay or job.overlay.is_file())


def _read_ahead(
    reader: ThreadPoolExecutor, jobs: Sequence[Job]
) -> Iterator[tuple[Job, "Future[npt.NDArray[np.uint8]]"]]:
    """Each job with its picture, which is being read while those before it are predicted."""
    reading: deque[tuple[Job, Future[npt.NDArray[np.uint8]]]] = deque()
    for job in jobs:
        reading.append((job, reader.submit(read_image, job.image)))
        if len(reading) > AHEAD:
            yield reading.popleft()
    yield from reading


def _write(
    job: Job,
    image: npt.NDArray[np.uint8],
    prob: Map,
    map_format: MapFormat,
    threshold: float | None,
    overlay: bool,
) -> None:
    if overlay:
        write_atomically(job.overlay, png(draw_over(image, prob, threshold)))
    if threshold is not None:
        prob = (prob >= np.float32(threshold)).astype(np.float32)
    if map_format == "npy":
        buffer = io.BytesIO()
        np.save(buffer, prob)
        data = buffer.getvalue()
    elif map_format == "png16":
        data = png(np.rint(prob * np.float32(65535)).astype(np.uint16))
    else:
        data = png(to_bytes(prob))
    write_atomically(job.target, data)


def draw_over(
    image: npt.NDArray[np.uint8], prob: Map, threshold: float | None = None
) -> npt.NDArray[np.uint8]:
    """The edges in colour over the paled picture.

    >>> draw_over(np.zeros((1, 2, 3), np.uint8), np.array([[0, 1]], np.float32))[0].tolist()
    [[128, 128, 128], [230, 40, 0]]
    """
    strength = prob if threshold is None else (prob >= threshold).astype(np.float32)
    paled = image.astype(np.float32) / 2 + 128
    mixed = paled + (INK - paled) * strength[..., None]
    return mixed.clip(0, 255).astype(np.uint8)
