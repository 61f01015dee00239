"""Where the real data are: in `$KNIFEEDGE_DATA`, or in `shared/data` beside the repository."""

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

_BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


def data_dir(name: str) -> Path:
    """Folder of a data set, such as BSDS500; the test is skipped where it is missing."""
    return _existing(_data() / name, "set KNIFEEDGE_DATA to the folder of the data sets")


def oracle_dir() -> Path:
    """Folder of the recorded counts; the test is skipped where it is missing."""
    return _existing(_data().parent / "oracles", "recorded counts are kept beside the data sets")


def oracle_names() -> list[str]:
    return sorted(path.stem for path in (oracle_dir() / "maps").glob("*.png"))


def oracle_map(name: str) -> np.ndarray:
    """Soft edge map of an oracle, float32 (H, W)."""
    with Image.open(oracle_dir() / "maps" / f"{name}.png") as image:
        return np.asarray(image, dtype=np.float32) / 255


def oracle_truths(name: str) -> list[np.ndarray]:
    """All ground truths of an oracle's image; the recorded counts use the first."""
    kind, number = name.split("_")
    if kind == "bsds":
        (path,) = data_dir("BSDS500").glob(f"groundTruth/*/{number}.mat")
        annotators = scipy.io.loadmat(path)["groundTruth"].flat
        return [one["Boundaries"].item().astype(bool) for one in annotators]
    (path,) = data_dir("UDED").glob(f"gt/{number}-*.png")
    with Image.open(path) as image:
        return [np.asarray(image.convert("L")) > 127]


def _data() -> Path:
    return Path(os.environ.get("KNIFEEDGE_DATA") or _BESIDE)


def _existing(path: Path, hint: str) -> Path:
    if not path.is_dir():
        pytest.skip(f"no {path.name} data at {path.parent}: {hint}")
    return path
