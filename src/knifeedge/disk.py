"""Files written whole or not at all: beside their place, to the disk, then renamed."""

import contextlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from knifeedge.errors import DataError

_PREFIX, _SUFFIX = ".knifeedge-", ".tmp"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; its folder is made where it is missing.

    Where the path is a link, what it leads to is written. A pipe or a device, such as
    /dev/stdout, is written to as it stands.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "new" / "a.txt"
    >>> write_atomically(path, b"text")
    >>> path.read_bytes()
    b'text'
    """
    target = Path(os.path.realpath(path))
    # In the same folder: a rename across file systems would be a copy.
    beside = target.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    try:
        if _is_stream(path):
            path.write_bytes(data)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write JSON, indented."""
    write_atomically(path, (json.dumps(content, indent=1, allow_nan=False) + "\n").encode())


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left half written in a folder nobody else writes to."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        path.unlink(missing_ok=True)


def check_target(path: Path, *, folder: bool = False) -> None:
    """Refuse a place that cannot be written to, before long work and without touching the disk.

    Args:
        path: A file to be written, or a folder to write into; either may be new.
        folder: Whether it is a folder.

    >>> check_target(Path("scores.json"))
    """
    if path.is_dir() and not folder:
        raise DataError(f"{path} is a folder; name a file in it, such as {path / 'scores.json'}")
    if folder and path.exists() and not path.is_dir():
        raise DataError(f"{path} is a file; name a folder")
    if _is_stream(path) and os.access(path, os.W_OK):
        return
    into = path if folder else Path(os.path.realpath(path)).parent
    while not into.exists() and into != into.parent:
        into = into.parent
    if not into.is_dir() or not os.access(into, os.W_OK | os.X_OK):
        raise DataError(f"{path} cannot be written: {into} is no folder that may be written to")


def _is_stream(path: Path) -> bool:
    """Whether it is a pipe or a device: a rename would put a file in its place."""
    return path.exists() and not path.is_file() and not path.is_dir()
