"""Several runs at once on this machine, each in a process of its own.

Only this process hears Ctrl-C. It then asks the others to stop, and these save their work first; a
second Ctrl-C ends them at once. If this process is killed, they end within a second.
"""

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import joblib
import torch

from knifeedge.engine.signals import Interrupted, StopSignals

WATCH_SECONDS = 0.5

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[], Result]


def run_in_processes(
    jobs: int,
    items: Sequence[Item],
    work: Callable[[Item], Work[Result]],
    end: Callable[[Result], None],
    lost: Callable[[Item], Result],
) -> None:
    """Do work on some items, a few at a time.

    If a process is killed, all of those at work end with it. Their items are done again one by one,
    and the one that is killed once more is lost.

    Args:
        jobs: How many at a time.
        items: Worked on in this order.
        work: Called when an item's turn has come; what it gives is called in another process.
        end: Called with each result.
        lost: The result for an item whose process was killed.

    Raises:
        Interrupted: SIGINT or SIGTERM came, and every process has stopped.
    """
    threads = max(1, min(torch.get_num_threads(), joblib.cpu_count() // jobs))
    over = threading.Event()
    with tempfile.TemporaryDirectory(prefix="knifeedge-") as scratch, StopSignals() as signals:
        worker = _Worker(os.getpid(), Path(scratch) / "stop", threads)
        watcher = threading.Thread(target=_pass_on, args=(signals, worker.stop, over))
        watcher.start()
        groups = [list(items)]
        try:
            while groups and signals.received is None:
                group = groups.pop(0)
                tasks = _Tasks(group, work, worker, signals)
                ended = _take(min(jobs, len(group)), iter(tasks), end)
                broken = [group[number] for number in range(tasks.begun) if number not in ended]
                if signals.received is not None or not broken:
                    continue
                if len(group) == 1:
                    end(lost(group[0]))
                    continue
                rest = group[tasks.begun :]
                groups = [*([item] for item in broken), *([rest] if rest else []), *groups]
        finally:
            over.set()
            watcher.join()
            joblib.externals.loky.get_reusable_executor().shutdown(wait=True)
    if signals.received is not None:
        raise Interrupted("stopped", signals.received)


@dataclass(frozen=True)
class _Worker:
    """What happens in the other process.

    Args:
        parent: Number of the process to end with.
        stop: A file that, once it is there, asks to stop.
        threads: For torch.
    """

    parent: int
    stop: Path
    threads: int

    def __call__(self, number: int, work: Work[Any]) -> tuple[int, Any]:
        """The number with the result, or with none where the work was stopped."""
        os.setpgrp()  # the terminal's Ctrl-C is not for this process
        torch.set_num_threads(self.threads)
        over = threading.Event()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            threading.Thread(target=self._watch, args=(over,), daemon=True).start()
            return number, work()
        except KeyboardInterrupt:
            return number, None
        finally:
            over.set()
            signal.signal(signal.SIGINT, before)

    def _watch(self, over: threading.Event) -> None:
        while True:
            if os.getppid() != self.parent:
                os._exit(1)  # every file is written whole or not at all
            if self.stop.exists():
                os.kill(os.getpid(), signal.SIGINT)
                return
            if over.wait(WATCH_SECONDS):
                return


class _Tasks(Generic[Item]):
    """Tasks for joblib, made when their turn has come; none after a signal."""

    def __init__(
        self,
        items: Sequence[Item],
        work: Callable[[Item], Work[Any]],
        worker: _Worker,
        signals: StopSignals,
    ) -> None:
        self._items, self._work, self._worker, self._signals = items, work, worker, signals
        self.begun = 0

    def __iter__(self) -> Iterator[Any]:
        for number, item in enumerate(self._items):
            if self._signals.received is not None:
                return
            self.begun = number + 1
            yield joblib.delayed(self._worker)(number, self._work(item))


def _take(jobs: int, tasks: Iterator[Any], end: Callable[[Any], None]) -> set[int]:
    """Run tasks until they are over or a process is killed; the numbers of those that ended."""
    ended = set()
    parallel = joblib.Parallel(
        n_jobs=max(jobs, 2),  # with 1, joblib would work in this process
        backend="loky",
        pre_dispatch=jobs,  # none in reserve: what has not begun can be left, and is not lost
        batch_size=1,
        return_as="generator_unordered",
    )
    try:
        for number, result in parallel(tasks):
            ended.add(number)
            if result is not None:
                end(result)
    except BrokenProcessPool:
        pass
    return ended


def _pass_on(signals: StopSignals, stop: Path, over: threading.Event) -> None:
    """Ask the processes to stop once this one was asked to."""
    while not over.wait(WATCH_SECONDS / 2):
        if signals.received is not None:
            stop.touch()
            return
