"""What came of an experiment: one row a model, data set, loss and protocol, over its seeds.

The difference to the baseline is paired: a run has the same seed, and so the same first weights and
the same crops, with every loss. Its interval is Student's t: mean ± t(0.975, n-1) s / sqrt(n), with
the standard deviation s over n-1. With one seed there is neither.
"""

import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from knifeedge.config import ProtocolConfig
from knifeedge.disk import write_json
from knifeedge.engine.checkpoint import difference
from knifeedge.errors import ConfigError
from knifeedge.experiments.settings import Cell, ExperimentConfig, PaperRow
from knifeedge.results import RESULT

TABLE, RUNS, FAILURE = "table.json", "runs", "failure.json"
FORMAT = "knifeedge-experiment-1"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n-1) of one number over the seeds; none with one seed.

    >>> Spread.of([0.25, 0.75]).mean, Spread.of([0.5]).std
    (0.5, None)
    """

    mean: float
    std: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Of these values, at least one."""
        several = len(values) > 1
        return cls(statistics.fmean(values), statistics.stdev(values) if several else None)


@dataclass(frozen=True)
class Difference:
    """A paired difference, with the 95 % interval of its mean; none with one pair.

    >>> found = Difference.of([0.1, 0.3], [0.1, 0.1])
    >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
    (0.1, -1.171, 1.371)
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    @classmethod
    def of(cls, values: Sequence[float], baseline: Sequence[float]) -> "Difference":
        """Of values and the baseline's, seed by seed."""
        spread = Spread.of([value - base for value, base in zip(values, baseline, strict=True)])
        n = len(values)
        if spread.std is None:
            return cls(spread.mean, None, None, n)
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * spread.std / math.sqrt(n)
        return cls(spread.mean, spread.mean - half, spread.mean + half, n)


@dataclass(frozen=True)
class Row:
    """One loss with one model on one data set, by one scoring protocol.

    Attributes:
        seeds: Of the runs that are done.
        ods: On the test images.
        ois: On the test images.
        threshold: The one fixed without test images.
        at: F at that threshold, on the test images.
        half: F at 0.5, likewise.
        difference: Of the ODS, to the baseline; none for the baseline itself.
        paper: The published figures, if there are any.
    """

    model: str
    data: str
    loss: str
    protocol: str
    seeds: tuple[int, ...]
    ods: Spread
    ois: Spread
    threshold: Spread
    at: Spread
    half: Spread
    difference: Difference | None
    paper: PaperRow | None

    def to_dict(self) -> dict[str, Any]:
        """As `table.json` has it."""
        record = asdict(self) | {"seeds": list(self.seeds), "paper": None}
        if self.paper is not None:
            figures = {key: getattr(self.paper, key) for key in ("ods", "ois", "threshold")}
            record["paper"] = {key: value for key, value in figures.items() if value is not None}
        return record


@dataclass(frozen=True)
class Table:
    """What is there of an experiment.

    Attributes:
        title: The experiment's.
        baseline: The loss that the others are compared with.
        rows: By data set, protocol, model and loss; without those that have no run yet.
        failed: Runs that ended with an error, and the error.
        unfinished: Runs that are not done.
    """

    title: str
    baseline: str
    rows: tuple[Row, ...]
    failed: Mapping[str, str]
    unfinished: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The content of `table.json`."""
        return {
            "format": FORMAT,
            "title": self.title,
            "baseline": self.baseline,
            "rows": [row.to_dict() for row in self.rows],
            "failed": [{"run": run, "error": error} for run, error in self.failed.items()],
            "unfinished": list(self.unfinished),
        }

    def find(self, model: str, data: str, loss: str, protocol: str) -> Row | None:
        """The row of that model, data set, loss and protocol."""
        wanted = (model, data, loss, protocol)
        found = (r for r in self.rows if (r.model, r.data, r.loss, r.protocol) == wanted)
        return next(found, None)


def collect(config: ExperimentConfig, folder: str | Path) -> Table:
    """Make the table of the runs that are done, and write it to `table.json`.

    Args:
        config: The experiment.
        folder: Its folder.
    """
    table = tabulate(config, folder)
    write_json(Path(folder) / TABLE, table.to_dict())
    return table


def tabulate(config: ExperimentConfig, folder: str | Path) -> Table:
    """The table of the runs that are done; nothing is written."""
    folder = Path(folder)
    results: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    failed, unfinished = {}, []
    for cell in config.cells():
        where, run = run_folder(folder, cell), f"{RUNS}/{cell.name}"
        losses = finished(where, cell.config)
        if losses is not None:
            results.setdefault((cell.model, cell.data), {})[cell.seed] = losses
        elif (where / FAILURE).is_file():
            failed[run] = _failure(where / FAILURE)
        else:
            unfinished.append(run)
    labels = itertools.product(
        [choice.label for choice in config.datasets],
        config.scoring,
        [choice.label for choice in config.models],
    )
    rows = [
        _row(config, model, data, loss, protocol, results[model, data])
        for data, protocol, model in labels
        if (model, data) in results
        for loss in config.all_losses
    ]
    return Table(config.title, config.baseline_name, tuple(rows), failed, tuple(unfinished))


def run_folder(folder: Path, cell: Cell) -> Path:
    """Where a cell's run is."""
    return folder / RUNS / cell.name


def finished(run: Path, config: ProtocolConfig) -> dict[str, Any] | None:
    """What came of each loss, by name, if the run is done, whole and of this configuration."""
    try:
        result = json.loads((run / RESULT).read_text())
        if difference(result["config"], config):
            return None
        losses = {entry["loss"]: entry for entry in result["losses"]}
        for loss, protocol in itertools.product(config.losses, config.scoring):
            scores = losses[loss]["scores"][protocol]
            needed = scores["ods"], scores["ois"], scores["at"]["f"], scores["at_half"]["f"]
            sum((*needed, losses[loss]["threshold"]))
    except (OSError, ValueError, LookupError, AttributeError, TypeError, ConfigError):
        return None  # a damaged result is made anew
    return losses


def improvement(value: float, baseline: float) -> float | None:
    """The gain in percent of the baseline, as the paper's tables have it.

    >>> round(improvement(0.731, 0.712), 2)
    2.67
    """
    return 100 * (value - baseline) / baseline if baseline else None


def _row(
    config: ExperimentConfig,
    model: str,
    data: str,
    loss: str,
    protocol: str,
    results: Mapping[int, Mapping[str, Any]],
) -> Row:
    """The row of a loss, from the results by seed and loss."""

    def numbers(of: str, key: str) -> list[float]:
        return [float(by_loss[of]["scores"][protocol][key]) for by_loss in results.values()]

    base = config.baseline_name
    own = [by_loss[loss] for by_loss in results.values()]
    return Row(
        model,
        data,
        loss,
        protocol,
        tuple(results),
        ods=Spread.of(numbers(loss, "ods")),
        ois=Spread.of(numbers(loss, "ois")),
        threshold=Spread.of([entry["threshold"] for entry in own]),
        at=Spread.of([entry["scores"][protocol]["at"]["f"] for entry in own]),
        half=Spread.of([entry["scores"][protocol]["at_half"]["f"] for entry in own]),
        difference=None
        if loss == base
        else Difference.of(numbers(loss, "ods"), numbers(base, "ods")),
        paper=config.published(model, data, loss, protocol),
    )


def _failure(path: Path) -> str:
    try:
        return str(json.loads(path.read_text())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{path} cannot be read"
