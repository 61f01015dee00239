"""`knifeedge calibrate`: its threshold, where it is stored, and what it refuses."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from command_line import TINY, call, deny_writing, done, refused
from knifeedge.calibration import calibrate, calibrate_pixels
from knifeedge.config import DataConfig, ModelConfig
from knifeedge.data import load_dataset
from knifeedge.engine import WeightsInfo, load_model, predict, save_model
from knifeedge.engine.calibrate import calibrate_weights
from knifeedge.engine.checkpoint import read_info
from knifeedge.engine.predict import to_bytes
from knifeedge.models import create_model

DATA = {"count": 4, "size": 48}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A network that was trained on the first three images."""
    folder = tmp_path_factory.mktemp("run") / "run"
    done("train", *TINY, "--split", "pretrain", "--learning-rate", 0.002, "--out", folder)
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


def maps_and_labels(run: Path, split: str) -> tuple[list, list]:
    network, _ = load_model(run)
    samples = list(load_dataset("synthetic", split, **DATA))
    maps = [to_bytes(predict(network, sample.image)) / 255 for sample in samples]
    return maps, [sample.label > 127 for sample in samples]


def test_the_threshold_is_found_stored_and_used(run: Path, tmp_path: Path) -> None:
    expected = calibrate(*maps_and_labels(run, "validation"))
    result = done("calibrate", run)
    assert result.err == ""
    assert f"threshold {expected.threshold:.2f}: F by paper-strict {expected.score:.4f}" in (
        result.out
    )
    assert f"0.45: {expected.curve[44]:.3f}" in result.out
    info = read_info(run)
    assert info.threshold == expected.threshold
    assert info.calibration["score"] == expected.score
    assert info.calibration["data"]["split"] == "validation"
    assert info.calibration["protocol"]["name"] == "paper-strict"
    # The weights themselves stay, and predict --binary uses the threshold.
    sample = load_dataset("synthetic", "test", **DATA)[0]
    Image.fromarray(sample.image).save(tmp_path / "a.png")
    told = done(
        "predict", tmp_path / "a.png", "--weights", run, "--binary", "--out", tmp_path / "m"
    )
    assert f"yes and no at {expected.threshold:g}" in told.out
    prob = predict(load_model(run)[0], sample.image)
    with Image.open(tmp_path / "m" / "a.png") as picture:
        np.testing.assert_array_equal(
            np.asarray(picture), (prob >= np.float32(expected.threshold)) * 255
        )


def test_by_pixels_as_json(run: Path) -> None:
    expected = calibrate_pixels(*maps_and_labels(run, "validation"), beta=2)
    result = done("calibrate", run, "--pixels", "--beta", 2, "--json")
    assert json.loads(result.out) == expected.to_dict()
    assert result.err == ""
    assert read_info(run).calibration["beta"] == 2
    assert "pixel F1 " in done("calibrate", run, "--pixels").out


def test_another_protocol_and_other_images(run: Path) -> None:
    options = ("--protocol", "one-pixel", "--data-option", "seed=5", "--json")
    record = json.loads(done("calibrate", run, *options).out)
    assert record["protocol"]["name"] == "one-pixel"
    # What the weights were trained on is kept where nothing else is said, in whatever case.
    stored = read_info(run).calibration["data"]["options"]
    assert stored == DATA | {"seed": 5}
    done("calibrate", run, "--data", "SYNTHETIC", "--pixels")
    assert read_info(run).calibration["data"]["options"] == DATA


@pytest.mark.parametrize("name", ["UDED", "uded", "folder", "synthetic"])
@pytest.mark.parametrize("split", ["test", "all"])
def test_test_images_are_refused_in_every_set(run: Path, name: str, split: str) -> None:
    message = refused("calibrate", run, "--data", name, "--split", split)
    assert "tunes the threshold on the images that judge it" in message


def test_what_is_wrong_is_told_before_the_prediction(run: Path, monkeypatch) -> None:
    monkeypatch.setattr("knifeedge.engine.calibrate.predict_set", None)  # a call would fail
    assert "unknown protocol 'strict'" in refused("calibrate", run, "--protocol", "strict")
    assert "beta must be > 0 and finite" in refused("calibrate", run, "--pixels", "--beta", -1)
    deny_writing(monkeypatch)
    assert "model.safetensors cannot be written" in refused("calibrate", run)


def test_progress_is_told_for_every_image(run: Path) -> None:
    told: list = []
    data = DataConfig("synthetic", "train", options=DATA)
    with pytest.warns(UserWarning, match="were trained on"):
        calibrate_weights(run, data, protocol=None, progress=lambda *now: told.append(now))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_the_test_split_is_refused_unless_told_in_words(run: Path) -> None:
    message = refused("calibrate", run, "--split", "test")
    assert "tunes the threshold on the images that judge it" in message
    assert "--split validation" in message
    assert "--on-test-images" in message
    assert read_info(run).threshold is None
    done("calibrate", run, "--split", "test", "--on-test-images", "--pixels")
    assert read_info(run).calibration["data"]["split"] == "test"


@pytest.mark.parametrize("name", ["synthetic", "Synthetic"])
def test_images_that_were_trained_on_are_told(run: Path, name: str) -> None:
    options = ("--data", name, "--data-option", "count=4", "--data-option", "size=48")
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as for a user: here they are errors else
        result = done("calibrate", run, *options, "--split", "train", "--pixels", "--json")
    assert result.err.startswith("knifeedge: warning: 3 of 4 images were trained on, synthetic-0-0")
    assert len(result.err.splitlines()) == 1
    assert len(json.loads(result.out)["curve"]) == 99
    assert done("calibrate", run, *options, "--pixels").err == ""


def test_a_set_without_edges(run: Path, tmp_path: Path) -> None:
    for part in ("images", "labels"):
        (tmp_path / part).mkdir()
        Image.fromarray(np.zeros((20, 20), np.uint8)).save(tmp_path / part / "a.png")
    places = ("--data", "folder", "--root", tmp_path, "--split", "train")
    for way in ((), ("--pixels",)):
        assert "edge" in refused("calibrate", run, *places, *way)
    assert read_info(run).threshold is None


def test_wrong_values(run: Path, tmp_path: Path) -> None:
    assert "(--pixels)" in refused("calibrate", run, "--beta", 2)
    assert "beta must be > 0" in refused("calibrate", run, "--pixels", "--beta", 0)
    assert "unknown protocol 'strict'" in refused("calibrate", run, "--protocol", "strict")
    assert "no split 'val'; it has" in refused("calibrate", run, "--split", "val")
    assert "there is no data set 'UDDE'" in refused("calibrate", run, "--data", "UDDE")
    assert "must be KEY=VALUE" in refused("calibrate", run, "--data-option", "seed")
    (tmp_path / "empty").mkdir()
    assert "there is no weights file" in refused("calibrate", tmp_path / "empty")
    assert f"holds trainings; name one of them: {run}" in refused("calibrate", tmp_path)
    assert call("calibrate").code == 2
    assert read_info(run).threshold is None


def test_weights_that_do_not_say_what_they_were_trained_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    path = tmp_path / "model.safetensors"
    save_model(path, create_model("tiny"), WeightsInfo(ModelConfig("tiny")))
    assert "does not say what it was trained on; give --data" in refused("calibrate", path)
    done("calibrate", path, "--data", "synthetic", "--data-option", "count=4", "--pixels")
    assert read_info(path).threshold is not None


def test_weights_that_cannot_be_written(run: Path, monkeypatch) -> None:
    before = (run / "model.safetensors").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("knifeedge.disk.os.fsync", full)
    message = refused("calibrate", run, "--pixels")
    assert "No space left on device" in message
    assert "continue the run" not in message  # there is none
    assert (run / "model.safetensors").read_bytes() == before


def test_help_has_an_example(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "Example: knifeedge calibrate runs/" in done("calibrate", "--help").out
