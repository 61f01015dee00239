"""Training on a CUDA device: the captured step does what the eager one does, and resumes."""

from dataclasses import replace

import pytest
import torch

from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.engine import Interrupted, train
from knifeedge.engine.checkpoint import load_model
from knifeedge.engine.logs import Callback, read_log

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

DATA = DataConfig("synthetic", options={"count": 5, "size": 64})
CONFIG = TrainConfig(
    *(DATA, ModelConfig("tiny")), epochs=3, crop=64, batch_size=6, noiseless=False, loss="baa-0.7"
)


class StopAfter(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, record, losses):
        if record.epoch == self.epoch:
            raise Interrupted("enough", 2)


def test_the_captured_step_is_the_eager_one(tmp_path, monkeypatch):
    train(CONFIG, tmp_path / "captured", accelerator="cuda")
    monkeypatch.setattr("knifeedge.engine.stepping.WARM_UP", 10**9)  # never captured
    train(CONFIG, tmp_path / "eager", accelerator="cuda")
    captured, eager = (read_log(tmp_path / name) for name in ("captured", "eager"))
    for one, other in zip(captured, eager, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-3)


def test_the_device_changes_little(tmp_path):
    for device in ("cuda", "cpu"):
        train(CONFIG, tmp_path / device, accelerator=device)
    cuda, cpu = (read_log(tmp_path / name) for name in ("cuda", "cpu"))
    for one, other in zip(cuda, cpu, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-2)


@pytest.mark.parametrize("model", ["tiny", "hed", "dexined"])
def test_the_same_training_gives_the_same_bits(tmp_path, model):
    config = replace(CONFIG, model=ModelConfig(model), precision="bf16-mixed")
    for name in ("one", "other"):
        train(config, tmp_path / name, accelerator="cuda")
    one, other = (load_model(tmp_path / name)[0].state_dict() for name in ("one", "other"))
    assert [key for key in one if not torch.equal(one[key], other[key])] == []


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_resumed_run_goes_on(tmp_path, precision):
    """The optimiser's state must come back in the memory layout of the weights."""
    config = replace(CONFIG, precision=precision, checkpoint_seconds=0.0)
    train(config, tmp_path / "whole", accelerator="cuda")
    with pytest.raises(Interrupted):
        train(config, tmp_path / "cut", accelerator="cuda", callbacks=[StopAfter(2)])
    train(config, tmp_path / "cut", accelerator="cuda", resume=True)
    whole, cut = (read_log(tmp_path / name) for name in ("whole", "cut"))
    assert [row.step for row in whole] == [row.step for row in cut]
    assert cut[-1].loss == pytest.approx(whole[-1].loss, rel=2e-2)
    model, _ = load_model(tmp_path / "cut")
    assert all(value.isfinite().all() for value in model.state_dict().values())


def test_a_threshold_moves_in_the_captured_step_and_resumes(tmp_path):
    config = replace(CONFIG, epochs=16, loss="baa-online", learning_rate=2e-3)
    train(config, tmp_path / "whole", accelerator="cuda")
    with pytest.raises(Interrupted):
        train(
            replace(config, checkpoint_seconds=0.0),
            tmp_path / "cut",
            accelerator="cuda",
            callbacks=[StopAfter(12)],
        )
    train(
        replace(config, checkpoint_seconds=0.0), tmp_path / "cut", accelerator="cuda", resume=True
    )
    train(config, tmp_path / "cpu", accelerator="cpu")
    logs = {name: read_log(tmp_path / name) for name in ("whole", "cut", "cpu")}
    # 7 steps an epoch, and 50 before it moves.
    assert [row.threshold for row in logs["whole"][:7]] == [0.7] * 7
    found = {name: rows[-1].threshold for name, rows in logs.items()}
    assert found["whole"] != 0.7
    assert found["cut"] == pytest.approx(found["whole"], abs=0.05)
    assert found["cpu"] == pytest.approx(found["whole"], abs=0.05)
