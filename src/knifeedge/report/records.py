"""What a report is made of: runs as they were read from their folders, and what was wrong there.

Nothing here is computed: a run holds what its files say. A file that is missing or damaged leaves
its field empty and a `Fault` beside it, so that one bad file never hides the rest of a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from knifeedge.metrics.curves import Floats, Point
from knifeedge.metrics.scores import EdgeScores
from knifeedge.report.loss_names import base_of

Record = Mapping[str, Any]

# The scores of a result, in the order of the tables.
MEASURES = ("ods", "ois", "ois_mean", "ap", "r50", "crispness")


@dataclass(frozen=True)
class Fault:
    """A run, or a part of one, that is unfinished or cannot be read, and why."""

    where: str
    kind: Literal["unfinished", "damaged", "failed"]
    reason: str


@dataclass(frozen=True)
class Log:
    """A training run's `log.csv`, one entry an epoch; NaN where nothing was measured."""

    epoch: Floats
    loss: Floats
    validation_ods: Floats
    threshold: Floats


@dataclass(frozen=True)
class Training:
    """One training run.

    Attributes:
        name: Where it is, as the page names it.
        config: The resolved configuration; empty where it could not be read.
        log: Loss by epoch, if there is a log.
    """

    name: str
    config: Record
    log: Log | None


@dataclass(frozen=True)
class Scored:
    """One loss under one scoring protocol.

    Attributes:
        summary: The numbers of `MEASURES`, and `threshold`, where the ODS is reached.
        at: The scores at the threshold fixed without the test images.
        scores: Counts and curves; None where only the summary is left.
    """

    summary: Mapping[str, float]
    at: Point | None
    scores: EdgeScores | None


@dataclass(frozen=True)
class Outcome:
    """What training with one loss gave.

    Attributes:
        loss: The loss's name.
        folder: Its run, with predictions.
        threshold: Fixed without the test images; None if it is not known.
        threshold_from: Where it comes from, in words.
        training: Configuration and log.
        scored: By the scoring protocol's name.
    """

    loss: str
    folder: Path
    threshold: float | None
    threshold_from: str
    training: Training
    scored: Mapping[str, Scored]


@dataclass(frozen=True)
class Calibration:
    """A threshold found on validation images, with F at the 99 thresholds."""

    base: str
    threshold: float
    score: float
    curve: Floats | None


@dataclass(frozen=True)
class ProtocolRun:
    """One model on one data set with several losses: a protocol's folder.

    Attributes:
        name: Where it is, as the page names it.
        folder: The folder.
        config: The protocol's configuration.
        result: `result.json`; None while the run is unfinished.
        outcomes: One a loss, in the configuration's order.
        calibrations: Thresholds from the validation images.
        pretraining: The training runs these come from.
        gallery: Names of the test images that the folder holds to look at.
    """

    name: str
    folder: Path
    config: Record
    result: Record | None
    outcomes: tuple[Outcome, ...]
    calibrations: tuple[Calibration, ...]
    pretraining: tuple[Training, ...]
    gallery: tuple[str, ...]

    @property
    def model(self) -> str:
        """The model's name."""
        return name_of(self.config.get("model"))

    @property
    def data(self) -> str:
        """The data set's name."""
        return name_of(self.config.get("data"))

    @property
    def title(self) -> str:
        """The run in words."""
        seed = self.config.get("seed")
        words = f"{self.model} on {self.data}" + ("" if seed is None else f", seed {seed}")
        return words if self.result is not None else f"{words} (unfinished)"

    @property
    def protocols(self) -> tuple[str, ...]:
        """The scoring protocols that occur, in the order of the configuration."""
        known = self.config.get("scoring")
        order = [str(name) for name in known] if isinstance(known, list) else []
        found = {name: None for outcome in self.outcomes for name in outcome.scored}
        return tuple(sorted(found, key=lambda n: order.index(n) if n in order else len(order)))

    def baseline(self, loss: str) -> str | None:
        """What a loss is compared with: its base, if that was trained; None for a base itself."""
        base = base_of(loss)
        return base if any(outcome.loss == base for outcome in self.outcomes) else None


@dataclass(frozen=True)
class Experiment:
    """A grid of protocol runs with its table."""

    name: str
    title: str
    baseline: str
    rows: tuple[Record, ...]


@dataclass
class Contents:
    """Everything that was found, in the order it was found."""

    experiments: list[Experiment] = field(default_factory=list)
    runs: list[ProtocolRun] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to show but faults."""
        return bool(self.experiments or self.runs or self.trainings)


def name_of(entry: object) -> str:
    """The name in a configuration's entry, which is a record or the name itself.

    >>> name_of({"name": "hed", "options": {}}), name_of("hed"), name_of(None)
    ('hed', 'hed', 'unknown')
    """
    if isinstance(entry, Mapping):
        entry = entry.get("name")
    return str(entry) if entry else "unknown"
