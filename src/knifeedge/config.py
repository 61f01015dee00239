"""Settings as frozen dataclasses: TOML or JSON in, JSON out.

Each default stands here once; the command line and the documentation show it from here. A key that
does not exist is refused with the nearest one that does, a value of another type with the type.
"""

import dataclasses
import difflib
import json
import re
import tomllib
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from knifeedge.errors import ConfigError

Config = TypeVar("Config")
Precision = Literal["32-true", "bf16-mixed"]

# The paper's section 4.1: 200 epochs on UDED, which is small, and 50 elsewhere.
PAPER_EPOCHS = {"uded": 200}
OTHER_EPOCHS = 50


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
        """Refuse values out of range."""
        least = {"epochs": 1, "seed": 0, "batch_size": 1, "crop": 1, "refresh": 1}
        least |= {"learning_rate": 0, "weight_decay": 0, "validate_every": 0}
        least |= {"checkpoint_seconds": 0}
        most = {"seed": 2**63 - 1, "learning_rate": 1e30, "weight_decay": 1e30}  # as torch takes
        for name, value in least.items():
            given = getattr(self, name)
            if given is not None and not value <= given < float("inf"):
                raise ConfigError(f"{name} must be at least {value} and finite, got {given}")
        for name, limit in most.items():
            if getattr(self, name) > limit:
                raise ConfigError(f"{name} must be at most {limit:g}, got {getattr(self, name)}")
        if self.precision not in get_args(Precision):
            known = ", ".join(get_args(Precision))
            raise ConfigError(f"precision must be one of {known}, got {self.precision!r}")

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

    The split of `data` is each step's own. Validation while training, if any, is that of the first
    step: in the last one there are no images left for it.

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


def from_mapping(cls: type[Config], content: Any, where: str = "") -> Config:
    """A configuration from what a TOML or JSON file holds.

    Args:
        cls: A dataclass, whose fields may be dataclasses.
        content: Its fields by name; a nested field may be missing if it has a default.
        where: The table it is from, for messages.

    >>> from_mapping(ModelConfig, {"nam": "hed"})
    Traceback (most recent call last):
    knifeedge.config.KeyedError: there is no key 'nam' (the closest is 'name'); there are name, ...
    """
    if not isinstance(content, Mapping):
        raise KeyedError(where, f"{where or 'a configuration'} must be a table, got {content!r}")
    fields = {entry.name: entry for entry in dataclasses.fields(cls)}  # type: ignore[arg-type]
    types_of, values, inside = get_type_hints(cls), {}, f" in [{where}]" if where else ""
    for key, value in content.items():
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            hint = f" (the closest is {close[0]!r})" if close else ""
            known = ", ".join(fields)
            raise KeyedError(key, f"there is no key {key!r}{inside}{hint}; there are {known}")
        values[key] = _checked(types_of[key], value, key)
    required = (dataclasses.MISSING, dataclasses.MISSING)
    for name, entry in fields.items():
        if name not in values and (entry.default, entry.default_factory) == required:
            raise ConfigError(f"{name} is missing{inside}")
    return cls(**values)


def to_mapping(config: Any) -> dict[str, Any]:
    """A configuration as JSON values; `from_mapping` gives it back.

    >>> to_mapping(ModelConfig("hed", {"side_channels": 21}))
    {'name': 'hed', 'options': {'side_channels': 21}}
    """
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    return plain


class KeyedError(ConfigError):
    """A configuration error at one key, and there at one value where that is known."""

    def __init__(self, key: str, message: str, value: object = None) -> None:
        super().__init__(message)
        self.key, self.value = key, value


def _checked(wanted: Any, value: Any, key: str) -> Any:
    """The value as the wanted type; a whole number does as a float, a list as a tuple."""
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return from_mapping(wanted, value, key)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (wanted,) = (kind for kind in arguments if kind is not type(None))
        return _checked(wanted, value, key)
    if origin is Literal:
        if value not in arguments:
            known = ", ".join(map(repr, arguments))
            raise KeyedError(key, f"{key} must be one of {known}, got {value!r}")
        return value
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise KeyedError(key, f"{key} must be a list, got {value!r}")
        return tuple(_checked(arguments[0], item, key) for item in value)
    if origin is not None:  # Mapping[str, Any]
        origin, wanted = None, Mapping
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise KeyedError(key, f"{key} must be of type float, got a larger number") from None
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        kind = "table" if wanted is Mapping else wanted.__name__
        raise KeyedError(key, f"{key} must be of type {kind}, got {value!r}")
    return value


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
