"""A threshold for a trained network, from images it was not trained on, stored with its weights."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from knifeedge.calibration import Calibration, calibrate, calibrate_pixels
from knifeedge.config import DataConfig, to_mapping
from knifeedge.data.datasets import load_dataset
from knifeedge.disk import check_target
from knifeedge.engine.checkpoint import load_model, store_threshold, weights_path
from knifeedge.engine.predict import labels_of, predict_set, to_bytes
from knifeedge.errors import ConfigError
from knifeedge.metrics.protocols import Protocol, get_protocol


def calibrate_weights(
    weights: str | Path,
    data: DataConfig,
    *,
    protocol: str | Protocol | None = "paper-strict",
    beta: float = 1.0,
    on_test_images: bool = False,
    device: torch.device | str = "cpu",
    store: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Find the threshold that serves a network best on a validation set.

    The maps are judged with the 8 bits they are written with.

    Args:
        weights: A run's folder or a weights file.
        data: The images; use split="validation" of what the network was pre-trained on.
        protocol: How maps are matched with labels; None judges each pixel by itself, by F-beta.
        beta: How many times as much recall weighs as precision, where each pixel is judged.
        on_test_images: Allow the splits "test" and "all"; scores on these images then mean nothing
            any more.
        device: Where the network runs.
        store: Write the threshold into the weights file.
        progress: Called as progress(done, total) after each image.

    Returns:
        The threshold, its score and the curve.
    """
    if data.split in ("test", "all") and not on_test_images:
        raise ConfigError(
            f"calibrating on the split {data.split} tunes the threshold on the images that judge"
            " it; use --split validation, or say --on-test-images"
        )
    if protocol is not None:
        protocol = get_protocol(protocol)
        if beta != 1:
            raise ConfigError(f"beta is for pixels judged alone (--pixels); got {beta:g} without")
    if not 0 < beta < float("inf"):
        raise ConfigError(f"beta must be > 0 and finite, got {beta:g}; equal weight is 1")
    if store:
        check_target(weights_path(weights))
    network, info = load_model(weights, device=device)
    dataset = load_dataset(data.name, data.split, root=data.root, **data.options)
    seen = sorted(set(dataset.names) & set(info.trained_on))
    if seen and info.training.get("data", {}).get("name", "").lower() == data.name.lower():
        warnings.warn(
            f"{len(seen)} of {len(dataset)} images were trained on, {seen[0]} among them: the"
            " network is surer of these, and the threshold may be wrong for others",
            stacklevel=2,
        )
    maps = {}
    for name, prob in predict_set(network, dataset):
        maps[name] = to_bytes(prob) / 255
        if progress is not None:
            progress(len(maps), len(dataset))
    labels = labels_of(dataset)
    if protocol is None:
        found = calibrate_pixels(maps.values(), labels.values(), beta=beta)
    else:
        found = calibrate(maps, labels, protocol=protocol)
    if store:
        store_threshold(weights_path(weights), found.threshold, _source(found, data))
    return found


def _source(found: Calibration, data: DataConfig) -> dict[str, Any]:
    """How a threshold was found, without the curve."""
    about = {key: value for key, value in found.to_dict().items() if key != "curve"}
    return about | {"data": to_mapping(data)}
