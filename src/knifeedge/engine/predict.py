"""Prediction: a network's probabilities for an image of any size.

An image is cut into overlapping tiles, which go through the network in batches, and their maps are
averaged where they overlap: memory beyond the image and its map does not grow with its size.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from knifeedge.data.images import read_image
from knifeedge.data.pool import normalise
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.engine.tiles import OVERLAP, TILE, TileSum, cut_tiles
from knifeedge.errors import ConfigError, DataError

Map = npt.NDArray[np.float32]

BATCH = 8


def predict(
    model: nn.Module,
    image: npt.NDArray[np.uint8] | str | Path,
    *,
    tile: int = TILE,
    overlap: int = OVERLAP,
    whole: bool = False,
    batch_size: int = BATCH,
) -> Map:
    """The probability of an edge at every pixel.

    Args:
        model: As `create_model` or `load_model` gives it; it runs where its weights are.
        image: A file, or RGB (H, W, 3), or grey (H, W), uint8.
        tile: Side of a tile.
        overlap: Of neighbouring tiles.
        whole: Take the image as one tile, as far as memory allows.
        batch_size: Tiles at a time.

    Returns:
        (H, W) in [0, 1].

    >>> from knifeedge.models import create_model
    >>> predict(create_model("tiny"), np.zeros((40, 50, 3), np.uint8)).shape
    (40, 50)
    """
    pixels = torch.from_numpy(_rgb(image))
    if whole:
        tile = max(*pixels.shape[:2], overlap + 1)
    device = next(model.parameters(), torch.zeros(0)).device
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            pixels = pixels.to(device)
            total = TileSum(*pixels.shape[:2], tile=tile, overlap=overlap, device=device)
            for corners, tiles in cut_tiles(pixels, batch_size, tile, overlap):
                total.add(corners, _probability(model, tiles))
            result: Map = total.mean().cpu().numpy()
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        raise ConfigError(
            f"memory does not do for {batch_size} tiles of {tile} pixels; "
            + ("leave out whole (--whole)" if whole else "lower batch_size (--batch-size)")
        ) from None
    finally:
        model.train(was_training)
    if not np.isfinite(result).all():
        raise DataError("the network's output is no number at some pixels: its weights are broken")
    return result


def predict_sample(model: nn.Module, sample: Sample, **options: Any) -> Map:
    """The map of a labelled image; `options` as `predict` takes them.

    Pixels that the set ignores are 0: with a label of 0 there they count for nothing.
    """
    prob = predict(model, sample.image, **options)
    return prob if sample.mask is None else np.where(sample.mask, prob, np.float32(0))


def predict_set(model: nn.Module, dataset: EdgeSet, **options: Any) -> Iterator[tuple[str, Map]]:
    """Name and map of each image of a set; see `predict_sample`."""
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
    Image.fromarray(array).save(buffer, format="PNG")
    return buffer.getvalue()


def labels_of(dataset: EdgeSet) -> dict[str, npt.NDArray[np.bool_]]:
    """The edges of each image of a set: above half of white."""
    return {sample.name: sample.label > 127 for sample in dataset}


def _probability(model: nn.Module, tiles: Tensor) -> Tensor:
    logit: Tensor = model(normalise(tiles))[-1]
    return logit.float().sigmoid()[:, 0]


def _rgb(image: npt.NDArray[np.uint8] | str | Path) -> npt.NDArray[np.uint8]:
    """The pixels (H, W, 3) of an image."""
    pixels = read_image(image) if isinstance(image, str | Path) else np.asarray(image)
    if pixels.dtype != np.uint8:
        raise DataError(f"an image must be uint8, 0 to 255, got {pixels.dtype}")
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        raise DataError(f"an image must be (H, W, 3) or (H, W), got {pixels.shape}")
    return np.ascontiguousarray(pixels)
