"""The exception tree: everything a user can get wrong about files and settings.

KnifeEdgeError
├── DataError        a file or array that cannot be used
├── ConfigError      a setting that does not exist or does not fit
└── CheckpointError  weights or a run that cannot be loaded

Wrong arguments to a function are plain ValueError or TypeError. The command line shows any of
these as one line and exits with 1.
"""


class KnifeEdgeError(Exception):
    """Base of every error knifeedge raises about files and settings."""


class DataError(KnifeEdgeError):
    """A file or an array that cannot be used; the message names it and the remedy."""


class ConfigError(KnifeEdgeError):
    """A setting that does not exist or does not fit."""


class CheckpointError(KnifeEdgeError):
    """Weights or a run that cannot be loaded."""
