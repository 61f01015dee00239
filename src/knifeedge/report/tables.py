"""Tables in the paper's form, as plain records for the page and for Markdown.

Rows go by model and loss. Below each adjusted loss stands its relative improvement over the
baseline in percent; with several models, their averages follow, as in the paper. The best of each
model is bold. Numbers are rounded when they are shown, never before they are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from knifeedge.report.files import finite
from knifeedge.report.loss_names import base_of
from knifeedge.report.records import MEASURES, Contents, Experiment, ProtocolRun, Record, Scored

MINUS, ABSENT = "\N{MINUS SIGN}", "\N{EN DASH}"
MOST_PERCENT = 1000  # of an improvement; the base is next to nothing then
TITLES = {
    "ods": "ODS",
    "ois": "OIS",
    "ois_mean": "OIS mean",
    "ap": "AP",
    "r50": "R50",
    "crispness": "crispness",
}

# What an experiment's table may have of the paper's figures.
_PAPER = {"ods": "ODS", "ois": "OIS", "threshold": "threshold"}


@dataclass(frozen=True)
class Cell:
    """A cell's text, and whether it is the best of its model."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class Row:
    """A row; `kind` is "plain", "improvement", "average" or "first" (the first of a model)."""

    cells: tuple[Cell, ...]
    kind: str = "plain"


@dataclass(frozen=True)
class Table:
    """A table; the first `words` columns are text, the others numbers."""

    caption: str
    note: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    words: int = 2


@dataclass(frozen=True)
class _Line:
    """One model with one loss, before it is written down."""

    model: str
    loss: str
    numbers: Mapping[str, float]
    threshold: str
    at: float | None


def score_tables(contents: Contents) -> list[Table]:
    """One table for each data set and scoring protocol of the protocol runs."""
    groups: dict[tuple[str, str], list[tuple[ProtocolRun, list[_Line]]]] = {}
    for run in contents.runs:
        for protocol in run.protocols:
            lines = [
                _Line(
                    run.model,
                    outcome.loss,
                    outcome.scored[protocol].summary,
                    _fixed(outcome.threshold, outcome.threshold_from),
                    _f_there(outcome.scored[protocol]),
                )
                for outcome in run.outcomes
                if protocol in outcome.scored
            ]
            if lines:
                groups.setdefault((run.data, protocol), []).append((run, lines))
    return [_score_table(data, protocol, runs) for (data, protocol), runs in groups.items()]


def experiment_tables(experiment: Experiment) -> list[Table]:
    """One table for each data set and protocol: mean and deviation, difference, the paper's."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for row in experiment.rows:
        key = (str(row.get("data", "unknown")), str(row.get("protocol", "unknown")))
        groups.setdefault(key, []).append(row)
    return [_experiment_table(experiment, *key, rows) for key, rows in groups.items()]


def signed_percent(value: float, base: float) -> str:
    """Relative improvement, as the paper writes it.

    >>> signed_percent(0.727, 0.709), signed_percent(0.629, 0.630)
    ('+2.54 %', '−0.16 %')
    """
    if base == 0:
        return ABSENT
    percent = 100 * (value - base) / base
    if abs(percent) >= MOST_PERCENT:
        return f"over {_sign(MOST_PERCENT if percent > 0 else -MOST_PERCENT, 0)} %"
    return _sign(percent, 2) + " %"


def _score_table(
    data: str, protocol: str, runs: Sequence[tuple[ProtocolRun, list[_Line]]]
) -> Table:
    head = ("model", "loss", *(TITLES[name] for name in MEASURES), "fixed threshold", "F there")
    repeated = len({run.model for run, _ in runs}) < len(runs)
    rows: list[Row] = []
    for run, lines in runs:
        title = f"{run.model}, seed {run.config.get('seed')}" if repeated else run.model
        rows += _model_rows(title, lines)
    if not repeated and len(runs) > 1:
        rows += _average_rows(runs)
    tests = {count for run, _ in runs if (count := _test_images(run)) is not None}
    number = f", {tests.pop()} test images" if len(tests) == 1 else ""
    return Table(
        f"{data}, {protocol}{number}",
        "Improvement: relative to the loss without adjuster. The fixed threshold was set without "
        "the test images; ODS and OIS choose theirs on them.",
        head,
        tuple(rows),
    )


def _model_rows(title: str, lines: Sequence[_Line], kind: str = "first") -> Iterable[Row]:
    best = {name: max(line.numbers[name] for line in lines) for name in MEASURES}
    best_at = max((line.at for line in lines if line.at is not None), default=None)
    several = len(lines) > 1
    for number, line in enumerate(lines):
        cells = [Cell(title if number == 0 else ""), Cell(line.loss)]
        for name in MEASURES:
            value = line.numbers[name]
            cells.append(Cell(f"{value:.3f}", several and value == best[name]))
        at = ABSENT if line.at is None else f"{line.at:.3f}"
        cells += [Cell(line.threshold), Cell(at, several and line.at == best_at != None)]  # noqa: E711
        yield Row(tuple(cells), kind if number == 0 else "plain")
        baseline = next((other for other in lines if other.loss == base_of(line.loss)), None)
        if baseline is not None:
            changes = [
                Cell(signed_percent(line.numbers[name], baseline.numbers[name]))
                for name in MEASURES
            ]
            last = Cell("")
            if line.at is not None and baseline.at is not None:
                last = Cell(signed_percent(line.at, baseline.at))
            yield Row((Cell(""), Cell("improvement"), *changes, Cell(""), last), "improvement")


def _average_rows(runs: Sequence[tuple[ProtocolRun, list[_Line]]]) -> Iterable[Row]:
    """The mean over the models, for the losses that all of them have."""
    common = [
        line.loss
        for line in runs[0][1]
        if all(any(other.loss == line.loss for other in lines) for _, lines in runs)
    ]
    if not common:
        return []
    averages = []
    for loss in common:
        of_loss = [line for _, lines in runs for line in lines if line.loss == loss]
        numbers = {
            name: sum(line.numbers[name] for line in of_loss) / len(of_loss) for name in MEASURES
        }
        known = [line.at for line in of_loss if line.at is not None]
        at = sum(known) / len(known) if len(known) == len(of_loss) else None
        averages.append(_Line("", loss, numbers, "", at))
    return _model_rows(f"average of {len(runs)} models", averages, "average")


def _experiment_table(
    experiment: Experiment, data: str, protocol: str, rows: Sequence[Record]
) -> Table:
    shown = [key for key in _PAPER if any(_plain(row.get("paper"), key) for row in rows)]
    head = (
        *("model", "loss", "seeds", "ODS", "difference (95 % interval)", "OIS"),
        *(f"paper {_PAPER[key]}" for key in shown),
        *("fixed threshold", "F there"),
    )
    models: dict[str, list[Record]] = {}
    for row in rows:
        models.setdefault(str(row.get("model", "unknown")), []).append(row)
    written: list[Row] = []
    for model, of_model in models.items():
        best = {key: _best(of_model, key) for key in ("ods", "ois", "at")}
        base = next((row for row in of_model if row.get("loss") == experiment.baseline), None)
        for number, row in enumerate(of_model):
            several = len(of_model) > 1

            def spread(key: str, row: Record = row, several: bool = several) -> Cell:
                is_best = several and _mean(row, key) is not None and _mean(row, key) == best[key]  # noqa: B023
                return Cell(_spread(row.get(key)), is_best)

            seeds = row.get("seeds")
            cells = (
                Cell(model if number == 0 else ""),
                Cell(str(row.get("loss", "unknown"))),
                Cell(str(len(seeds)) if isinstance(seeds, list) else ABSENT),
                spread("ods"),
                Cell(_difference(row.get("difference"))),
                spread("ois"),
                *(Cell(_plain(row.get("paper"), key)) for key in shown),
                Cell(_spread(row.get("threshold"), 2)),
                spread("at"),
            )
            written.append(Row(cells, "first" if number == 0 else "plain"))
            if base is not None and row is not base:
                written.append(_improvement(row, base, shown))
    return Table(
        f"{experiment.title}: {data}, {protocol}",
        "Mean ± standard deviation over the seeds. The difference to the baseline is paired: "
        "same seed, same model. An interval that holds 0 tells no difference.",
        head,
        tuple(written),
    )


def _improvement(row: Record, base: Record, shown: Sequence[str]) -> Row:
    def change(mine: float | None, other: float | None) -> Cell:
        known = mine is not None and other is not None
        return Cell(signed_percent(mine, other) if known else "")  # type: ignore[arg-type]

    def paper(key: str) -> Cell:
        if key == "threshold":  # none is better than another
            return Cell("")
        return change(_number(row.get("paper"), key), _number(base.get("paper"), key))

    ods, ois, at = (change(_mean(row, key), _mean(base, key)) for key in ("ods", "ois", "at"))
    blank = Cell("")
    cells = (blank, Cell("improvement"), blank, ods, blank, ois, *map(paper, shown))
    return Row((*cells, blank, at), "improvement")


def _difference(entry: object) -> str:
    mean, low, high = (_number(entry, key) for key in ("mean", "low", "high"))
    if mean is None:
        return ""
    if low is None or high is None:
        return _sign(mean, 3)
    return f"{_sign(mean, 3)} ({_sign(low, 3)} to {_sign(high, 3)})"


def _fixed(threshold: float | None, origin: str) -> str:
    if threshold is None:
        return ABSENT
    words = {
        "the loss": "in the loss",
        "validation": "calibrated",
        "training": "found while training",
    }.get(origin, "")
    return f"{threshold:.2f}" + (f" ({words})" if words else "")


def _f_there(scored: Scored) -> float | None:
    return None if scored.at is None else scored.at.f


def _test_images(run: ProtocolRun) -> int | None:
    images = run.result.get("images") if run.result is not None else None
    count = images.get("test") if isinstance(images, Mapping) else None
    return count if isinstance(count, int) else None


def _best(rows: Sequence[Record], key: str) -> float | None:
    known = [mean for row in rows if (mean := _mean(row, key)) is not None]
    return max(known, default=None)


def _mean(row: Record, key: str) -> float | None:
    return _number(row.get(key), "mean")


def _number(entry: object, key: str) -> float | None:
    return finite(entry.get(key)) if isinstance(entry, Mapping) else None


def _plain(entry: object, key: str) -> str:
    value = _number(entry, key)
    return "" if value is None else f"{value:.3f}"


def _spread(entry: object, digits: int = 3) -> str:
    mean, deviation = _number(entry, "mean"), _number(entry, "std")
    if mean is None:
        return ABSENT
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def _sign(value: float, digits: int) -> str:
    text = f"{abs(value):.{digits}f}"
    return (MINUS if value < 0 and float(text) else "+") + text
