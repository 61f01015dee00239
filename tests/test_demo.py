"""The demonstration: the whole protocol in small; the same seed gives the same table."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import call, done
from knifeedge import demo
from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig


def small_config(seed: int = 0) -> ProtocolConfig:
    return ProtocolConfig(
        DataConfig("synthetic", options={"count": 4, "size": 48}),
        ModelConfig("tiny"),
        epochs=1,
        seed=seed,
        batch_size=2,
        crop=32,
        turns=False,
        noiseless=False,
        learning_rate=2e-3,
        scoring=("one-pixel",),
    )


@pytest.fixture(autouse=True)
def _small(monkeypatch) -> None:
    monkeypatch.setattr(demo, "demo_config", small_config)


def read(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def test_the_table_the_picture_and_a_word_on_what_it_proves(tmp_path: Path) -> None:
    result = done("demo", "--out", tmp_path / "demo")
    assert "tiny on synthetic, one-pixel" in result.out
    for loss in ("wbce", "baa-0.7", "baa-sa"):
        assert loss in result.out
    assert "threshold of wbce, calibrated on validation images: 0." in result.out
    assert "One run proves nothing: another seed moves these scores" in result.out
    assert "image, label and maps of wbce, baa-0.7, baa-sa:" in result.out
    assert str(tmp_path / "demo" / "demo.png") in result.out
    assert "[1/8] train wbce on pretrain" in result.err
    # Image, label and three maps of the one test scene.
    picture = read(tmp_path / "demo" / "demo.png")
    assert picture.shape == (48, 5 * 48, 3)
    (name,) = (p.name.split(".")[0] for p in (tmp_path / "demo" / "gallery").glob("*.label.png"))
    columns = np.split(picture, 5, axis=1)
    gallery = tmp_path / "demo" / "gallery"
    np.testing.assert_array_equal(columns[0], read(gallery / f"{name}.image.png"))
    np.testing.assert_array_equal(columns[1], 255 - read(gallery / f"{name}.label.png"))
    for column, loss in zip(columns[2:], ("wbce", "baa-0.7", "baa-sa"), strict=True):
        expected = read(tmp_path / "demo" / loss / "predictions" / f"{name}.png")
        np.testing.assert_array_equal(column, 255 - expected)
    again = call("demo", "--seed", 1, "--out", tmp_path / "demo")
    assert again.code == 1
    assert "holds another protocol: its seed is 0, not 1" in again.err


def test_the_same_seed_gives_the_same_table_and_another_seed_another(tmp_path: Path) -> None:
    tables = {}
    for name, seed in (("one", 0), ("two", 0), ("other", 1)):
        done("demo", "--seed", seed, "--out", tmp_path / name)
        result = demo.run(tmp_path / name, seed=seed)  # all is done: it is only read
        scores = {entry.loss: entry.scores["one-pixel"].to_dict() for entry in result.losses}
        tables[name] = (result.thresholds, scores)
        assert list(scores) == ["wbce", "baa-0.7", "baa-sa"]
    assert tables["one"] == tables["two"]
    assert tables["one"] != tables["other"]
    pictures = {name: (tmp_path / name / "demo.png").read_bytes() for name in tables}
    assert pictures["one"] == pictures["two"] != pictures["other"]


def test_the_real_configuration(monkeypatch) -> None:
    monkeypatch.undo()
    config = demo.demo_config(seed=5)
    assert config.losses == ("wbce", "baa-0.7", "baa-sa")
    assert (config.data.name, config.model.name, config.seed) == ("synthetic", "tiny", 5)
