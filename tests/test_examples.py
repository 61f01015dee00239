"""The examples run, and show what they say they show."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_segmentation(capsys):
    scores = load("segmentation").main(steps=60)
    assert list(scores) == ["BCE", "BAA-WBCE"]
    assert scores["BAA-WBCE"] > 0.3
    assert "BAA-WBCE: F = 0." in capsys.readouterr().out


def test_tabular(capsys):
    means = load("tabular").main(seeds=2, steps=100)
    assert list(means) == ["BCE", "WBCE", "focal", "BAA-0.5", "BAA-SA"]
    for at_half, threshold, calibrated in means.values():
        assert 0 <= at_half <= 1
        assert 0 < threshold < 1
        assert calibrated > 0.5
    assert "calibrated" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_every_example_is_tested(path):
    assert f"test_{path.stem}" in globals()
