"""The records in results/: NAME-SEED.json, one protocol run each, read and brought together.

Records of one name differ in nothing but the seed. Those of the four folds of a cross-validation
are pooled: a seed's counts are summed over all images before any score is taken of them, as if one
run had tested them all.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knifeedge.errors import DataError
from knifeedge.experiments.table import Difference, Spread
from knifeedge.metrics.curves import best_point, nearest_threshold, precision_recall_f
from knifeedge.metrics.scores import EdgeScores

RESULTS = Path(__file__).parents[2] / "results"
STRICT, RELAXED = "paper-strict", "paper-relaxed"
BASELINE = "wbce"
COLUMNS = ("matched_truth", "truth", "matched_map", "map")
# The version whose maps have false edges along two borders: docs/models.md, Borders.
FALSE_BORDERS = "0.1.0"
WITH_FALSE_BORDERS = (
    f"These scores are of version {FALSE_BORDERS}, which saw [false edges along two"
    " borders](models.md#borders) and so lowered the strict ones, those of all losses alike."
)

Record = dict[str, Any]
Runs = dict[int, dict[tuple[str, str], dict[str, float]]]  # seed; loss, protocol; ods, ois, f


@dataclass(frozen=True)
class Group:
    """The records of one name, by seed."""

    name: str
    records: dict[int, Record]

    @property
    def first(self) -> Record:
        return next(iter(self.records.values()))

    @property
    def config(self) -> Record:
        return self.first["config"]

    @property
    def outdated(self) -> list[int]:
        """The seeds whose maps have false edges along two borders."""
        return [s for s, record in self.records.items() if record["version"] == FALSE_BORDERS]

    def beside(self, other: "Group") -> Runs:
        """Its runs of the seeds that another has, too, and scored as this does at the borders."""
        return {
            seed: scores
            for seed, scores in self.runs.items()
            if seed in other.records and (seed in self.outdated) == (seed in other.outdated)
        }

    @property
    def runs(self) -> Runs:
        """ODS, OIS, and F at the threshold fixed without the test images."""
        return {
            seed: {
                (entry["loss"], protocol): {
                    "ods": scores["ods"],
                    "ois": scores["ois"],
                    "f": scores["at"]["f"],
                }
                for entry in record["losses"]
                for protocol, scores in entry["scores"].items()
            }
            for seed, record in self.records.items()
        }


def read_groups(paths: Iterable[Path]) -> dict[str, Group]:
    """The records in these files by name; files that are not NAME-SEED.json are left out."""
    found: dict[str, dict[int, Record]] = {}
    for path in sorted(paths):
        named = re.fullmatch(r"(.+)-(\d+)\.json", path.name)
        if named is None:
            continue
        record, seed = json.loads(path.read_text()), int(named[2])
        if record["config"]["seed"] != seed:
            raise DataError(f"{path} is of seed {record['config']['seed']}; its name says {seed}")
        found.setdefault(named[1], {})[seed] = record
    for name, records in found.items():
        first, *others = (record["config"] for record in records.values())
        for config in others:
            if key := unlike(first, config):
                raise DataError(
                    f"the records {name}-SEED.json are not of one configuration: {key} is"
                    f" {first[key]!r} and {config[key]!r}; give some of them another name"
                )
    return {name: Group(name, dict(sorted(records.items()))) for name, records in found.items()}


def unlike(one: Record, other: Record) -> str | None:
    """The first setting, other than the seed, in which two configurations differ.

    A setting that only one of them has came in after the other was written, with a default that
    changes nothing.
    """
    shared = (key for key in one if key in other and key != "seed")
    return next((key for key in shared if one[key] != other[key]), None)


def counts_record(scores: EdgeScores) -> dict[str, Any]:
    """What of the counts it takes to pool the scores of several folds exactly."""
    best = precision_recall_f(scores.counts).f.argmax(axis=1)
    chosen = scores.counts[np.arange(len(best)), best]
    columns = zip(COLUMNS, scores.counts.sum(axis=0).T.tolist(), strict=True)
    return dict(columns) | {"images": dict(zip(scores.names, chosen.tolist(), strict=True))}


def pooled(folds: Sequence[Group]) -> Runs:
    """The scores over all folds, of the seeds that have all of them."""
    if not folds:
        return {}
    seeds = set.intersection(*(set(fold.records) for fold in folds))
    return {seed: _pool([fold.records[seed] for fold in folds]) for seed in sorted(seeds)}


def column(runs: Runs, loss: str, protocol: str, key: str) -> dict[int, float]:
    """One number of a loss by seed, where there is one."""
    entry = (loss, protocol)
    return {seed: scores[entry][key] for seed, scores in runs.items() if entry in scores}


def spread(values: dict[int, float]) -> Spread:
    """Mean and deviation over the seeds."""
    return Spread.of(list(values.values()))


def compare(values: dict[int, float], base: dict[int, float]) -> Difference | None:
    """The paired difference over the seeds that both have; none without one."""
    seeds = [seed for seed in values if seed in base]
    if not seeds:
        return None
    return Difference.of([values[seed] for seed in seeds], [base[seed] for seed in seeds])


def _pool(records: Sequence[Record]) -> dict[tuple[str, str], dict[str, float]]:
    """Scores by loss and protocol of the images of several records."""
    entries = [{entry["loss"]: entry for entry in record["losses"]} for record in records]
    return {
        (loss, protocol): _pool_one(
            [record["counts"][loss][protocol] for record in records],
            [entry[loss]["threshold"] for entry in entries],
        )
        for loss in entries[0]
        if all(loss in entry for entry in entries)
        for protocol in entries[0][loss]["scores"]
    }


def _pool_one(counts: Sequence[dict[str, Any]], thresholds: Sequence[float]) -> dict[str, float]:
    tables = [np.array([part[name] for name in COLUMNS]).T for part in counts]
    images = {name: row for part in counts for name, row in part["images"].items()}
    if len(images) < sum(len(part["images"]) for part in counts):
        raise DataError("an image is tested in two folds; the records are not of one division")
    # Each fold has its own threshold, fixed without its test images.
    fixed = sum(
        table[nearest_threshold(value)] for table, value in zip(tables, thresholds, strict=True)
    )
    return {
        "ods": best_point(precision_recall_f(sum(tables))).f,
        "ois": float(precision_recall_f(np.array(list(images.values())).sum(axis=0)).f),
        "f": float(precision_recall_f(fixed).f),
    }
