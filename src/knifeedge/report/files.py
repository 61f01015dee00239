"""Reading a run's small files: whole and understood, or a DataError that says what is wrong."""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from knifeedge.errors import DataError
from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.curves import Floats, Point
from knifeedge.metrics.outputs import file_name
from knifeedge.metrics.scores import EdgeScores
from knifeedge.report.records import MEASURES, Log, Record, Scored


def read_record(path: Path, *, format: object = None) -> Record:
    """A JSON file that holds an object.

    Args:
        path: The file.
        format: What its entry `format` must be, where it has one; not looked at if none is given.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path.name} is missing") from None
    except OSError as error:
        raise DataError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path.name} is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise DataError(f"{path.name} must hold an object, got {type(record).__name__}")
    got = record.get("format", format)
    if format is not None and got != format:
        raise DataError(f"{path.name} has format {got!r}; this version reads {format!r}")
    return record


def read_log(path: Path) -> Log:
    """A training run's `log.csv`; a last line that was cut off is left out."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError:
        raise DataError(f"{path.name} is missing") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name} cannot be read: {error}") from error
    table: list[tuple[float, ...]] = []
    for number, row in enumerate(rows, start=2):
        try:
            rest = (row.get(key) or math.nan for key in ("validation_ods", "threshold"))
            table.append((float(row["epoch"]), float(row["loss"]), *map(float, rest)))
        except (KeyError, TypeError, ValueError):
            if number == len(rows) + 1 and table:
                break
            raise DataError(f"{path.name}, line {number}: epoch and loss must be numbers") from None
    if not table:
        raise DataError(f"{path.name} has no epochs yet")
    columns = np.array(table, dtype=np.float64).T
    return Log(*columns)


def read_scored(path: Path) -> Scored:
    """A `scores-PROTOCOL.json`: the scores computed anew from its counts."""
    record = read_record(path)
    try:
        scores = EdgeScores.from_dict(record)
    except DataError as error:
        raise DataError(f"{path.name}: {error}") from error
    summary = {name: float(getattr(scores, name)) for name in (*MEASURES, "threshold")}
    at = None
    if isinstance(record.get("at"), Mapping):
        at = scores.at(fraction(record["at"], "threshold", path.name))
    return Scored(summary, at, scores)


def read_summary(record: object, where: str) -> Scored:
    """The scores of one protocol in `result.json`, without counts."""
    if not isinstance(record, Mapping):
        raise DataError(f"{where} must hold an object, got {type(record).__name__}")
    summary = {name: number(record, name, where) for name in (*MEASURES, "threshold")}
    at, fixed = None, record.get("at")
    if isinstance(fixed, Mapping):
        at = Point(*(fraction(fixed, key, where) for key in Point._fields))
    return Scored(summary, at, None)


def read_curve(values: object) -> Floats | None:
    """The 99 F values of a calibration, or None where they are not that."""
    try:
        curve = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    whole = curve.shape == THRESHOLDS.shape and ((curve >= 0) & (curve <= 1)).all()
    return curve if whole else None


def number(record: Record, key: str, where: str) -> float:
    """A finite number of a record."""
    value = finite(record.get(key))
    if value is None:
        raise DataError(f"{where}: {key} must be a number, got {record.get(key)!r}")
    return value


def finite(value: object) -> float | None:
    """A finite number, or None where it is none.

    >>> finite(0.5), finite("0.5"), finite(10**400)
    (0.5, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # JSON sets no limit to whole numbers
        return None


def entries(record: Record, key: str, where: str) -> list[Any]:
    """A list of a record; empty where there is none."""
    value = record.get(key)
    if not isinstance(value, list | None):
        raise DataError(f"{where}: {key} must be a list, got {value!r}")
    return value or []


def fraction(record: Record, key: str, where: str) -> float:
    """A number in [0,1] of a record."""
    value = number(record, key, where)
    if not 0 <= value <= 1:
        raise DataError(f"{where}: {key} must be in [0,1], got {value:g}")
    return value


def plain_name(value: object, where: str) -> str:
    """A name that is part of a path, and cannot lead out of its folder."""
    try:
        name = file_name(str(value) if value else "")
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    if name in (".", ".."):
        raise DataError(f"{where}: a name must name something, got {name!r}")
    return name
