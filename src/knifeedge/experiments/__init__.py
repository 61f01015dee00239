"""Experiments: grids of protocol runs, and one table of what came of them."""

from knifeedge.experiments.reading import EXPERIMENTS, find_experiment, read_experiment
from knifeedge.experiments.run import run_experiment
from knifeedge.experiments.settings import (
    Cell,
    DataChoice,
    ExperimentConfig,
    ModelChoice,
    PaperRow,
)
from knifeedge.experiments.table import Difference, Row, Spread, Table, collect

__all__ = [
    "EXPERIMENTS",
    "Cell",
    "DataChoice",
    "Difference",
    "ExperimentConfig",
    "ModelChoice",
    "PaperRow",
    "Row",
    "Spread",
    "Table",
    "collect",
    "find_experiment",
    "read_experiment",
    "run_experiment",
]
