"""Training: the same weights whatever happens on the way, and nothing lost when something does."""

import os
import random
import signal
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from forking import fork
from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.data import CropSettings
from knifeedge.engine import Callback, Interrupted, resume_run, train
from knifeedge.engine.checkpoint import CHECKPOINT, WEIGHTS, load_model, read_info
from knifeedge.engine.journal import NonFiniteError
from knifeedge.engine.logs import read_log
from knifeedge.engine.train import _crop_settings
from knifeedge.errors import CheckpointError, ConfigError
from knifeedge.models import register_model

DATA = DataConfig("synthetic", options={"count": 4, "size": 48})
CONFIG = TrainConfig(DATA, ModelConfig("tiny"), epochs=3, crop=32, batch_size=8, loss="baa-0.7")
STEPS = 3 * 8


class WithDropout(nn.Sequential):
    """Draws at random in every step."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.Dropout(0.5), nn.Conv2d(8, 1, 1))

    def forward(self, images):
        return [super().forward(images)]


@pytest.fixture(autouse=True, scope="module")
def _networks():
    register_model("with-dropout", WithDropout)
    register_model("breaks", Breaks)


class StopAt(Callback):
    """Sends a signal to this process when an epoch ends."""

    def __init__(self, epoch: int, number: int = signal.SIGINT) -> None:
        self.epoch, self.number = epoch, number

    def on_epoch(self, record, losses):
        if record.epoch == self.epoch:
            os.kill(os.getpid(), self.number)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / WEIGHTS)


def assert_same_weights(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def losses(folder: Path) -> list[float]:
    return [row.loss for row in read_log(folder)]


def test_the_loss_falls_and_the_files_are_there(tmp_path):
    config = replace(CONFIG, learning_rate=2e-3, validate_every=3)
    with pytest.raises(ConfigError, match=r"1 of the 1 images to validate on are trained on"):
        train(config, tmp_path)
    run = train(replace(config, data=replace(DATA, split="pretrain")), tmp_path)
    assert [row.epoch for row in run.log] == [1, 2, 3]
    assert run.log[-1].step == 3 * 6
    assert run.log[-1].loss < run.log[0].loss
    assert run.log[-1].validation_ods is not None
    assert run.log[0].validation_ods is None
    names = {path.name.split(".")[0] for path in tmp_path.iterdir()}
    assert names == {"config", "log", "events", "model"}
    model, info = load_model(tmp_path)
    assert not model.training
    assert info.training["loss"] == "baa-0.7"
    assert info.trained_on == tuple(f"synthetic-0-{i}" for i in range(3))


def test_the_defaults_are_the_papers():
    config = TrainConfig(DataConfig("UDED"), ModelConfig("hed")).resolved()
    assert (config.epochs, config.learning_rate, config.weight_decay) == (200, 1e-4, 1e-8)
    assert _crop_settings(config) == CropSettings()
    assert TrainConfig(DataConfig("BSDS500"), ModelConfig("hed")).resolved().epochs == 50


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(replace(CONFIG, epochs=1, seed=seed), tmp_path / name)
    assert_same_weights(tmp_path / "a", tmp_path / "b")
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


@pytest.mark.parametrize("model", ["tiny", "with-dropout"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_end(tmp_path, model, number):
    config = replace(CONFIG, model=ModelConfig(model))
    train(config, tmp_path / "whole")
    with pytest.raises(Interrupted, match=r"stopped after step 16 of 24 .*train --resume") as stop:
        train(config, tmp_path / "cut", callbacks=[StopAt(2, number)])
    assert stop.value.number == number
    assert not (tmp_path / "cut" / WEIGHTS).exists()
    run = resume_run(tmp_path / "cut")
    assert_same_weights(tmp_path / "whole", tmp_path / "cut")
    assert losses(tmp_path / "whole") == [row.loss for row in run.log]
    assert not (tmp_path / "cut" / CHECKPOINT).exists()


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_sigkill_at_random_moments(tmp_path):
    """A child is killed twelve times, and resumed; at last the weights are bitwise the same.

    There is a checkpoint after every step, and a child is killed within some milliseconds of the
    first to the fourth that it wrote: many of the kills hit the writing of the next.
    """
    config = replace(CONFIG, epochs=12, checkpoint_seconds=0.0)
    train(config, tmp_path / "whole")
    chance, folder = random.Random(7), tmp_path / "killed"
    for _ in range(12):
        child = fork(lambda: train(config, folder, resume=True))
        for _ in range(chance.randint(1, 4)):
            wait_for_a_change(folder / CHECKPOINT)
        time.sleep(chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not (folder / WEIGHTS).exists()
    train(config, folder, resume=True)
    assert_same_weights(tmp_path / "whole", folder)
    assert losses(tmp_path / "whole") == losses(folder)
    assert not list(folder.glob(".knifeedge-*"))


def wait_for_a_change(path: Path) -> None:
    """Wait until a file is another one."""

    def state() -> tuple[int, int] | None:
        return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None

    before = state()
    while state() in (before, None):
        time.sleep(0.0005)


def test_a_kill_while_a_checkpoint_is_written_leaves_the_one_before(tmp_path):
    """The child dies with half of the new file on disk."""
    config = replace(CONFIG, checkpoint_seconds=0.0)
    train(config, tmp_path / "whole")

    def die_in_the_fifth_checkpoint() -> None:
        from knifeedge import disk

        count, sync = 0, os.fsync

        def fsync(number: int) -> None:
            nonlocal count
            if os.fstat(number).st_size > 100_000:
                count += 1
                if count == 5:
                    os.ftruncate(number, os.fstat(number).st_size // 2)
                    os.kill(os.getpid(), signal.SIGKILL)
            sync(number)

        disk.os.fsync = fsync
        train(config, tmp_path / "cut")

    child = fork(die_in_the_fifth_checkpoint)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert list((tmp_path / "cut").glob(".knifeedge-*"))
    train(config, tmp_path / "cut", resume=True)
    assert_same_weights(tmp_path / "whole", tmp_path / "cut")
    assert not list((tmp_path / "cut").glob(".knifeedge-*"))


def test_a_threshold_found_while_training_is_logged_saved_and_resumed(tmp_path):
    # 12 epochs of 8 steps: it moves from step 51 on.
    config = replace(CONFIG, epochs=12, loss="baa-online", learning_rate=2e-3, crop=24)
    one = train(config, tmp_path / "one")
    found = [row.threshold for row in one.log]
    assert found[:6] == [0.7] * 6
    assert len(set(found[6:])) == 6
    info = read_info(tmp_path / "one")
    assert info.threshold == found[-1]
    assert info.calibration == {"from": "training"}
    for epoch in (3, 8):
        with pytest.raises(Interrupted):
            train(config, tmp_path / "two", resume=True, callbacks=[StopAt(epoch)])
    two = resume_run(tmp_path / "two")
    assert_same_weights(tmp_path / "one", tmp_path / "two")
    assert [row.threshold for row in two.log] == found


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = train(replace(CONFIG, epochs=1), tmp_path)
    before = (tmp_path / WEIGHTS).stat().st_mtime_ns
    again = train(replace(CONFIG, epochs=1), tmp_path, resume=True)
    assert again.log == first.log
    assert (tmp_path / WEIGHTS).stat().st_mtime_ns == before
    with pytest.raises(ConfigError, match="holds a run already"):
        train(replace(CONFIG, epochs=1), tmp_path)
    with pytest.raises(ConfigError, match="holds another run: its epochs is 1, not 2"):
        train(replace(CONFIG, epochs=2), tmp_path, resume=True)


@pytest.mark.parametrize("name", [WEIGHTS, CHECKPOINT])
@pytest.mark.parametrize("resume", [False, True])
def test_weights_without_a_configuration_are_not_taken_for_a_run(tmp_path, name, resume):
    (tmp_path / name).write_bytes(b"of somebody else")
    with pytest.raises(ConfigError, match=rf"holds {name} and no config\.json .*--out, or move"):
        train(CONFIG, tmp_path, resume=resume)
    assert (tmp_path / name).read_bytes() == b"of somebody else"


def test_an_unknown_validation_protocol_is_refused_before_the_training(tmp_path):
    config = replace(CONFIG, validate_every=3, validation_protocol="strict")
    with pytest.raises(ConfigError, match="unknown protocol 'strict'; the known ones are"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_kill_between_the_weights_and_the_end_leaves_no_checkpoint_for_good(tmp_path):
    train(replace(CONFIG, epochs=1), tmp_path)
    (tmp_path / CHECKPOINT).write_bytes(b"not removed any more")
    train(replace(CONFIG, epochs=1), tmp_path, resume=True)
    assert not (tmp_path / CHECKPOINT).exists()


def test_a_run_goes_on_without_the_weights_it_started_from(tmp_path):
    @register_model("started", replace=True)
    class Started(nn.Conv2d):
        def __init__(self, start: str | Path | None = None) -> None:
            super().__init__(3, 1, 3, padding=1)
            if start is not None:
                self.load_state_dict(load_file(start))

        def forward(self, images):
            return [super().forward(images)]

    start = tmp_path / "start.safetensors"
    save_file(Started().state_dict(), start)
    config = replace(CONFIG, model=ModelConfig("started", {"start": str(start)}))
    train(config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        train(config, tmp_path / "cut", callbacks=[StopAt(2)])
    start.unlink()
    resume_run(tmp_path / "cut")
    assert_same_weights(tmp_path / "whole", tmp_path / "cut")


def test_a_folder_of_a_protocol_is_told_from_a_run(tmp_path):
    (tmp_path / "config.json").write_text('{"format": 1, "kind": "protocol", "data": {}}')
    for begin in (lambda: train(CONFIG, tmp_path), lambda: resume_run(tmp_path)):
        with pytest.raises(ConfigError, match="holds a protocol: the same `knifeedge protocol` co"):
            begin()


def test_a_refused_run_leaves_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="lower it"):
        train(replace(CONFIG, batch_size=1000), tmp_path / "new")
    assert not (tmp_path / "new").exists()


class Breaks(nn.Sequential):
    """Its output is no number from a step on."""

    def __init__(self, after: int = 10) -> None:
        super().__init__(nn.Conv2d(3, 1, 1))
        self.after, self.calls = after, 0

    def forward(self, images):
        self.calls += 1
        logits = super().forward(images)
        return [logits * float("nan") if self.calls > self.after else logits]


def test_a_loss_that_is_no_number_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("knifeedge.engine.journal.LOOK_SECONDS", 0.0)
    config = replace(CONFIG, model=ModelConfig("breaks"), checkpoint_seconds=0.0)
    with pytest.raises(NonFiniteError, match=r"loss of step 11 is nan, .*synthetic-0-\d") as error:
        train(config, tmp_path)
    told = "train anew in another folder (--out), with a lower learning rate; last.ckpt is from"
    assert told in str(error.value)
    # The checkpoint is from the step before, and whole.
    from safetensors import safe_open

    with safe_open(tmp_path / CHECKPOINT, "pt") as file:
        assert '"step": 10' in file.metadata()["knifeedge"]
        assert all(file.get_tensor(key).isfinite().all() for key in file.keys())  # noqa: SIM118


class SteepAtZero(nn.Conv2d):
    """Its loss is a number, and its gradient is none: the slope of a root at 0, times 0."""

    def __init__(self) -> None:
        super().__init__(3, 1, 1)

    def forward(self, images):
        return [super().forward(images) + (0 * self.weight.sum()).sqrt()]


def test_weights_that_are_no_numbers_are_never_saved(tmp_path):
    """The first loss is finite; the step after it breaks the weights."""
    register_model("steep", SteepAtZero)
    config = replace(CONFIG, model=ModelConfig("steep"), checkpoint_seconds=0.0)
    with pytest.raises(
        NonFiniteError, match=r"weight.* no numbers any more at step 1; .* no checkpoint was saved"
    ):
        train(config, tmp_path)
    assert not (tmp_path / CHECKPOINT).exists()
    assert not (tmp_path / WEIGHTS).exists()


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    for name, loss in (("a", "wbce"), ("b", "baa-0.7")):
        with pytest.raises(Interrupted):
            train(replace(CONFIG, loss=loss), tmp_path / name, callbacks=[StopAt(1)])
    (tmp_path / "a" / CHECKPOINT).replace(tmp_path / "b" / CHECKPOINT)
    with pytest.raises(CheckpointError, match="another training: its loss is 'wbce'"):
        resume_run(tmp_path / "b")


def test_frozen_parts_need_their_weights(tmp_path):
    config = replace(CONFIG, model=ModelConfig("frozen-part"))

    @register_model("frozen-part", replace=True)
    class FrozenPart(nn.Sequential):
        def __init__(self, part: str | Path | None = None) -> None:
            super().__init__(nn.Conv2d(3, 4, 1).requires_grad_(False), nn.Conv2d(4, 1, 1))

        def forward(self, images):
            return [super().forward(images)]

    with pytest.raises(ConfigError, match=r"frozen networks: give their weights .*part"):
        train(config, tmp_path / "run")


def test_the_users_random_numbers_are_left_alone(tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    train(replace(CONFIG, epochs=1), tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


def test_callbacks_hear_of_everything(tmp_path):
    heard = []

    class Listener(Callback):
        def on_start(self, config, folder, step, steps):
            heard.append(("start", step, steps))

        def on_progress(self, standing):
            assert standing.images_per_second > 0

        def on_epoch(self, record, losses):
            heard.append(("epoch", record.epoch, len(losses)))

        def on_end(self, folder):
            assert (folder / WEIGHTS).is_file()
            heard.append(("end",))

    train(CONFIG, tmp_path, callbacks=[Listener()])
    epochs = [("epoch", number, 8) for number in (1, 2, 3)]
    assert heard == [("start", 0, STEPS), *epochs, ("end",)]


def test_callbacks_hear_of_a_stop(tmp_path):
    heard = []

    class Listener(StopAt):
        def on_end(self, folder):
            heard.append("end")

        def on_stop(self, folder):
            heard.append("stop")

    with pytest.raises(Interrupted):
        train(CONFIG, tmp_path, callbacks=[Listener(1)])
    assert heard == ["stop"]


def test_callbacks_hear_of_weights_that_cannot_be_saved(tmp_path, monkeypatch):
    heard = []

    class Listener(Callback):
        def on_end(self, folder):
            heard.append("end")

        def on_stop(self, folder):
            heard.append("stop")

    def full(*_):
        raise CheckpointError("no space left")

    module = import_module("knifeedge.engine.train")  # its name is the function's, too
    monkeypatch.setattr(module, "save_model", full)
    with pytest.raises(CheckpointError, match="no space left"):
        train(replace(CONFIG, epochs=1), tmp_path, callbacks=[Listener()])
    assert heard == ["stop"]
