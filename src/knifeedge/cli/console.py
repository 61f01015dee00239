"""What the verbs share on the terminal."""

import functools
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import typer

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


class Stopped(typer.Abort):
    """An interrupt that keeps its words and its signal; Typer drops those of KeyboardInterrupt."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        super().__init__(*interrupt.args)
        self.number = getattr(interrupt, "number", signal.SIGINT)


def tell_interrupts(verb: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """A verb whose interrupts reach `main` with what they say."""

    @functools.wraps(verb)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        try:
            return verb(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            raise Stopped(interrupt) from interrupt

    return call


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), *Progress.get_default_columns()[:2], MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Show warnings as single lines on stderr, without the place in the source."""
    with warnings.catch_warnings():
        warnings.showwarning = _tell_warning
        yield


def _tell_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"knifeedge: warning: {' '.join(str(message).split())}", file=sys.stderr)
