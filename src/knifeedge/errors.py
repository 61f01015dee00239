"""The exception tree: everything a user can get wrong about files and settings.

KnifeEdgeError
├── DataError        a file or array that cannot be used
├── ConfigError      a setting that does not exist or does not fit
└── CheckpointError  weights or a run that cannot be loaded

Wrong arguments to a function are plain ValueError or TypeError. The command line shows any of
these as one line and exits with 1.
"""

import difflib
from collections.abc import Iterable


class KnifeEdgeError(Exception):
    """Base of every error knifeedge raises about files and settings."""


class DataError(KnifeEdgeError):
    """A file or an array that cannot be used; the message names it and the remedy."""


class ConfigError(KnifeEdgeError):
    """A setting that does not exist or does not fit."""


class CheckpointError(KnifeEdgeError):
    """Weights or a run that cannot be loaded."""


def closest(wrong: object, known: Iterable[str]) -> str:
    """What a message says after a wrong name: the nearest right one, or nothing if none is near.

    >>> closest("heed", ["bdcn", "hed"]), closest("xyzzy", ["hed"])
    (" (the closest is 'hed')", '')
    """
    close = difflib.get_close_matches(str(wrong), list(known), n=1)
    return f" (the closest is {close[0]!r})" if close else ""
