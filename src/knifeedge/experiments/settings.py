"""What an experiment is: models x data sets x seeds, each cell one protocol run with all losses.

Every name is checked when the settings are made, so that a slip of the pen is refused before
anything trains and not after the hours that come before it in the grid.
"""

import dataclasses
import functools
import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from knifeedge.config import KeyedError, ProtocolConfig, Training, from_mapping
from knifeedge.data.datasets import DATA_SETS, data_options
from knifeedge.errors import ConfigError
from knifeedge.experiments.checks import check_distinct, check_known, checked_label
from knifeedge.losses.names import parse_loss
from knifeedge.metrics.protocols import PROTOCOLS
from knifeedge.models.registry import model_entry, model_names
from knifeedge.typed import check_options

HERE = " in this experiment"
# What [training] may set: everything of a training that is not an axis of the grid.
OVERRIDES = tuple(
    entry.name
    for entry in dataclasses.fields(Training)
    if entry.name not in ("data", "model", "seed")
)


@dataclass(frozen=True)
class ModelChoice:
    """A network of the grid.

    Args:
        name: As for `create_model`.
        options: As for `create_model`.
        label: What rows and folders call it; its name if none is given.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse an unknown name or option."""
        check_known("models", self.name, model_names(), "model")
        model_entry(self.name).check(self.options)
        object.__setattr__(self, "label", checked_label(self.label or self.name))


@dataclass(frozen=True)
class DataChoice:
    """A data set of the grid; the splits are the protocol's.

    Args:
        name: As for `load_dataset`.
        root: As for `load_dataset`.
        options: As for `load_dataset`.
        label: What rows and folders call it; its name if none is given.
    """

    name: str
    root: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse an unknown name or option."""
        proper = {name.lower(): name for name in DATA_SETS}
        name = proper.get(self.name.lower(), self.name)
        check_known("datasets", name, DATA_SETS, "data set")
        check_options(name, self.options, data_options(name))
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "label", checked_label(self.label or name))


@dataclass(frozen=True)
class PaperRow:
    """Published figures of one model on one data set with one loss.

    Args:
        model: Its label in the grid.
        data: Likewise.
        loss: One of the experiment's.
        protocol: One of the experiment's scoring protocols.
        ods: The published ODS, if any.
        ois: The published OIS, if any.
        threshold: The published threshold, found on validation images, if any.
    """

    model: str
    data: str
    loss: str
    protocol: str = "paper-strict"
    ods: float | None = None
    ois: float | None = None
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Refuse figures that are none."""
        for name in ("ods", "ois", "threshold"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise KeyedError(name, f"{name} must be in [0,1] in [paper], got {value}", value)


@dataclass(frozen=True)
class Cell:
    """One protocol run of the grid.

    Attributes:
        model: Its label.
        data: Its label.
        config: What to run.
    """

    model: str
    data: str
    config: ProtocolConfig

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.config.seed

    @property
    def name(self) -> str:
        """Of its folder: MODEL-DATA-SEED."""
        return f"{self.model}-{self.data}-{self.seed}"


@dataclass(frozen=True)
class ExperimentConfig:
    """An experiment.

    Args:
        title: In a few words.
        models: The networks.
        datasets: The data sets.
        losses: By name, see `losses.names`.
        grid: More losses: `loss` is a name with {fields}, and each field has a list of values.
        seeds: One run each.
        baseline: The loss that the others are compared with.
        scoring: Protocols to score the test images by; thresholds are calibrated by the first.
        retrain: As for `ProtocolConfig`; false trains each loss once.
        training: Settings of every training that are not the paper's, see `Training`.
        paper: Published figures, shown beside one's own.

    >>> config = ExperimentConfig(
    ...     "windows",
    ...     models=(ModelChoice("tiny"),),
    ...     datasets=(DataChoice("synthetic"),),
    ...     losses=("wbce",),
    ...     grid={"loss": "baa(window={window})", "window": [0.1, 0.2]},
    ... )
    >>> config.all_losses
    ('wbce', 'baa(window=0.1)', 'baa(window=0.2)')
    >>> [cell.name for cell in config.cells()]
    ['tiny-synthetic-0']
    """

    title: str
    models: tuple[ModelChoice, ...]
    datasets: tuple[DataChoice, ...]
    losses: tuple[str, ...] = ("wbce", "baa-0.7", "baa-sa")
    grid: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    baseline: str = "wbce"
    scoring: tuple[str, ...] = ("paper-strict",)
    retrain: bool = True
    training: Mapping[str, Any] = field(default_factory=dict)
    paper: tuple[PaperRow, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what names nothing, and what is there twice."""
        for text in self.all_losses:
            own = text in self.losses
            try:
                parse_loss(text)
            except ConfigError as error:
                key, written = ("losses", text) if own else ("loss", self.grid["loss"])
                raise KeyedError(key, str(error), written) from None
        for name in self.scoring:
            check_known("scoring", name, PROTOCOLS, "protocol")
        for key, entries in (
            ("models", [choice.label for choice in self.models]),
            ("datasets", [choice.label for choice in self.datasets]),
            ("losses", [_canonical(text) for text in self.all_losses]),
            ("seeds", list(self.seeds)),
            ("scoring", list(self.scoring)),
        ):
            check_distinct(key, entries)
        for seed in self.seeds:
            if seed < 0:
                raise KeyedError("seeds", f"seeds must be at least 0, got {seed}")
        _check_among("baseline", self.baseline, self.all_losses, "loss")
        self._check_training()
        folders = [f"{m.label}-{d.label}" for m in self.models for d in self.datasets]
        for name in folders:
            if folders.count(name) > 1:
                message = f"two runs would share the folder {name}-SEED; change a model's label"
                raise KeyedError("models", message)
        for row in self.paper:
            check_known("model", row.model, [m.label for m in self.models], "model", where=HERE)
            check_known("data", row.data, [d.label for d in self.datasets], "data set", where=HERE)
            _check_among("loss", row.loss, self.all_losses, "loss")
            check_known("protocol", row.protocol, self.scoring, "protocol", where=HERE)

    @property
    def all_losses(self) -> tuple[str, ...]:
        """The losses, those of the grid after the others."""
        return (*self.losses, *_expand(self.grid))

    @property
    def baseline_name(self) -> str:
        """The baseline as the losses spell it."""
        wanted = _canonical(self.baseline)
        return next(loss for loss in self.all_losses if _canonical(loss) == wanted)

    def cells(self) -> list[Cell]:
        """The runs, seed by seed: an experiment that is stopped has the first seed of all."""
        axes = itertools.product(self.seeds, self.datasets, self.models)
        return [
            Cell(model.label, data.label, self._protocol(model, data, seed))
            for seed, data, model in axes
        ]

    def published(self, model: str, data: str, loss: str, protocol: str) -> PaperRow | None:
        """The paper's figures for a row of the table, if it has any."""
        wanted = (model, data, _canonical(loss), protocol)
        for row in self.paper:
            if (row.model, row.data, _canonical(row.loss), row.protocol) == wanted:
                return row
        return None

    def _protocol(self, model: ModelChoice, data: DataChoice, seed: int) -> ProtocolConfig:
        content = {
            "model": {"name": model.name, "options": model.options},
            "data": {"name": data.name, "root": data.root, "options": data.options},
            "losses": self.all_losses,
            "scoring": self.scoring,
            "retrain": self.retrain,
            "seed": seed,
        }
        return from_mapping(ProtocolConfig, content | dict(self.training)).resolved()

    def _check_training(self) -> None:
        """Each override by itself, so that the one that is wrong is known."""
        for key, value in self.training.items():
            check_known(key, key, OVERRIDES, "setting", where=" in [training]")
            try:
                from_mapping(
                    ProtocolConfig,
                    {"data": {"name": "synthetic"}, "model": {"name": "tiny"}, key: value},
                )
            except ConfigError as error:
                raise KeyedError(key, f"{error} in [training]", value) from None
        if "validation_protocol" in self.training:
            name = self.training["validation_protocol"]
            check_known("validation_protocol", name, PROTOCOLS, "protocol")


def _expand(grid: Mapping[str, Any]) -> list[str]:
    """The losses of a grid; the last field varies fastest."""
    if not grid:
        return []
    axes = {key: values for key, values in grid.items() if key != "loss"}
    pattern = grid.get("loss")
    if not isinstance(pattern, str):
        raise KeyedError(
            "grid",
            f"[grid] needs loss, a name with fields such as baa(window={{window}}), got {pattern}",
        )
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None}
    except ValueError as error:
        raise KeyedError("loss", f"loss in [grid]: {error}, got {pattern!r}", pattern) from None
    for name in fields:
        check_known("loss", name, axes, "list of values", where=" in [grid]", written=pattern)
    for key, values in axes.items():
        check_known(key, key, fields, "field of loss", where=" in [grid]")
        if not isinstance(values, list | tuple) or not values:
            raise KeyedError(key, f"{key} must be a list of values in [grid], got {values!r}")
    combinations = itertools.product(*axes.values())
    return [pattern.format(**dict(zip(axes, values, strict=True))) for values in combinations]


@functools.cache
def _canonical(loss: str) -> str:
    """One spelling for a loss that may be written in several ways."""
    return str(parse_loss(loss))


def _check_among(key: str, loss: str, losses: Sequence[str], what: str) -> None:
    """Refuse a loss that is, in any spelling, not one of the experiment's."""
    try:
        known = _canonical(loss) in map(_canonical, losses)
    except ConfigError as error:
        raise KeyedError(key, f"{key}: {error}", loss) from None
    if not known:
        check_known(key, loss, losses, what, where=HERE)
