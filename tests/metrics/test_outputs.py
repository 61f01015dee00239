"""Files of scores: that they parse back to the same scores, and are whole or absent."""

import json
from pathlib import Path

import numpy as np
import pytest

from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.outputs import (
    scores_json,
    write_benchmark_files,
    write_scores,
)
from knifeedge.metrics.protocols import PROTOCOLS
from knifeedge.metrics.scores import EdgeScores, LeftOut, score


def some_scores(n_images: int = 3, size: int = 5000, names: list[str] | None = None) -> EdgeScores:
    """Counts of a detector that gives up recall for precision, more or less."""
    rng = np.random.default_rng(5)
    counts = np.empty((n_images, 99, 4), dtype=np.int64)
    for i in range(n_images):
        counts[i, :, 1] = size * (i + 1)
        counts[i, :, 3] = np.linspace(3 * size, 10, 99) * (i + 1)
        counts[i, :, 0] = np.minimum(counts[i, :, 1], counts[i, :, 3]) * rng.uniform(0.5, 0.9, 99)
        counts[i, :, 2] = counts[i, :, 0]
    return score(
        counts,
        protocol=PROTOCOLS["bsds"],
        crispness=[0.5] * n_images,
        names=names or [f"image{i}" for i in range(n_images)],
        left_out=[LeftOut("bad", "is damaged")],
    )


def test_scores_json_gives_the_scores_back(tmp_path: Path) -> None:
    scores = some_scores()
    path = tmp_path / "run" / "scores.json"
    write_scores(path, scores)
    text = path.read_text()
    record = json.loads(text)
    assert EdgeScores.from_dict(record).to_dict() == scores.to_dict() == record
    assert record["protocol"] == PROTOCOLS["bsds"].to_dict()
    assert record["left_out"] == [{"name": "bad", "reason": "is damaged"}]
    assert len(text.splitlines()) == len(record) + 2  # a line a key, and the braces
    assert "at" not in record


def test_scores_json_at_a_fixed_threshold(tmp_path: Path) -> None:
    scores = some_scores()
    record = json.loads(scores_json(scores, at=0.3))
    assert record["at"] == scores.at(0.3)._asdict()
    assert EdgeScores.from_dict(record).to_dict() == scores.to_dict()


def test_benchmark_files_parse_back_to_the_scores(tmp_path: Path) -> None:
    scores = some_scores()
    write_benchmark_files(tmp_path, scores)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "eval_bdry.txt",
        "eval_bdry_img.txt",
        "eval_bdry_thr.txt",
        "image0_ev1.txt",
        "image1_ev1.txt",
        "image2_ev1.txt",
    ]
    tables = [np.loadtxt(tmp_path / f"image{i}_ev1.txt") for i in range(3)]
    assert all(table.shape == (99, 5) for table in tables)
    np.testing.assert_array_equal(tables[0][:, 0], THRESHOLDS)
    counts = np.array([table[:, 1:] for table in tables]).astype(np.int64)
    np.testing.assert_array_equal(counts, scores.counts)
    # From here on, from the parsed files alone; 6 digits are written.
    again = score(counts, protocol=scores.protocol, crispness=[0.0] * 3)
    overall = np.loadtxt(tmp_path / "eval_bdry.txt")
    best = [again.threshold, again.recall, again.precision, again.ods]
    np.testing.assert_allclose(overall[:4], best, rtol=1e-5)
    chosen = [counts[i, round(image.threshold * 100) - 1] for i, image in enumerate(again.images)]
    matched_gt, gt, matched_map, in_map = np.sum(chosen, axis=0)
    np.testing.assert_allclose(overall[4:6], [matched_gt / gt, matched_map / in_map], rtol=1e-5)
    np.testing.assert_allclose(overall[6:], [again.ois, again.ap], rtol=1e-5)
    per_threshold = np.loadtxt(tmp_path / "eval_bdry_thr.txt")
    summed = counts.sum(axis=0)
    np.testing.assert_allclose(per_threshold[:, 0], THRESHOLDS)
    np.testing.assert_allclose(per_threshold[:, 1], summed[:, 0] / summed[:, 1], rtol=1e-5)
    np.testing.assert_allclose(per_threshold[:, 2], summed[:, 2] / summed[:, 3], rtol=1e-5)
    np.testing.assert_allclose(per_threshold[:, 3], again.curves.f, rtol=1e-5)
    per_image = np.loadtxt(tmp_path / "eval_bdry_img.txt")
    expected = [
        (i + 1, m.threshold, m.recall, m.precision, m.f) for i, m in enumerate(again.images)
    ]
    np.testing.assert_allclose(per_image, expected, rtol=1e-5)


def test_the_columns_are_those_of_the_benchmark(tmp_path: Path) -> None:
    counts = np.tile([80, 100, 90, 120], (1, 99, 1))
    scores = score(counts, protocol=PROTOCOLS["bsds"], crispness=[1.0], names=["a"])
    write_benchmark_files(tmp_path, scores)
    first = (tmp_path / "a_ev1.txt").read_text().splitlines()[0]
    assert first == "      0.01         80        100         90        120"
    first = (tmp_path / "eval_bdry_img.txt").read_text()
    assert first == "         1       0.01        0.8       0.75   0.774194\n"


def test_counts_past_a_million_are_not_rounded(tmp_path: Path) -> None:
    scores = some_scores(1, size=1_234_567)
    write_benchmark_files(tmp_path, scores)
    table = np.loadtxt(tmp_path / "image0_ev1.txt")
    np.testing.assert_array_equal(table[:, 1:], scores.counts[0])


@pytest.mark.parametrize("name", ["", "a/b", "../b", "a\\b", "a\0"])
def test_names_that_would_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "out"
    with pytest.raises(ValueError, match="must do as a file name"):
        write_benchmark_files(folder, some_scores(2, names=["good", name]))
    assert not folder.exists()
