"""How the runs were made, as tables: configuration, seeds, versions, data, scoring protocols."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from knifeedge.report.records import Contents, ProtocolRun, Record, Training
from knifeedge.report.tables import ABSENT, Cell, Row, Table

_RESULT_KEYS = ("version", "commit", "torch", "device", "seconds", "images")


def settings_tables(contents: Contents) -> list[Table]:
    """A table of settings for each protocol run and each training run that stands alone."""
    tables = [_run_table(run) for run in contents.runs]
    return tables + [_training_table(training) for training in contents.trainings]


def protocol_table(contents: Contents) -> Table | None:
    """The scoring protocols in full."""
    found: dict[tuple[object, ...], None] = {}
    for run in contents.runs:
        for outcome in run.outcomes:
            for scored in outcome.scored.values():
                if scored.scores is not None:
                    found[tuple(scored.scores.protocol.to_dict().values())] = None
    if not found:
        return None
    rows = []
    for name, max_dist, unit, thin, nms in found:
        distance = f"{max_dist:g} px" if unit == "pixel" else f"{max_dist:g} of the diagonal"
        cells = (str(name), distance, "yes" if thin else "no", "yes" if nms else "no")
        rows.append(Row(tuple(map(Cell, cells))))
    return Table(
        "Scoring protocols",
        "Pixels are matched one to one, as many as possible, within the distance. Thresholds are "
        "0.01 to 0.99; an edge is where the map is at or above.",
        ("protocol", "largest distance", "maps thinned", "non-maxima suppressed"),
        tuple(rows),
        words=4,
    )


def flat(record: Record, prefix: str = "") -> dict[str, str]:
    """A configuration as one level of keys and texts.

    >>> flat({"data": {"name": "UDED", "root": None}, "losses": ["wbce", "baa-0.7"]})
    {'data.name': 'UDED', 'data.root': '–', 'losses': 'wbce, baa-0.7'}
    """
    found: dict[str, str] = {}
    for key, value in record.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = _text(value)
    return found


def _run_table(run: ProtocolRun) -> Table:
    entries = flat(run.config)
    if run.result is not None:
        entries |= flat({key: run.result[key] for key in _RESULT_KEYS if key in run.result})
    for calibration in run.calibrations:
        entries[f"calibrated with {calibration.base}"] = (
            f"threshold {calibration.threshold:g}, F {calibration.score:.3f} on validation images"
        )
    for outcome in run.outcomes:
        if outcome.threshold is not None:
            text = f"{outcome.threshold:g}, from {outcome.threshold_from}"
            entries[f"threshold of {outcome.loss}"] = text
    return _pairs(f"{run.title} ({run.name})", entries)


def _training_table(training: Training) -> Table:
    return _pairs(f"training run {training.name}", flat(training.config))


def _pairs(caption: str, entries: Mapping[str, str]) -> Table:
    rows = tuple(Row((Cell(key), Cell(text))) for key, text in entries.items())
    return Table(caption, "", ("setting", "value"), rows)


def _text(value: Any) -> str:
    if value is None or value in ({}, []):
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)
