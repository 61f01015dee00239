"""The verb `experiment`: a grid of protocol runs, and its table with the paper's figures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knifeedge.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from knifeedge.experiments import Cell, ExperimentConfig, Table
    from knifeedge.experiments.reading import Named

FEW = 4


def experiment(
    name: Annotated[
        str | None,
        typer.Argument(metavar="FILE|NAME", help="A TOML file, or one that --list names."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where all files go.", show_default="runs/FILE"),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once, a process each.")] = 1,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster there.")
    ] = None,
    accelerator: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="Where to train.")
    ] = "auto",
    only: Annotated[
        str | None,
        typer.Option(metavar="model=hed,seed=0,..", help="Do these runs only; the table has all."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and what is done, and do nothing.")
    ] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Collect what is there into the table, without running.")
    ] = False,
    show_list: Annotated[
        bool, typer.Option("--list", help="List the experiments that come with the package.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print table.json (or the list) instead.")
    ] = False,
) -> None:
    """Run models x data sets x losses x seeds from a file, and collect one table.

    What is done is not done again: the same command goes on where it was interrupted or killed, and
    tries again what failed.

    Example: [bold]knifeedge experiment tables-2-3 --only data=UDED[/bold]
    """
    from knifeedge.experiments import EXPERIMENTS, collect, find_experiment, read_experiment
    from knifeedge.experiments.reading import select_cells

    if show_list:
        _list(list(EXPERIMENTS.values()), as_json)
        return
    if name is None:
        raise ConfigError(f"name an experiment file, or one of {', '.join(EXPERIMENTS)}")
    found, config = find_experiment(name), read_experiment(name)
    folder = out or Path("runs") / found.path.stem
    cells = config.cells() if only is None else select_cells(config, only)
    if dry_run:
        _dry_run(config, cells, folder, as_json)
        return
    if table:
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder} to collect from; leave out --table")
        result = collect(config, folder)
    else:
        result = _run(config, cells, folder, jobs, cluster, accelerator)
    if as_json:
        _print_json(result.to_dict())
    else:
        _show(result, found.protocols or config.scoring)
        print(f"all files: {folder}")
    for run, error in result.failed.items():
        print(f"failed: {run}: {error}", file=sys.stderr)
    if result.unfinished:
        more = ", .." if len(result.unfinished) > FEW else ""
        named = ", ".join(result.unfinished[:FEW])
        print(f"unfinished: {len(result.unfinished)} runs: {named}{more}", file=sys.stderr)
    if result.failed and not table:
        raise typer.Exit(1)


def _run(
    config: ExperimentConfig,
    cells: Sequence[Cell],
    folder: Path,
    jobs: int,
    cluster: str | None,
    accelerator: str,
) -> Table:
    """Run with a line on stderr for whatever happens."""
    from knifeedge.cli.training import training_bar
    from knifeedge.experiments import run_experiment

    words = {"there": "done before", "busy": "left out"}
    ended = 0

    def tell(run: str, state: str, message: str) -> None:
        nonlocal ended
        ended += state != "begins"
        line = f"{run}: {words.get(state, state)}" + (f": {message}" if message else "")
        print(f"[{ended}/{len(cells)}] {line}", file=sys.stderr, flush=True)

    def tell_stage(run: str, what: str, number: int, count: int) -> None:
        print(f"{run}: stage {number} of {count}: {what}", file=sys.stderr, flush=True)

    return run_experiment(
        config,
        folder,
        cells=cells,
        jobs=jobs,
        cluster=cluster,
        accelerator=accelerator,
        callbacks=[training_bar()],
        on_run=tell,
        on_stage=tell_stage,
    )


def _list(entries: Sequence[Named], as_json: bool) -> None:
    if as_json:
        _print_json([{"name": entry.name, "about": entry.about} for entry in entries])
        return
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:{width}}  {entry.about}")


def _dry_run(config: ExperimentConfig, cells: Sequence[Cell], folder: Path, as_json: bool) -> None:
    """Every run and its state, and nothing else."""
    from knifeedge.experiments.table import RUNS, run_folder, tabulate

    found, states = tabulate(config, folder), []
    for cell in cells:
        run = f"{RUNS}/{cell.name}"
        if run in found.failed:
            state = f"failed: {found.failed[run]}"
        elif run not in found.unfinished:
            state = "done"
        else:
            begun = (run_folder(folder, cell) / "config.json").is_file()
            state = "begun" if begun else "to do"
        states.append({"run": run, "state": state})
    if as_json:
        _print_json(states)
        return
    for entry in states:
        print(f"{entry['run']}: {entry['state']}")
    done = sum(entry["state"] == "done" for entry in states)
    trainings = len(config.all_losses)
    print(f"{len(states)} runs of {trainings} losses each, {done} done; all files: {folder}")


def _print_json(content: object) -> None:
    import json

    print(json.dumps(content, indent=1))


def _show(table: Table, protocols: Sequence[str]) -> None:
    """The tables of these scoring protocols, on stdout."""
    from rich.console import Console

    from knifeedge.cli.experiment_table import rich_tables

    console = Console()
    if not console.is_terminal:
        console = Console(width=200)  # no folding in a file
    for one in rich_tables(table, protocols):
        console.print(one)
