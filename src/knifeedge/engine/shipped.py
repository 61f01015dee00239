"""The weights that come with the package: `tiny`, for pictures of any kind.

`python benchmarks/weights.py` makes them, and their card, docs/weights.md.
"""

from importlib.resources import files
from pathlib import Path

from knifeedge.errors import ConfigError

SHIPPED = "tiny.safetensors"


def shipped_weights() -> Path:
    """The weights file of the package.

    Returns:
        A file as `load_model` takes it.

    Raises:
        ConfigError: This package was built without one.
    """
    path = Path(str(files("knifeedge.engine") / SHIPPED))
    if not path.is_file():
        raise ConfigError("no weights are named; give a run's folder or a file with --weights")
    return path
