"""Running an experiment: what is not done yet, one run after another or several at once.

A run is a function of its configuration alone, so the table is the same for any number of
processes. Every run is in a folder of its own, which one process at a time may hold: the same
command may be started twice, or on several machines that share the folder, and they divide the runs
among them.
"""

import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from typing import Literal

import joblib

from knifeedge.disk import check_target, write_json
from knifeedge.engine.logs import Callback
from knifeedge.engine.signals import Interrupted
from knifeedge.errors import ConfigError, KnifeEdgeError
from knifeedge.experiments.processes import run_in_processes
from knifeedge.experiments.settings import Cell, ExperimentConfig
from knifeedge.experiments.table import FAILURE, Table, collect, finished, run_folder
from knifeedge.metrics.evaluate import workers
from knifeedge.models.registry import ModelEntry, model_entry, model_names, register_model
from knifeedge.protocol import run_protocol

LOCK = ".lock"
# A process that was left behind by a killed experiment ends within a second of it.
LOCK_SECONDS = 3.0
# Trainings seed torch's one random stream: a process has one at a time, however many its threads.
_ONE_AT_A_TIME = threading.Lock()

State = Literal["there", "begins", "done", "failed", "busy", "stopped"]
OnRun = Callable[[str, State, str], None]
OnStage = Callable[[str, str, int, int], None]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: done, failed, busy (another process has it) or stopped."""

    cell: Cell
    state: State
    message: str = ""


def run_experiment(
    config: ExperimentConfig,
    folder: str | Path,
    *,
    cells: Sequence[Cell] | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    accelerator: str = "auto",
    callbacks: Sequence[Callback] = (),
    on_run: OnRun | None = None,
    on_stage: OnStage | None = None,
) -> Table:
    """Do the runs of an experiment that are not done, and make its table.

    A run that fails is noted and the others go on; the same call tries it again, and goes on with
    a run that was interrupted or killed.

    Args:
        config: The experiment.
        folder: Where everything goes: runs/MODEL-DATA-SEED, and `table.json`.
        cells: Only these runs, of `config.cells()`. The table has all.
        jobs: How many runs at once, each in a process of its own.
        cluster: Address of a Dask scheduler, to run there. Its workers need knifeedge, and the
            folders of data and runs under the same paths.
        accelerator: As for `train`.
        callbacks: Told of every training in this process: not with jobs > 1 or a cluster.
        on_run: Called as on_run(name, state, message) with the states there, begins, done,
            failed, busy (another process has it) and stopped.
        on_stage: Called as on_stage(name, what, number, count) when a stage of a run in this
            process begins.

    Returns:
        The table of all runs that are done.

    Raises:
        Interrupted: SIGINT or SIGTERM came; the same call goes on.
    """
    if jobs < 1:
        raise ConfigError(f"jobs must be at least 1, got {jobs}")
    folder, tell = Path(folder), on_run or (lambda *_: None)
    if cluster is not None:
        folder = folder.resolve()  # its workers are in other folders
    check_target(folder, folder=True)
    todo = []
    for cell in config.cells() if cells is None else cells:
        if finished(run_folder(folder, cell), cell.config) is None:
            todo.append(cell)
        else:
            tell(cell.name, "there", "")
    collect(config, folder)

    def end(outcome: Outcome) -> None:
        tell(outcome.cell.name, outcome.state, outcome.message)
        collect(config, folder)

    def task(cell: Cell) -> Task:
        tell(cell.name, "begins", "")
        entry = model_entry(cell.config.model.name)
        return Task(cell, run_folder(folder, cell), accelerator, entry)

    def lost(cell: Cell) -> Outcome:
        error = ConfigError("its process was killed, perhaps for want of memory")
        return _failed(cell, run_folder(folder, cell), error)

    try:
        if cluster is not None:
            _run_on_cluster(cluster, todo, task, end)
        elif jobs > 1 and todo:
            run_in_processes(jobs, todo, task, end, lost)
        else:
            for cell in todo:
                end(task(cell)(callbacks, on_stage))
    except KeyboardInterrupt as error:
        table = collect(config, folder)
        left = len(table.failed) + len(table.unfinished)
        total = len(config.cells())
        raise Interrupted(
            f"stopped with {total - left} of {total} runs done; the same command goes on",
            getattr(error, "number", signal.SIGINT),
        ) from None
    return collect(config, folder)


@dataclass(frozen=True)
class Task:
    """One run, to be called in any process that has knifeedge.

    Args:
        cell: What to run.
        folder: Where.
        accelerator: As for `train`.
        model: The network's entry; another process may not know it.
    """

    cell: Cell
    folder: Path
    accelerator: str
    model: ModelEntry

    def __call__(
        self, callbacks: Sequence[Callback] = (), on_stage: OnStage | None = None
    ) -> Outcome:
        """Do what is not done of it; an error is noted in the folder and returned."""
        if self.model.name not in model_names():
            register_model(self.model.name, self.model.factory, self.model.description)

        def stage(what: str, number: int, count: int) -> None:
            if on_stage is not None:
                on_stage(self.cell.name, what, number, count)

        try:
            with _ONE_AT_A_TIME, _claimed(self.folder):
                if finished(self.folder, self.cell.config) is None:
                    (self.folder / FAILURE).unlink(missing_ok=True)
                    run_protocol(
                        self.cell.config,
                        self.folder,
                        accelerator=self.accelerator,
                        callbacks=callbacks,
                        on_stage=stage,
                    )
        except _BusyError as error:
            return Outcome(self.cell, "busy", str(error))
        except Exception as error:
            return _failed(self.cell, self.folder, error)
        return Outcome(self.cell, "done")


class _BusyError(Exception):
    """A run that another process is at."""


def _run_on_cluster(
    cluster: str,
    todo: Sequence[Cell],
    task: Callable[[Cell], Task],
    end: Callable[[Outcome], None],
) -> None:
    with workers(None, cluster):
        tasks = (joblib.delayed(_call)(task(cell)) for cell in todo)
        for outcome in joblib.Parallel(return_as="generator_unordered", batch_size=1)(tasks):
            end(outcome)


def _call(task: Task) -> Outcome:
    """A function, which joblib's Dask backend can hash; a task it cannot."""
    return task()


def _failed(cell: Cell, folder: Path, error: Exception) -> Outcome:
    """Note an error in the run's folder: one line for the table, and where it came from."""
    message = " ".join(str(error).split())
    if not isinstance(error, KnifeEdgeError) or not message:
        message = f"{type(error).__name__}: {message}"
    written = "".join(traceback.format_exception(error))
    write_json(folder / FAILURE, {"error": message, "traceback": written})
    return Outcome(cell, "failed", message)


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Hold a run's folder against other processes; the system lets go of it when this one ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a+") as file:
        last = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > last:
                    file.seek(0)
                    raise _BusyError(f"{file.read() or 'another process'} is at it") from None
                time.sleep(0.1)
                continue
            except OSError:  # a file system without locks
                pass
            break
        file.truncate(0)
        file.write(f"process {getpid()} on {socket.gethostname()}")
        file.flush()
        yield
