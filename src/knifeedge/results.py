"""What a protocol leaves behind: its result in memory, `result.json`, and a gallery to look at."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from knifeedge.config import ProtocolConfig, to_mapping
from knifeedge.data.samples import EdgeSet
from knifeedge.disk import write_atomically, write_json
from knifeedge.engine.predict import png
from knifeedge.errors import DataError
from knifeedge.losses.names import loss_folder
from knifeedge.metrics.scores import NUMBERS, EdgeScores
from knifeedge.version import VERSION

RESULT, CALIBRATION = "result.json", "calibration.json"
FORMAT = "knifeedge-result-1"
GALLERY = 8  # test images kept beside the results


@dataclass(frozen=True)
class LossResult:
    """What came of one loss.

    Attributes:
        loss: Its name in the configuration.
        folder: Of its training.
        threshold: Fixed without the test images: the adjuster's own, or else the one calibrated.
        threshold_from: "the loss", "training" (found by the loss then) or "validation".
        seconds: Of the last training.
        scores: On the test images, by protocol.
    """

    loss: str
    folder: Path
    threshold: float
    threshold_from: str
    seconds: float
    scores: dict[str, EdgeScores]


@dataclass(frozen=True)
class ProtocolResult:
    """What came of the three steps.

    Attributes:
        folder: Where all files are.
        config: What was done.
        thresholds: The calibrated threshold of each base loss.
        losses: One entry a loss, in the order of the configuration.
    """

    folder: Path
    config: ProtocolConfig
    thresholds: dict[str, float]
    losses: tuple[LossResult, ...]


def write_result(
    result: ProtocolResult, splits: Mapping[str, EdgeSet], device: torch.device
) -> None:
    """Write the gallery, then `result.json`: where that is there, the protocol is done."""
    gallery = _write_gallery(result.folder / "gallery", splits["test"])
    record = {
        "format": FORMAT,
        "version": VERSION,
        "commit": os.environ.get("KNIFEEDGE_COMMIT"),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else device.type,
        "config": config_record(result.config),
        "images": {split: len(images) for split, images in splits.items()},
        "calibrations": [_calibration(result, base) for base in result.thresholds],
        "losses": [_loss(entry) for entry in result.losses],
        "gallery": gallery,
        "seconds": sum(entry.seconds for entry in result.losses),
    }
    write_json(result.folder / RESULT, record)


def config_record(config: ProtocolConfig) -> dict[str, Any]:
    """The content of a protocol's `config.json`."""
    return {"format": 1, "kind": "protocol", **to_mapping(config)}


def read_json(path: Path) -> dict[str, Any]:
    """A file that a protocol wrote."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read ({error}); delete it to have it made anew"
        ) from None
    return content


def _calibration(result: ProtocolResult, base: str) -> dict[str, Any]:
    run = f"pretrain-{loss_folder(base)}"
    score = read_json(result.folder / run / CALIBRATION)["score"]
    return {"base": base, "run": run, "threshold": result.thresholds[base], "score": score}


def _loss(entry: LossResult) -> dict[str, Any]:
    scores = {
        name: {key: getattr(found, key) for key in NUMBERS}
        | {"at": found.at(entry.threshold)._asdict(), "at_half": found.at(0.5)._asdict()}
        for name, found in entry.scores.items()
    }
    return {
        "loss": entry.loss,
        "run": entry.folder.name,
        "threshold": entry.threshold,
        "threshold_from": entry.threshold_from,
        "seconds": entry.seconds,
        "scores": scores,
    }


def _write_gallery(folder: Path, dataset: EdgeSet) -> list[str]:
    """Some test images and their labels, beside the results."""
    for index in range(min(GALLERY, len(dataset))):
        sample = dataset[index]
        write_atomically(folder / f"{sample.name}.image.png", png(sample.image))
        write_atomically(folder / f"{sample.name}.label.png", png(sample.label))
    return list(dataset.names[:GALLERY])
