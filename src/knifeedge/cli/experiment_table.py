"""An experiment's table for the terminal: one table a data set and protocol, as in the paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from rich.markup import escape
from rich.table import Table as RichTable

from knifeedge.experiments.table import improvement

if TYPE_CHECKING:
    from knifeedge.experiments import Difference, Row, Spread, Table

ABSENT = "-"


class _Figures(NamedTuple):
    """The numbers of a row that are compared with the baseline's."""

    ods: float
    paper_ods: float | None


def rich_tables(table: Table, protocols: Sequence[str]) -> Iterator[RichTable]:
    """The tables of these scoring protocols.

    Args:
        table: What was collected.
        protocols: In this order.
    """
    groups = dict.fromkeys((r.protocol, r.data) for r in table.rows)
    for protocol in protocols:
        for data in (d for p, d in groups if p == protocol):
            rows = [r for r in table.rows if (r.protocol, r.data) == (protocol, data)]
            yield _table(f"{table.title}: {data}, {protocol}", table.baseline, rows)


def _table(title: str, baseline: str, rows: Sequence[Row]) -> RichTable:
    paper = any(row.paper is not None for row in rows)
    threshold = any(row.paper is not None and row.paper.threshold is not None for row in rows)
    drawn = RichTable(title=escape(title), caption=_caption(rows))
    drawn.add_column("model")
    drawn.add_column("loss", overflow="fold")
    heads = ["seeds", "ODS", "gain", f"difference to {escape(baseline)}", "OIS"]
    heads += ["threshold", "F there"]
    heads += [] if paper else ["F at 0.5"]
    if paper:
        heads += ["paper: ODS", "gain", "OIS"] + (["threshold"] if threshold else [])
    for head in heads:
        drawn.add_column(head, justify="right")
    models = {
        model: [r for r in rows if r.model == model]
        for model in dict.fromkeys(row.model for row in rows)
    }
    for model, own in models.items():
        base = next(_figures(row) for row in own if row.loss == baseline)
        for row in own:
            name = escape(model) if row is own[0] else ""
            last = row is own[-1]
            drawn.add_row(name, *_cells(row, base, paper, threshold), end_section=last)
    if len(models) > 1:
        _add_average(drawn, baseline, list(models.values()), paper)
    return drawn


def _cells(row: Row, base: _Figures, paper: bool, threshold: bool) -> list[str]:
    own, is_base = _figures(row), row.difference is None
    cells = [
        escape(row.loss),
        str(len(row.seeds)),
        _spread(row.ods),
        "" if is_base else _percent(own.ods, base.ods),
        _difference(row.difference),
        _spread(row.ois),
        _spread(row.threshold, 2),
        _spread(row.at),
    ]
    if not paper:
        cells.append(_spread(row.half))
    if paper:
        published = row.paper
        cells += [
            _number(own.paper_ods),
            "" if is_base else _percent(own.paper_ods, base.paper_ods),
            _number(published.ois if published else None),
        ]
        if threshold:
            cells.append(_number(published.threshold if published else None, 2))
    return cells


def _add_average(
    drawn: RichTable, baseline: str, models: Sequence[Sequence[Row]], paper: bool
) -> None:
    """The mean over the models, with its gain, as the paper's last rows have it."""
    averages = {}
    for loss in (row.loss for row in models[0]):
        rows = [next(r for r in own if r.loss == loss) for own in models]
        averages[loss] = rows
    base = _average(averages[baseline])
    for loss, rows in averages.items():
        own, is_base = _average(rows), loss == baseline
        cells = [
            f"average of {len(models)} models" if loss == models[0][0].loss else "",
            escape(loss),
            "",
            _number(own.ods),
            "" if is_base else _percent(own.ods, base.ods),
            "",
            _number(fmean(row.ois.mean for row in rows)),
            _number(fmean(row.threshold.mean for row in rows), 2),
            _number(fmean(row.at.mean for row in rows)),
        ]
        if not paper:
            cells.append(_number(fmean(row.half.mean for row in rows)))
        if paper:
            gain = "" if is_base else _percent(own.paper_ods, base.paper_ods)
            ois = [row.paper.ois if row.paper else None for row in rows]
            cells += [_number(own.paper_ods), gain, _number(_mean(ois))]
        drawn.add_row(*cells)


def _figures(row: Row) -> _Figures:
    return _Figures(row.ods.mean, row.paper.ods if row.paper else None)


def _average(rows: Sequence[Row]) -> _Figures:
    figures = [_figures(row) for row in rows]
    return _Figures(fmean(f.ods for f in figures), _mean([f.paper_ods for f in figures]))


def _mean(values: Sequence[float | None]) -> float | None:
    """Of all values, where there are all."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def _caption(rows: Sequence[Row]) -> str:
    counts = {len(row.seeds) for row in rows}
    words = "threshold: fixed without the test images; ODS and OIS are tuned on them"
    if counts == {1}:
        return f"{words}. One seed: no standard deviation, no interval"
    if 1 in counts:
        words += ". Where there is one seed there is no standard deviation and no interval"
    return f"{words}. ± standard deviation over the seeds, [] 95 % interval of the mean difference"


def _number(value: float | None, digits: int = 3) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _spread(spread: Spread, digits: int = 3) -> str:
    text = f"{spread.mean:.{digits}f}"
    return text if spread.std is None else f"{text} ± {spread.std:.{digits}f}"


def _percent(value: float | None, base: float | None) -> str:
    gain = improvement(value, base) if value is not None and base is not None else None
    return ABSENT if gain is None else f"{gain:+.2f} %"


def _difference(found: Difference | None) -> str:
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.mean:+.3f}"
    return escape(f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]")
