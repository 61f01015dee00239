"""Scores on disk: `scores.json`, and the text files of the Berkeley boundary benchmark.

Every file is written beside its place and renamed, so that it is whole or not there. The text
files are columns of numbers, 10 characters wide, with 6 significant digits:

| file | rows | columns |
| --- | --- | --- |
| eval_bdry.txt | 1 | ODS threshold, recall, precision, F; OIS recall, precision, F; AP |
| eval_bdry_thr.txt | one a threshold | threshold, recall, precision, F of the summed counts |
| eval_bdry_img.txt | one an image | number from 1, best threshold, recall, precision, F |
| NAME_ev1.txt | one a threshold | threshold, matched gt, gt, matched map, map pixels |

Scripts that plot from such a folder go on working.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from knifeedge.disk import write_atomically
from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.curves import precision_recall_f
from knifeedge.metrics.scores import EdgeScores


def scores_json(scores: EdgeScores, *, at: float | None = None) -> str:
    """The text of `scores.json`: one line a key.

    Args:
        scores: What `evaluate` returned.
        at: A threshold fixed beforehand; the scores there are added under the key `at`.

    Returns:
        JSON, which `EdgeScores.from_dict` understands once it is parsed.

    >>> from knifeedge.metrics.protocols import PROTOCOLS
    >>> from knifeedge.metrics.scores import score
    >>> counts = np.tile([5, 10, 5, 10], (1, 99, 1))
    >>> text = scores_json(score(counts, protocol=PROTOCOLS["bsds"], crispness=[1.0]), at=0.5)
    >>> json.loads(text)["at"]
    {'threshold': 0.5, 'precision': 0.5, 'recall': 0.5, 'f': 0.5}
    """
    record: dict[str, Any] = scores.to_dict()
    if at is not None:
        record["at"] = scores.at(at)._asdict()
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_scores(path: str | Path, scores: EdgeScores, *, at: float | None = None) -> None:
    """Write `scores_json` to a file.

    >>> import tempfile
    >>> from knifeedge.metrics.protocols import PROTOCOLS
    >>> from knifeedge.metrics.scores import score
    >>> counts = np.tile([5, 10, 5, 10], (1, 99, 1))
    >>> path = Path(tempfile.mkdtemp()) / "scores.json"
    >>> write_scores(path, score(counts, protocol=PROTOCOLS["bsds"], crispness=[1.0]))
    >>> EdgeScores.from_dict(json.loads(path.read_text())).ods
    0.5
    """
    write_atomically(Path(path), scores_json(scores, at=at).encode())


def write_benchmark_files(folder: str | Path, scores: EdgeScores) -> None:
    """Write the four kinds of text files named above into a folder.

    >>> import tempfile
    >>> from knifeedge.metrics.protocols import PROTOCOLS
    >>> from knifeedge.metrics.scores import score
    >>> counts = np.tile([5, 10, 5, 10], (1, 99, 1))
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_benchmark_files(folder, score(counts, protocol=PROTOCOLS["bsds"], crispness=[1.0]))
    >>> sorted(path.name for path in folder.iterdir())
    ['0_ev1.txt', 'eval_bdry.txt', 'eval_bdry_img.txt', 'eval_bdry_thr.txt']
    """
    folder = Path(folder)
    best = precision_recall_f(scores.counts).f.argmax(axis=1)
    ois = precision_recall_f(scores.counts[np.arange(len(best)), best].sum(axis=0))
    overall = [
        *(scores.threshold, scores.recall, scores.precision, scores.ods),
        *(float(ois.recall), float(ois.precision), float(ois.f)),
        scores.ap,
    ]
    curves = scores.curves
    per_threshold = zip(THRESHOLDS, curves.recall, curves.precision, curves.f, strict=True)
    per_image = (
        (number, image.threshold, image.recall, image.precision, image.f)
        for number, image in enumerate(scores.images, start=1)
    )
    texts = {
        "eval_bdry.txt": _columns([overall]),
        "eval_bdry_thr.txt": _columns(per_threshold),
        "eval_bdry_img.txt": _columns(per_image),
    }
    for name, counts in zip(scores.names, scores.counts, strict=True):
        rows = ((t, *row) for t, row in zip(THRESHOLDS.tolist(), counts.tolist(), strict=True))
        texts[f"{file_name(name)}_ev1.txt"] = _columns(rows)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())


def file_name(name: str) -> str:
    """An image's name, refused where it cannot be part of a file name.

    >>> file_name("12084")
    '12084'
    """
    try:
        usable = bool(os.fsencode(name)) and not any(sign in name for sign in "/\\\0")
    except UnicodeEncodeError:  # half of a surrogate pair, which a record may hold
        usable = False
    if not usable:
        raise ValueError(f"an image's name must do as a file name, got {name!r}; rename the image")
    return name


def _columns(rows: Iterable[Iterable[float]]) -> str:
    """Numbers in columns; whole ones are not rounded, however large."""
    return "".join(" ".join(_cell(value) for value in row) + "\n" for row in rows)


def _cell(value: float) -> str:
    return f"{value:10d}" if isinstance(value, int) else f"{value:10g}"
