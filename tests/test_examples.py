"""The examples run, and show what they say they show."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from knifeedge.config import ModelConfig
from knifeedge.data.synthetic import synthetic_scene
from knifeedge.engine import WeightsInfo, predict, save_model
from knifeedge.export import export_model
from knifeedge.models import create_model

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


@pytest.mark.slow
def test_onnx_predict(tmp_path):
    image, _ = synthetic_scene(0, 0, (48, 64))
    Image.fromarray(image).save(tmp_path / "picture.png")
    torch.manual_seed(0)
    model = create_model("tiny").eval()
    save_model(tmp_path / "model.safetensors", model, WeightsInfo(ModelConfig("tiny")))
    export_model(tmp_path / "model.safetensors", tmp_path / "tiny.onnx", check=False)
    script = load("onnx_predict")
    script.main(tmp_path / "tiny.onnx", tmp_path / "picture.png", tmp_path / "map.png")
    written = np.asarray(Image.open(tmp_path / "map.png")).astype(int)
    expected = np.rint(255 * predict(model, image))
    assert np.abs(written - expected).max() <= 1


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda p: p.stem)
def test_every_example_is_tested(path):
    assert f"test_{path.stem}" in globals()
