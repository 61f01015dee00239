"""The folder of a run: its name, and whether a training may go into it."""

import json
import shutil
from pathlib import Path

from torch import nn

from knifeedge.config import TrainConfig, read_config, to_mapping
from knifeedge.disk import check_target
from knifeedge.engine.checkpoint import CHECKPOINT, WEIGHTS, difference
from knifeedge.errors import ConfigError
from knifeedge.losses.names import loss_folder

CONFIG = "config.json"
PROTOCOL = "a protocol: the same `knifeedge protocol` command goes on with it"


def default_folder(config: TrainConfig) -> Path:
    """Where a run goes if nobody says otherwise.

    >>> from knifeedge.config import DataConfig, ModelConfig
    >>> default_folder(TrainConfig(DataConfig("UDED"), ModelConfig("hed"), loss="baa-0.7")).name
    'hed-uded-baa-0.7-0'
    """
    parts = (config.model.name, config.data.name.lower(), loss_folder(config.loss), config.seed)
    return Path("runs") / "-".join(map(str, parts))


def check_folder(folder: Path, config: TrainConfig, resume: bool) -> None:
    """Refuse a folder that cannot be written to, or that holds another run."""
    check_target(folder, folder=True)
    if not (folder / CONFIG).is_file():
        for name in (WEIGHTS, CHECKPOINT):
            if (folder / name).is_file():
                raise ConfigError(
                    f"{folder} holds {name} and no {CONFIG} that says of which run it is; name"
                    " another folder with --out, or move the file away"
                )
        return
    if holds_protocol(folder):
        raise ConfigError(f"{folder} holds {PROTOCOL}; or name another folder with --out")
    if not resume:
        raise ConfigError(
            f"{folder} holds a run already; continue it with --resume {folder}, or name another"
            " folder with --out"
        )
    saved = read_config(TrainConfig, folder / CONFIG)
    if other := difference(to_mapping(saved), config):
        raise ConfigError(f"{folder} holds another run: {other}; name another folder")


def check_space(folder: Path, network: nn.Module) -> None:
    """Refuse a disk without room for two checkpoints, the old one and the new one beside it."""
    values = sum(p.numel() * (3 if p.requires_grad else 1) for p in network.parameters())
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    needed, free = 2 * 4 * values, shutil.disk_usage(there).free
    if free < needed:
        raise ConfigError(
            f"{folder} has {free / 1e6:.0f} MB of free disk, and two checkpoints need"
            f" {needed / 1e6:.0f} MB; make room, or name another folder with --out"
        )


def holds_protocol(folder: Path) -> bool:
    """Whether the `config.json` of a folder is of a protocol, not of a single training.

    >>> holds_protocol(Path("nowhere"))
    False
    """
    try:
        content = json.loads((folder / CONFIG).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("kind") == "protocol"
