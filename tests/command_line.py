"""The command line called in this process, with main()'s handling of errors."""

import contextlib
import io
import os
import sys
from typing import NamedTuple
from unittest import mock

import pytest

from knifeedge import cli

# A training of a fraction of a second: one epoch of two steps.
TINY_DATA = ("--data", "synthetic", "--data-option", "count=4", "--data-option", "size=48")
TINY = (*TINY_DATA, "--model", "tiny", "--crop", 32, "--batch-size", 4, "--no-turns", "--epochs", 1)


class Result(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments: object) -> Result:
    """What `knifeedge ARGUMENTS` prints and exits with; a traceback would come through."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["knifeedge", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    return Result(ended.value.code or 0, out.getvalue(), err.getvalue())


def done(*arguments: object) -> Result:
    """The same, where it must succeed."""
    result = call(*arguments)
    assert result.code == 0, result.err
    return result


def refused(*arguments: object) -> str:
    """The one line that answers a mistake."""
    result = call(*arguments)
    assert result.code == 1, result
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.err
    assert result.err.startswith("knifeedge: ")
    return result.err


def deny_writing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders that may not be written to; patched, because mode bits do not bind root."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))
