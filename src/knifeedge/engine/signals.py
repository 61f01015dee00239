"""SIGINT and SIGTERM as a request: the step under way is finished and saved first."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A training was asked to stop, and did so with all of its work saved."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


class StopSignals:
    """While it is entered, SIGINT and SIGTERM set `received`; a second one acts as usual."""

    received: int | None = None

    def __enter__(self) -> "StopSignals":
        """Take the signals over."""
        self._before: dict[signal.Signals, Any] = {}
        # Only the main thread may set handlers; elsewhere signals keep their meaning.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *exception: object) -> None:
        """Give them back."""
        self._restore()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
