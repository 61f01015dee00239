"""Settings as frozen dataclasses: TOML or JSON in, JSON out.

Each default stands here once; the command line and the documentation show it from here. A key that
does not exist is refused with the nearest one that does, a value of another type with the type.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_type_hints

from knifeedge.errors import ConfigError
from knifeedge.typed import (
    KeyedError as KeyedError,
    checked,
    from_mapping as from_mapping,
    to_mapping as to_mapping,
)

Config = TypeVar("Config")
Precision = Literal["32-true", "bf16-mixed"]

# The paper's section 4.1: 200 epochs on UDED, which is small, and 50 elsewhere.
PAPER_EPOCHS = {"uded": 200}
OTHER_EPOCHS = 50
# A square of this side has as many pixels as the largest picture that is read.
MOST_CROP = 2**13


@dataclass(frozen=True)
class DataConfig:
    """Which images: the arguments of `load_dataset`.

    Args:
        name: BSDS500, BRIND, UDED, BIPED2, folder or synthetic.
        split: train, pretrain, validation, test or all.
        root: Its folder; found by `load_dataset` if none is given.
        options: Further options of that data set.
    """

    name: str
    split: str = "train"
    root: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelConfig:
    """Which network: the arguments of `create_model`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """What any training needs but its loss; the defaults are the paper's.

    Args:
        data: The images to train on.
        model: The network.
        epochs: Passes over the samples; if none is given 200 on UDED and 50 elsewhere.
        seed: Of the first weights, the order of the samples, and what a model draws at random.
        batch_size: Samples a step, over all devices.
        crop: Side of the square cut out of an image.
        refresh: Epochs that keep the same crops, see `CropSettings`.
        turns: Each image in eight turns and flips, or as it is.
        noiseless: Each label also as an image.
        learning_rate: Of Adam.
        weight_decay: Of Adam.
        precision: 32-true, or bf16-mixed; losses are in float32 with either.
        validate_every: Epochs from one validation score to the next; 0 for none.
        validation_split: Images of the data set to validate on.
        validation_protocol: How they are scored.
        checkpoint_seconds: Time from one checkpoint to the next.
    """

    data: DataConfig
    model: ModelConfig
    epochs: int | None = None
    seed: int = 0
    batch_size: int = 8
    crop: int = 320
    refresh: int = 1
    turns: bool = True
    noiseless: bool = True
    learning_rate: float = 1e-4
    weight_decay: float = 1e-8
    precision: Precision = "32-true"
    validate_every: int = 0
    validation_split: str = "validation"
    validation_protocol: str = "paper-strict"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Refuse values of another type or out of range."""
        for name, wanted in get_type_hints(type(self)).items():
            given = getattr(self, name)
            if not dataclasses.is_dataclass(wanted):
                object.__setattr__(self, name, checked(name, given, wanted))
            elif not isinstance(given, wanted):  # type: ignore[arg-type]
                kind = wanted.__name__  # type: ignore[union-attr]
                raise KeyedError(name, f"{name} must be a {kind}, got {given!r}")
        least = {"epochs": 1, "seed": 0, "batch_size": 1, "crop": 1, "refresh": 1}
        least |= {"learning_rate": 0, "weight_decay": 0, "validate_every": 0}
        least |= {"checkpoint_seconds": 0}
        most = {"seed": 2**63 - 1, "learning_rate": 1e30, "weight_decay": 1e30}  # as torch takes
        most |= {"crop": MOST_CROP}
        for name, value in least.items():
            given = getattr(self, name)
            if given is not None and not value <= given < float("inf"):
                raise ConfigError(f"{name} must be at least {value} and finite, got {given}")
        for name, limit in most.items():
            if getattr(self, name) > limit:
                raise ConfigError(f"{name} must be at most {limit:g}, got {getattr(self, name)}")

    def resolved(self) -> Self:
        """With the paper's number of epochs where none was given."""
        epochs = self.epochs or PAPER_EPOCHS.get(self.data.name.lower(), OTHER_EPOCHS)
        return dataclasses.replace(self, epochs=epochs)


@dataclass(frozen=True)
class TrainConfig(Training):
    """A training with one loss.

    Args:
        loss: By name, see `losses.names`: wbce, baa-0.7, baa(base=swbce,threshold=0.6), ...
    """

    loss: str = "wbce"


@dataclass(frozen=True)
class ProtocolConfig(Training):
    """The paper's three steps for one network, one data set and several losses.

    The split of `data` is each step's own, and none may be given. Validation while training, if
    any, is that of the first step: in the last one there are no images left for it.

    Args:
        losses: By name; those called baa-sa take the threshold that the first step finds.
        scoring: Protocols to score the test images by. The threshold is calibrated by the first.
        retrain: Train anew on the images to validate, too; else each loss is trained once, without
            them, and a threshold is calibrated for each.
    """

    losses: tuple[str, ...] = ("wbce", "baa-0.7", "baa-sa")
    scoring: tuple[str, ...] = ("paper-strict",)
    retrain: bool = True

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        super().__post_init__()
        split = self.data.split
        if split != DataConfig.split:
            message = f"split must be left out, got {split!r}: each step of a protocol has its own"
            raise KeyedError("split", message, split)
        for name in ("losses", "scoring"):
            entries = getattr(self, name)
            if not entries or len(set(entries)) < len(entries):
                raise ConfigError(f"{name} must be at least one, each once, got {entries}")

    def stage(self, split: str, loss: str, model: ModelConfig | None = None) -> TrainConfig:
        """The training of one stage."""
        shared = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(Training)}
        shared |= {
            "data": dataclasses.replace(self.data, split=split),
            "model": model or self.model,
        }
        if split == "train":
            shared["validate_every"] = 0
        return TrainConfig(**shared, loss=loss)


def check_config(config: object, cls: type) -> None:
    """Refuse what is no configuration of that kind.

    >>> check_config({"data": "UDED"}, TrainConfig)
    Traceback (most recent call last):
    knifeedge.errors.ConfigError: config must be a TrainConfig, got dict
    """
    if not isinstance(config, cls):
        raise ConfigError(f"config must be a {cls.__name__}, got {type(config).__name__}")


def read_config(
    cls: type[Config],
    path: str | Path,
    change: Callable[[dict[str, Any]], dict[str, Any]] = lambda content: content,
) -> Config:
    """Read a configuration from a TOML or JSON file.

    Args:
        cls: A dataclass.
        path: The file; one that does not end in .json is TOML.
        change: What is to be done to its content first.

    Raises:
        ConfigError: The file cannot be read, or holds an unknown key or a value of another type;
            the line is named.

    >>> read_config(TrainConfig, "nowhere.toml")
    Traceback (most recent call last):
    knifeedge.errors.ConfigError: nowhere.toml cannot be read: No such file or directory
    """
    path = Path(path)
    try:
        text = path.read_text("utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise ConfigError(f"{path} is not {kind}: {error}") from None
    try:
        return from_mapping(cls, change(content))
    except KeyedError as error:
        line = _line_of(text, error.key, error.value)
        raise ConfigError(f"{path}{f', line {line}' if line else ''}: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _line_of(text: str, key: str, value: object = None) -> int | None:
    """The first line where a value stands at its key, else that of the value, else of the key.

    >>> _line_of('seeds = [0]\\nmodels = [\\n  { name = "heed" },\\n]', "models", "heed")
    3
    """
    name = rf"[\"']?{re.escape(key)}[\"']?\s*"
    patterns = [rf"^\s*(\[+\s*)?{name}[=:.\]]", rf"[\s{{,.]{name}[=:.\]]"]
    if isinstance(value, str):
        quoted = rf"[\"']{re.escape(value)}[\"']"
        patterns = [rf"\b{name}[=:]\s*{quoted}", quoted, *patterns]
    elif isinstance(value, int | float):
        patterns = [rf"\b{name}[=:]\s*{re.escape(str(value))}0*(?![\d.])", *patterns]
    lines = [line.partition(" #")[0] for line in text.splitlines()]
    for pattern in patterns:
        for number, line in enumerate(lines, start=1):
            if not line.lstrip().startswith("#") and re.search(pattern, line):
                return number
    return None
