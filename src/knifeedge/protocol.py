"""The paper's three steps (its section 3.5): split; pre-train and calibrate; retrain and test.

1. The images are split into P to pre-train, V to validate and T to test.
2. The network is trained on P with the base loss, and its best threshold is found on V.
3. It is trained anew on P and V with each loss, and tested on T.

Every stage leaves its files behind, and one that is done is not done again: the same call goes on
where an earlier one was interrupted or killed. Losses with the same base share its pre-training,
and those that bring or find their threshold have none. For a network on top of frozen ones, as
EES3, those are trained first, one by one, on the same images and with the base loss. T is read only
when the last training is over.

To compare many losses at half the cost (`retrain = false`), each is trained once, on P, and a
threshold is calibrated for it on V.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import nn

from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig, check_config, to_mapping
from knifeedge.data.datasets import load_dataset
from knifeedge.data.samples import EdgeSet, Sample
from knifeedge.disk import check_target, write_atomically, write_json
from knifeedge.engine.calibrate import calibrate_weights
from knifeedge.engine.checkpoint import (
    WEIGHTS,
    difference,
    load_model,
    read_info,
    store_threshold,
)
from knifeedge.engine.devices import barrier, find_device, open_fabric, rank, world_size
from knifeedge.engine.logs import Callback, read_log
from knifeedge.engine.predict import labels_of, png, predict_sample, to_bytes
from knifeedge.engine.run_folder import CONFIG, holds_protocol
from knifeedge.engine.signals import Interrupted
from knifeedge.engine.train import train
from knifeedge.errors import CheckpointError, ConfigError, DataError
from knifeedge.losses.names import LossName, loss_folder, parse_loss
from knifeedge.metrics.evaluate import evaluate
from knifeedge.metrics.outputs import file_name, write_scores
from knifeedge.metrics.protocols import Protocol, get_protocol
from knifeedge.metrics.scores import EdgeScores
from knifeedge.models.ees import EXTRACTOR_CHANNELS
from knifeedge.models.registry import model_entry, model_names
from knifeedge.results import (
    CALIBRATION,
    LossResult,
    ProtocolResult,
    config_record,
    read_json,
    write_result,
)

Stage = Callable[[str, int, int], None]


def run_protocol(
    config: ProtocolConfig,
    folder: str | Path,
    *,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    callbacks: Sequence[Callback] = (),
    on_stage: Stage | None = None,
) -> ProtocolResult:
    """Do the three steps, or what of them is not done yet.

    Args:
        config: See `ProtocolConfig`.
        folder: Where all files go; a run of the same configuration there is continued.
        accelerator: As for `train`.
        devices: As for `train`.
        nodes: As for `train`.
        callbacks: Told of every training, as by `train`.
        on_stage: Called as on_stage(what, number, count) when a stage begins.

    Returns:
        The scores of every loss on the test images, and the thresholds.
    """
    check_config(config, ProtocolConfig)
    config, folder = config.resolved(), Path(folder)
    losses = {name: parse_loss(name) for name in config.losses}
    scoring = [get_protocol(name) for name in config.scoring]
    get_protocol(config.validation_protocol)  # refuses an unknown one before the hours it is for
    splits = _open_splits(config.data)
    machine: dict[str, Any] = {"accelerator": accelerator, "devices": devices, "nodes": nodes}
    open_fabric(**machine, precision=config.precision)  # from here on there are all processes
    _open_folder(folder, config)
    stages = _Stages(config, folder, machine, callbacks, on_stage or (lambda *_: None))

    pretrained, thresholds = {}, {}
    for base in stages.bases:
        pretrained[base] = stages.train(f"pretrain-{loss_folder(base)}", "pretrain", base)
        thresholds[base] = stages.calibrate(pretrained[base], scoring[0])

    runs, decisions = {}, {}
    for name, loss in losses.items():
        final = str(loss.at(thresholds[str(loss.baseline)]) if loss.needs_threshold else loss)
        if config.retrain:
            runs[name] = stages.train(loss_folder(name), "train", final)
            decisions[name] = _decision(loss, runs[name], thresholds)
        elif final in pretrained:
            runs[name], decisions[name] = pretrained[final], (thresholds[final], "validation")
        else:
            runs[name] = stages.train(loss_folder(name), "pretrain", final)
            decisions[name] = stages.calibrate(runs[name], scoring[0]), "validation"

    results = []
    for name in losses:
        threshold, source = decisions[name]
        scores = stages.test(runs[name], splits["test"], threshold, source)
        seconds = max((row.seconds for row in read_log(runs[name])), default=0.0)
        results.append(LossResult(name, runs[name], threshold, source, seconds, scores))
    result = ProtocolResult(folder, config, thresholds, tuple(results))
    if rank() == 0:
        write_result(result, splits, find_device(accelerator))
    barrier()
    return result


class _Stages:
    """The stages of one protocol; each leaves files, and is skipped where they are there."""

    def __init__(
        self,
        config: ProtocolConfig,
        folder: Path,
        machine: Mapping[str, Any],
        callbacks: Sequence[Callback],
        on_stage: Stage,
    ) -> None:
        self._config, self._folder, self._machine = config, folder, machine
        self._callbacks, self._on_stage, self._number = callbacks, on_stage, 0
        self._device = find_device(machine["accelerator"])
        self._trained: set[str] = set()
        losses = [parse_loss(loss) for loss in config.losses]
        self._base = str(losses[0].baseline)
        self.bases = list(
            dict.fromkeys(
                str(loss.baseline)
                for loss in losses
                if loss.needs_threshold or (config.retrain and _is_calibrated(loss))
            )
        )
        entry = model_entry(config.model.name)
        self._extractors = [name for name in entry.weight_options if name in model_names()]
        self._count = self._count_stages(losses)

    def _count_stages(self, losses: Sequence[LossName]) -> int:
        """Training and calibrating bases, training, perhaps calibrating, and testing losses."""
        bases, retrain = len(self.bases), self._config.retrain
        done = 0 if retrain else sum(str(loss) in self.bases for loss in losses)
        own = (1 if retrain else 2) * (len(losses) - done)
        splits = (bases > 0) + 1 if retrain else 1
        return 2 * bases + own + len(losses) + splits * len(self._extractors)

    def train(self, name: str, split: str, loss: str) -> Path:
        """Train the network on a split, and before it the extractors it stands on."""
        model = self._config.model
        if self._extractors:
            found = {e: str(self._extractor(e, split) / WEIGHTS) for e in self._extractors}
            model = ModelConfig(model.name, {**model.options, **found})
        return self._train(f"{loss} on {split}", name, split, loss, model)

    def calibrate(self, run: Path, scoring: Protocol) -> float:
        """The best threshold of a pre-trained network on the validation images."""
        self._begin(f"calibrate {run.name}")
        path = run / CALIBRATION
        if not path.is_file() and rank() == 0:
            data = dataclasses.replace(self._config.data, split="validation")
            found = calibrate_weights(run, data, protocol=scoring, device=self._device)
            write_json(path, found.to_dict() | {"data": to_mapping(data)})
        barrier()
        return float(read_json(path)["threshold"])

    def test(
        self, run: Path, dataset: EdgeSet, threshold: float, source: str
    ) -> dict[str, EdgeScores]:
        """Maps of the test images, and their scores by every protocol."""
        self._begin(f"test {run.name}")
        paths = {name: run / f"scores-{name}.json" for name in self._config.scoring}
        if not all(path.is_file() for path in paths.values()):
            if rank() == 0:
                store_threshold(run, threshold, {"from": source})
            barrier()
            network, _ = load_model(run, device=self._device)
            # Each process its share: no image twice, none left out.
            for index in range(rank(), len(dataset), world_size()):
                _write_map(run / "predictions", network, dataset[index])
            barrier()
            if rank() == 0:
                maps = {n: _read_map(run / "predictions", n) for n in dataset.names}
                labels = labels_of(dataset)
                for name, path in paths.items():
                    scores = evaluate(maps, labels, protocol=name)
                    write_scores(path, scores, at=threshold)
            barrier()
        return {name: EdgeScores.from_dict(read_json(path)) for name, path in paths.items()}

    def _extractor(self, name: str, split: str) -> Path:
        """The run of an extractor, which is trained once for each split."""
        folder = f"extractor-{name}" if split == "train" else f"extractor-{name}-{split}"
        if folder not in self._trained:
            self._trained.add(folder)
            model = ModelConfig(name, {"side_channels": EXTRACTOR_CHANNELS})
            what = f"{name} as extractor on {split}"
            self._train(what, folder, split, self._base, model)
        return self._folder / folder

    def _train(self, what: str, name: str, split: str, loss: str, model: ModelConfig) -> Path:
        self._begin(f"train {what}")
        folder = self._folder / name
        config = self._config.stage(split, loss, model)
        try:
            train(config, folder, resume=True, callbacks=self._callbacks, **self._machine)
        except Interrupted as stop:
            where = f"stopped in stage {self._number} of {self._count}, {what}, and saved"
            raise Interrupted(f"{where}; the same command goes on", stop.number) from None
        return folder

    def _begin(self, what: str) -> None:
        self._number += 1
        if rank() == 0:
            self._on_stage(what, self._number, self._count)


def _is_calibrated(loss: LossName) -> bool:
    """Whether decisions with this loss are made at a threshold that is calibrated."""
    return loss.threshold is None and not loss.is_online


def _decision(loss: LossName, run: Path, calibrated: Mapping[str, float]) -> tuple[float, str]:
    """Where to cut the maps of a loss's network, and where that threshold is from."""
    if _is_calibrated(loss):
        return calibrated[str(loss.baseline)], "validation"
    if loss.threshold is not None:
        return loss.threshold, "the loss"
    found = read_info(run).threshold
    if found is None:
        raise CheckpointError(f"{run} has lost the threshold it found; delete it to train again")
    return found, "training"


def _open_splits(data: DataConfig) -> dict[str, EdgeSet]:
    """P, V, P and V, T; that none is empty and T shares no image is seen before any training."""
    splits = {
        split: load_dataset(data.name, split, root=data.root, **data.options)
        for split in ("pretrain", "validation", "train", "test")
    }
    for split, images in splits.items():
        if len(images) == 0:
            raise DataError(f"{data.name} has too few images: none are left for {split}")
    shared = set(splits["train"].names) & set(splits["test"].names)
    if shared:
        raise DataError(f"{data.name}: {sorted(shared)[0]} is in both train and test")
    for name in splits["test"].names:
        file_name(name)
    return splits


def _open_folder(folder: Path, config: ProtocolConfig) -> None:
    """Make the folder, or see that the one there is of the same protocol."""
    check_target(folder, folder=True)
    path = folder / CONFIG
    if path.is_file():
        saved = read_json(path)
        if not holds_protocol(folder):
            raise ConfigError(f"{folder} holds a single training; name another folder with --out")
        try:
            other = difference(saved, config)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        if other:
            raise ConfigError(f"{folder} holds another protocol: {other}; name another folder")
    elif rank() == 0:
        write_json(path, config_record(config))


def _write_map(folder: Path, network: nn.Module, sample: Sample) -> None:
    path = folder / f"{sample.name}.png"
    if not path.is_file():
        write_atomically(path, png(to_bytes(predict_sample(network, sample))))


def _read_map(folder: Path, name: str) -> npt.NDArray[np.float32]:
    with Image.open(folder / f"{name}.png") as picture:
        return np.asarray(picture, dtype=np.float32) / np.float32(255)
