"""Weights and checkpoints on disk: safetensors, with all else as JSON in the file's metadata.

`model.safetensors` holds a trained network, how to build it, what it was trained on, and the
threshold to cut its maps at. `last.ckpt`, of the same format, holds in addition what a training
needs to go on: the state of the optimiser and of the loss, the step, and the losses of the epoch
under way. Nothing is ever unpickled.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from knifeedge.config import (
    ModelConfig,
    ProtocolConfig,
    TrainConfig,
    from_mapping,
    to_mapping,
)
from knifeedge.disk import write_atomically
from knifeedge.engine.shipped import shipped_weights
from knifeedge.errors import CheckpointError, ConfigError, DataError, KnifeEdgeError
from knifeedge.models.registry import create_model, model_entry
from knifeedge.models.weights import fit, load_into
from knifeedge.version import VERSION

FORMAT = "1"
WEIGHTS, CHECKPOINT = "model.safetensors", "last.ckpt"

_KEY = "knifeedge"  # the one entry of the metadata: JSON
_MODEL, _LOSS, _OPTIMISER, _LOSSES = "model.", "loss.", "optimiser.", "losses"


@dataclass(frozen=True)
class WeightsInfo:
    """What a weights file says of itself.

    Args:
        model: The network.
        threshold: Where to cut its maps; None if none was calibrated.
        calibration: How the threshold was found.
        training: The configuration of its training.
        trained_on: Names of the images.
    """

    model: ModelConfig
    threshold: float | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    trained_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far a training has come.

    Args:
        step: Steps done.
        seconds: Time it took.
        losses: Of the steps of the epoch under way.
    """

    step: int = 0
    seconds: float = 0.0
    losses: tuple[float, ...] = ()


@dataclass(frozen=True)
class _Saved:
    """What a checkpoint says of itself."""

    config: Mapping[str, Any]
    step: int
    seconds: float


def save_model(path: Path, network: nn.Module, info: WeightsInfo) -> None:
    """Write weights and what is known of them."""
    _write(path, dict(network.state_dict()), {"kind": "weights", "info": to_mapping(info)})


def load_model(
    path: str | Path | None = None,
    *,
    model: str | None = None,
    device: torch.device | str = "cpu",
) -> tuple[nn.Module, WeightsInfo]:
    """Build the network of a weights file, in evaluation mode.

    Args:
        path: A run's folder, its model.safetensors, or a plain state dict (.safetensors or .pth);
            if none is given the weights that come with the package.
        model: Name of the network, for a plain state dict.
        device: Where it goes.

    Returns:
        The network and what the file says of it.

    Raises:
        CheckpointError: The file is missing, damaged, of another version or of another network.

    >>> load_model("nowhere")
    Traceback (most recent call last):
    knifeedge.errors.CheckpointError: there is no weights file nowhere; ...
    """
    path = weights_path(shipped_weights() if path is None else path)
    if model is not None and (path.suffix != ".safetensors" or not is_ours(path)):
        network = create_model(model)
        load_into(network, path)
        return network.to(device).eval(), WeightsInfo(ModelConfig(model))
    if path.suffix in (".pth", ".pt"):
        raise CheckpointError(f"{path} does not say which network it is of; name it (--model hed)")
    state, info = _read_weights(path)
    if model is not None and model != info.model.name:
        raise CheckpointError(f"{path} holds weights of {info.model.name}, not of {model}")
    network = build(info.model)
    fit(network, state, path)
    return network.to(device).eval(), info


def build(model: ModelConfig) -> nn.Module:
    """A network to load weights into: its options without the files that it first started from."""
    starts = model_entry(model.name).weight_options
    return create_model(model.name, **{k: v for k, v in model.options.items() if k not in starts})


def weights_path(path: str | Path) -> Path:
    """The weights file of a run's folder, or the file itself."""
    path = Path(path)
    if path.is_dir():
        if (path / CHECKPOINT).is_file() and not (path / WEIGHTS).is_file():
            raise CheckpointError(
                f"the training in {path} is not finished; continue it with"
                f" `knifeedge train --resume {path}`"
            )
        stages = [each.parent for each in sorted(path.glob(f"*/{WEIGHTS}"))]
        if stages and not (path / WEIGHTS).is_file():
            known = ", ".join(map(str, stages))
            raise CheckpointError(f"{path} holds trainings; name one of them: {known}")
        path = path / WEIGHTS
    if not path.is_file():
        raise CheckpointError(
            f"there is no weights file {path}; name a run's folder or a .safetensors file"
        )
    return path


def read_info(path: str | Path) -> WeightsInfo:
    """What a weights file says of itself."""
    return _read_weights(weights_path(path), tensors=False)[1]


def store_threshold(path: str | Path, threshold: float, calibration: Mapping[str, Any]) -> None:
    """Write a calibrated threshold into a weights file; the weights stay as they are."""
    path = weights_path(path)
    state, info = _read_weights(path)
    info = replace(info, threshold=threshold, calibration=dict(calibration))
    _write(path, state, {"kind": "weights", "info": to_mapping(info)})


def save_checkpoint(
    path: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    config: TrainConfig,
    progress: Progress,
    loss: nn.Module | None = None,
) -> None:
    """Write all that a training needs to go on."""
    tensors = {f"{_MODEL}{name}": value for name, value in network.state_dict().items()}
    if loss is not None:  # one that finds its threshold while training has a state
        tensors |= {f"{_LOSS}{name}": value for name, value in loss.state_dict().items()}
    for index, entries in optimiser.state_dict()["state"].items():
        tensors |= {f"{_OPTIMISER}{index}.{name}": value for name, value in entries.items()}
    tensors[_LOSSES] = torch.tensor(progress.losses, dtype=torch.float64)
    about = {"kind": "checkpoint", "config": to_mapping(config)}
    try:
        _write(path, tensors, about | {"step": progress.step, "seconds": progress.seconds})
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; the file before it is intact: make room, then continue the run"
        ) from error.__cause__


def load_checkpoint(
    path: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    config: TrainConfig,
    loss: nn.Module | None = None,
) -> Progress:
    """Bring a training back to where its checkpoint was written."""
    about, tensors = _read(path)
    if about.get("kind") != "checkpoint" or _LOSSES not in tensors:
        raise CheckpointError(f"{path} holds no checkpoint of a training")
    try:
        parts = {entry.name: about.get(entry.name) for entry in fields(_Saved)}
        saved = from_mapping(_Saved, parts)
        other = difference(saved.config, config)
    except ConfigError as error:
        raise CheckpointError(f"{path} holds no checkpoint of a training: {error}") from None
    if other:
        raise CheckpointError(f"{path} belongs to another training: {other}")
    for module, prefix in ((network, _MODEL), (loss, _LOSS)):
        if module is not None:
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            fit(module, state, path)
    entries: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith(_OPTIMISER):
            index, name = key.removeprefix(_OPTIMISER).split(".", 1)
            entries.setdefault(int(index), {})[name] = value
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": entries, "param_groups": groups})
    for parameter, own in optimiser.state.items():
        for name, value in own.items():
            if value.shape == parameter.shape:  # in its memory layout, which a file does not keep
                own[name] = torch.empty_like(parameter).copy_(value)
    return Progress(saved.step, saved.seconds, tuple(tensors[_LOSSES].flatten().tolist()))


def difference(saved: Any, config: TrainConfig | ProtocolConfig) -> str:
    """The first setting in which a saved configuration is another one; nothing if it is the same.

    A setting that is newer than the file counts as its default there. Of a weights file that the
    network starts from only the name counts: it may have moved, with its run or the whole protocol.

    >>> from knifeedge.config import DataConfig
    >>> config = TrainConfig(DataConfig("UDED"), ModelConfig("hed", {"vgg16": "here/vgg.pth"}))
    >>> saved = {"data": {"name": "UDED"}, "model": {"name": "hed"}, "crop": 9}
    >>> difference(saved | {"model": {"name": "hed", "options": {"vgg16": "vgg.pth"}}}, config)
    'its crop is 9, not 320'
    """
    if isinstance(saved, Mapping):
        saved = {key: value for key, value in saved.items() if key not in ("format", "kind")}
    before, now = to_mapping(from_mapping(type(config), saved)), to_mapping(config)
    for option in model_entry(config.model.name).weight_options:
        for options in (before["model"]["options"], now["model"]["options"]):
            if option in options:
                options[option] = Path(str(options[option])).name
    for key, value in now.items():
        if before[key] != value:
            return f"its {key} is {before[key]!r}, not {value!r}"
    return ""


def is_ours(path: Path) -> bool:
    """Whether a safetensors file has knifeedge's metadata."""
    try:
        with safe_open(path, "pt") as file:
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def _write(path: Path, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    about = {"format": FORMAT, "version": VERSION, **about}
    plain: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        # Tied weights are one tensor with two names, which safetensors refuses.
        place = value.untyped_storage().data_ptr()
        plain[name] = value.clone() if place in places else value
        places.add(place)
    try:
        write_atomically(path, save(plain, {_KEY: json.dumps(about)}))
    except DataError as error:
        raise CheckpointError(str(error)) from error.__cause__


def _read(path: Path, *, tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_KEY)
            found = {name: file.get_tensor(name) for name in file.keys() if tensors}  # noqa: SIM118
        about: Any = json.loads(text) if text else None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged or no safetensors file ({' '.join(str(error).split())}); copy it"
            " again, or train again"
        ) from None
    if not isinstance(about, dict):
        raise CheckpointError(f"{path} does not say which network it is of; name it (--model hed)")
    if about.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {about.get('format')}, written by knifeedge"
            f" {about.get('version', '?')}; this one reads format {FORMAT}"
        )
    return about, found


def _read_weights(path: Path, *, tensors: bool = True) -> tuple[dict[str, Tensor], WeightsInfo]:
    about, state = _read(path, tensors=tensors)
    if about.get("kind") != "weights":
        raise CheckpointError(f"{path} is a checkpoint to resume from; name {WEIGHTS} beside it")
    try:
        return state, from_mapping(WeightsInfo, about["info"])
    except (KeyError, KnifeEdgeError) as error:
        raise CheckpointError(f"{path} describes its network wrongly: {error}") from None
