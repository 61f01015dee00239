"""Prediction: a network's probabilities for images of any size.

An image is cut into overlapping tiles, which go through the network in batches, and their maps are
blended where they overlap: memory beyond the image and its map does not grow with its size.
"""

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import nn

from knifeedge.config import Precision
from knifeedge.data.images import read_image
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.engine.stream import Map, Pixels, Prediction, Shelf, Stream
from knifeedge.engine.tiles import OVERLAP, TILE
from knifeedge.errors import DataError

# Of zlib's 1 to 9: 3.8 times as fast as Pillow's 6, with files 12 % larger (a map of 321 x 481).
PNG_LEVEL = 1


def predict(
    model: nn.Module,
    image: Pixels | str | Path,
    *,
    tile: int = TILE,
    overlap: int = OVERLAP,
    whole: bool = False,
    batch_size: int | None = None,
    precision: Precision = "32-true",
) -> Map:
    """The probability of an edge at every pixel.

    Args:
        model: As `create_model` or `load_model` gives it; it runs where its weights are.
        image: A file, or RGB (H, W, 3), or grey (H, W), uint8.
        tile: Least side of a tile; an image below twice that is one, others are divided evenly.
        overlap: Of neighbouring tiles.
        whole: Take the image as one tile, as far as memory allows.
        batch_size: Tiles at a time; if none is given 8 on a CUDA device and 4 elsewhere.
        precision: 32-true, or bf16-mixed: the network in bfloat16 where torch's autocast says so.

    Returns:
        (H, W) in [0, 1], float32.

    >>> from knifeedge.models import create_model
    >>> predict(create_model("tiny"), np.zeros((40, 50, 3), np.uint8)).shape
    (40, 50)
    """
    stream = Stream(model, tile, overlap, whole, batch_size, precision)
    return next(stream.maps([_rgb(image)])).result()


def predict_many(
    model: nn.Module,
    images: Iterable[Pixels | str | Path],
    *,
    tile: int = TILE,
    overlap: int = OVERLAP,
    whole: bool = False,
    batch_size: int | None = None,
    precision: Precision = "32-true",
) -> Iterator[Map]:
    """The maps of several images, in their order.

    Tiles of one size go through the network together, whichever image they are of: in the last bits
    a map may differ from that of `predict`. At most 2 x `batch_size` images are held at a time (on
    a CUDA device also `batch_size` finished maps), and of large ones as many as have `HELD_PIXELS`
    pixels, but one at least.

    Args:
        model: See `predict`.
        images: As `predict` takes them; each is asked for when there is room for it.
        tile: See `predict`.
        overlap: See `predict`.
        whole: See `predict`.
        batch_size: See `predict`.
        precision: See `predict`.

    Returns:
        The maps, each as soon as its tiles and those of the images before it are done.

    >>> from knifeedge.models import create_model
    >>> images = [np.zeros((40, 50, 3), np.uint8), np.zeros((8, 9), np.uint8)]
    >>> [prob.shape for prob in predict_many(create_model("tiny"), images)]
    [(40, 50), (8, 9)]
    """
    if isinstance(images, str | Path) or getattr(images, "ndim", 4) < 4:
        # A path would be taken for its letters, an image for its rows.
        raise DataError("images must be several, such as a list; predict() takes a single one")
    stream = Stream(model, tile, overlap, whole, batch_size, precision)
    return _as_asked_for(stream, (_rgb(image) for image in images))


def predict_sample(model: nn.Module, sample: Sample, **options: Any) -> Map:
    """The map of a labelled image; `options` as `predict` takes them.

    Pixels that the set ignores are 0: with a label of 0 there they count for nothing.
    """
    # Alone: in a batch with others its last bits would depend on them, and a score on which images
    # are scored beside it, or on how many processes share them.
    prob = predict(model, sample.image, **options)
    return prob if sample.mask is None else np.where(sample.mask, prob, np.float32(0))


def predict_set(model: nn.Module, dataset: EdgeSet, **options: Any) -> Iterator[tuple[str, Map]]:
    """Name and map of each image of a set, one by one; see `predict_sample`."""
    return ((sample.name, predict_sample(model, sample, **options)) for sample in dataset)


def to_bytes(prob: Map) -> npt.NDArray[np.uint8]:
    """A map as the 8 bits it is written and judged with.

    >>> to_bytes(np.array([[0.0, 0.5, 1.0]], np.float32))
    array([[  0, 128, 255]], dtype=uint8)
    """
    return np.rint(prob * 255).astype(np.uint8)


def png(array: npt.NDArray[np.uint8] | npt.NDArray[np.uint16]) -> bytes:
    """A PNG file's bytes."""
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format="PNG", compress_level=PNG_LEVEL)
    return buffer.getvalue()


def labels_of(dataset: EdgeSet) -> dict[str, npt.NDArray[np.bool_]]:
    """The edges of each image of a set: above half of white."""
    return {sample.name: sample.label > 127 for sample in dataset}


def _as_asked_for(stream: Stream, images: Iterable[Pixels]) -> Iterator[Map]:
    """The maps of a stream; on a CUDA device it goes on while somebody is busy with a map."""
    waiting: Shelf[Prediction] = Shelf(stream.batch_size)
    for prediction in stream.maps(images):
        if stream.device.type != "cuda":
            yield prediction.result()
            continue
        while waiting.is_full(prediction.pixels):
            yield waiting.take().result()
        waiting.put(prediction, prediction.pixels)
    while waiting:
        yield waiting.take().result()


def _rgb(image: Pixels | str | Path) -> Pixels:
    """The pixels (H, W, 3) of an image."""
    pixels = read_image(image) if isinstance(image, str | Path) else np.asarray(image)
    if pixels.dtype != np.uint8:
        raise DataError(f"an image must be uint8, 0 to 255, got {pixels.dtype}")
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        raise DataError(f"an image must be (H, W, 3) or (H, W), got {pixels.shape}")
    return np.require(pixels, requirements=["C", "W"])  # torch warns of arrays it may not write to
