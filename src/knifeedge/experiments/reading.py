"""Experiments from TOML files: one's own, and the paper's, which come with the package."""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from knifeedge.config import read_config
from knifeedge.errors import ConfigError
from knifeedge.experiments.settings import Cell, ExperimentConfig

SHIPPED = Path(str(files("knifeedge"))) / "experiment_files"


@dataclass(frozen=True)
class Named:
    """An experiment by name.

    Attributes:
        name: How it is called.
        about: One line.
        path: Its file; two names may share it, and with it all runs.
        protocols: The scoring protocols it shows; all if there are none.
    """

    name: str
    about: str
    path: Path
    protocols: tuple[str, ...] = ()


_TABLES = SHIPPED / "tables-2-5.toml"
EXPERIMENTS = {
    entry.name: entry
    for entry in (
        Named("table-1", "best thresholds under WBCE, on validation", SHIPPED / "table-1.toml"),
        Named("tables-2-3", "three losses, strict scores", _TABLES, ("paper-strict",)),
        Named("tables-4-5", "the same runs, relaxed scores", _TABLES, ("paper-relaxed",)),
        Named("tables-2-5", "the same runs, both scores", _TABLES),
        Named("ablation", "windows 0.1 to 0.7 x decays 8, 16, 32", SHIPPED / "ablation.toml"),
        Named("comparison", "18 losses on made-up scenes", SHIPPED / "comparison.toml"),
        Named("comparison-uded", "the same on UDED", SHIPPED / "comparison-uded.toml"),
    )
}


def find_experiment(name: str | Path) -> Named:
    """The experiment of that name, else the one in that file.

    >>> find_experiment("tables-2-3").protocols
    ('paper-strict',)
    """
    if str(name) in EXPERIMENTS:
        return EXPERIMENTS[str(name)]
    path = Path(name)
    if not path.is_file():
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(f"there is no file {name}, and no experiment so named; there are {known}")
    return Named(path.stem, "", path)


def read_experiment(name: str | Path) -> ExperimentConfig:
    """Read an experiment file, or one of the paper's experiments by name.

    Raises:
        ConfigError: The file cannot be read, or names something that does not exist; the line and
            the nearest valid name are given.

    >>> len(read_experiment("table-1").cells())
    48
    """
    return read_config(ExperimentConfig, find_experiment(name).path, _tables)


def select_cells(config: ExperimentConfig, only: str) -> list[Cell]:
    """Some runs of an experiment, such as "model=hed,data=UDED,seed=0,seed=1".

    Args:
        config: The experiment.
        only: Conditions; of those on the same thing, one has to hold.

    >>> [cell.name for cell in select_cells(read_experiment("ablation"), "seed=2")]
    ['ees3-double-BRIND-2']
    """
    cells, wanted = config.cells(), dict[str, list[str]]()
    known = {key: [str(getattr(cell, key)) for cell in cells] for key in ("model", "data", "seed")}
    for condition in only.split(","):
        key, equals, value = condition.strip().partition("=")
        if not equals or key not in known:
            raise ConfigError(
                f"--only must be such as model=hed,data=UDED,seed=0, got {condition!r}"
            )
        if value not in known[key]:
            there = ", ".join(dict.fromkeys(known[key]))
            raise ConfigError(f"--only: there is no {key} {value!r} here; there are {there}")
        wanted.setdefault(key, []).append(value)
    return [
        cell
        for cell in cells
        if all(str(getattr(cell, key)) in values for key, values in wanted.items())
    ]


def _tables(content: dict[str, Any]) -> dict[str, Any]:
    """With tables where the file has names of models and data sets alone."""
    named = dict(content)
    for key in ("models", "datasets"):
        if isinstance(named.get(key), list):
            named[key] = [{"name": e} if isinstance(e, str) else e for e in named[key]]
    return named
