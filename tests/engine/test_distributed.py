"""Two processes with half a batch each do what one process does with the whole one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from forking import run_ranks
from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig, TrainConfig
from knifeedge.engine import train
from knifeedge.engine.checkpoint import load_model
from knifeedge.engine.logs import read_log
from knifeedge.errors import ConfigError
from knifeedge.models import register_model
from knifeedge.protocol import run_protocol
from knifeedge.results import RESULT

# Five images of 8 variants and batches of 6: the last batch goes on with the epoch's first samples.
DATA = DataConfig("synthetic", "pretrain", options={"count": 6, "size": 40})
CONFIG = TrainConfig(
    *(DATA, ModelConfig("plain")),
    epochs=3,
    crop=32,
    batch_size=6,
    noiseless=False,
    learning_rate=1e-2,
    loss="baa-0.7",
    validate_every=1,
    validation_protocol="one-pixel",
)


class Plain(nn.Sequential):
    """Without batch norms, which are not shared on a CPU."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 5, padding=2), nn.ReLU()
        )
        self.append(nn.Conv2d(8, 1, 1))
        self.unused = nn.Conv2d(1, 1, 1)  # a head that no loss reaches

    def forward(self, images):
        for layer in list(self)[:5]:
            images = layer(images)
        return [images]


@pytest.fixture(autouse=True, scope="module")
def _network():
    register_model("plain", Plain)


def test_the_loss_curve_is_that_of_one_process(tmp_path):
    one = train(CONFIG, tmp_path / "one")
    assert run_ranks(2, lambda: train(CONFIG, tmp_path / "two")) == [0, 0]
    two = read_log(tmp_path / "two")
    assert len(two) == len(one.log) == 3
    for single, double in zip(one.log, two, strict=True):
        assert double.step == single.step
        assert double.loss == pytest.approx(single.loss, abs=1e-4)
        assert double.validation_ods == pytest.approx(single.validation_ods, abs=1e-2)
    assert one.log[-1].loss < one.log[0].loss
    first, second = (load_model(tmp_path / name)[0].state_dict() for name in ("one", "two"))
    for name, value in first.items():
        assert torch.allclose(value, second[name], atol=1e-4), name


def test_unequal_shares_of_a_batch(tmp_path):
    """Three processes, two of which have one sample and one has two."""
    config = replace(CONFIG, batch_size=4, epochs=1, validate_every=0)
    train(config, tmp_path / "one")
    assert run_ranks(3, lambda: train(config, tmp_path / "three")) == [0, 0, 0]
    one, three = (read_log(tmp_path / name)[0].loss for name in ("one", "three"))
    assert three == pytest.approx(one, abs=1e-4)


def test_a_process_without_samples(tmp_path):
    def refused() -> None:
        with pytest.raises(ConfigError, match="1 for each of the 2 processes, got 1; raise it"):
            train(replace(CONFIG, batch_size=1), tmp_path)

    assert run_ranks(2, refused) == [0, 0]


@pytest.mark.slow
def test_a_network_of_the_paper(tmp_path):
    config = replace(
        CONFIG,
        model=ModelConfig("hed"),
        epochs=1,
        batch_size=8,
        validate_every=0,
        loss="wbce",
        learning_rate=1e-4,
    )
    train(config, tmp_path / "one")
    assert run_ranks(2, lambda: train(config, tmp_path / "two")) == [0, 0]
    one, two = (read_log(tmp_path / name)[0].loss for name in ("one", "two"))
    assert two == pytest.approx(one, abs=1e-4)


def test_predictions_and_scores_have_no_duplicates_and_no_gaps(tmp_path):
    config = ProtocolConfig(
        DataConfig("synthetic", options={"count": 12, "size": 40}),
        ModelConfig("plain"),
        epochs=1,
        crop=32,
        noiseless=False,
        losses=("wbce", "baa-sa"),
        scoring=("one-pixel",),
    )
    run_protocol(config, tmp_path / "one")
    assert run_ranks(2, lambda: run_protocol(config, tmp_path / "two")) == [0, 0]
    for loss in ("wbce", "baa-sa"):
        maps = [sorted((tmp_path / n / loss / "predictions").iterdir()) for n in ("one", "two")]
        assert [p.name for p in maps[0]] == [p.name for p in maps[1]]
        assert len(maps[0]) == 3
        for single, double in zip(*maps, strict=True):
            difference = np.asarray(Image.open(single)).astype(int) - np.asarray(Image.open(double))
            assert abs(difference).max() <= 1
        images = [
            json.loads((tmp_path / n / loss / "scores-one-pixel.json").read_text())["images"]
            for n in ("one", "two")
        ]
        assert [i["name"] for i in images[0]] == [i["name"] for i in images[1]]
    results = [json.loads((tmp_path / n / RESULT).read_text()) for n in ("one", "two")]
    assert results[0]["images"] == results[1]["images"]
    assert results[0]["calibrations"][0]["threshold"] == pytest.approx(
        results[1]["calibrations"][0]["threshold"], abs=0.011
    )
