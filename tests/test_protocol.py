"""The three steps: right images at each, done once, resumable, for EES3 too."""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from forking import fork
from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig
from knifeedge.data.synthetic import synthetic_scene
from knifeedge.engine.checkpoint import read_info
from knifeedge.engine.logs import read_log
from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.scores import EdgeScores
from knifeedge.models import register_model
from knifeedge.protocol import run_protocol
from knifeedge.report import read_runs
from knifeedge.report.plots import protocol_plots
from knifeedge.results import RESULT

CONFIG = ProtocolConfig(
    DataConfig("synthetic", options={"count": 8, "size": 48}),
    ModelConfig("tiny"),
    epochs=2,
    crop=32,
    noiseless=False,
    learning_rate=1e-2,
    scoring=("one-pixel", "paper-relaxed"),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A finished protocol, and the stages it went through."""
    stages = []
    folder = tmp_path_factory.mktemp("protocol")
    result = run_protocol(CONFIG, folder, on_stage=lambda *stage: stages.append(stage))
    return result, stages


def test_the_stages(done):
    result, stages = done
    threshold = f"{result.thresholds['wbce']:g}"
    assert [what for what, _, _ in stages] == [
        "train wbce on pretrain",
        "calibrate pretrain-wbce",
        "train wbce on train",
        "train baa-0.7 on train",
        f"train baa-{threshold} on train",
        "test wbce",
        "test baa-0.7",
        "test baa-sa",
    ]
    assert [(number, count) for _, number, count in stages] == [(i, 8) for i in range(1, 9)]


def test_the_calibrated_threshold_goes_into_the_second_training(done):
    result, _ = done
    calibration = json.loads((result.folder / "pretrain-wbce" / "calibration.json").read_text())
    threshold = calibration["threshold"]
    assert calibration["curve"][round(100 * threshold) - 1] == max(calibration["curve"])
    assert calibration["protocol"]["name"] == "one-pixel"
    final = json.loads((result.folder / "baa-sa" / "config.json").read_text())
    assert final["loss"] == f"baa-{threshold:g}"
    by_loss = {entry.loss: entry for entry in result.losses}
    assert by_loss["baa-sa"].threshold == by_loss["wbce"].threshold == threshold
    assert by_loss["baa-0.7"].threshold == 0.7
    for entry in result.losses:
        assert read_info(entry.folder).threshold == entry.threshold
        assert entry.threshold_from == ("the loss" if entry.loss == "baa-0.7" else "validation")


def test_the_losses_start_from_the_same_weights_and_see_the_same_samples(done):
    result, _ = done
    configs = [json.loads((e.folder / "config.json").read_text()) for e in result.losses]
    assert len({config.pop("loss") for config in configs}) == 3
    assert configs[0] == configs[1] == configs[2]


def test_the_record(done):
    result, _ = done
    record = json.loads((result.folder / RESULT).read_text())
    assert record["images"] == {"pretrain": 6, "validation": 2, "train": 8, "test": 2}
    assert record["config"]["losses"] == ["wbce", "baa-0.7", "baa-sa"]
    for entry, row in zip(result.losses, record["losses"], strict=True):
        for name in CONFIG.scoring:
            path = entry.folder / f"scores-{name}.json"
            scores = EdgeScores.from_dict(json.loads(path.read_text()))
            assert row["scores"][name]["ods"] == scores.ods == entry.scores[name].ods
            assert row["scores"][name]["at"]["f"] == scores.at(entry.threshold).f
        assert len(list((entry.folder / "predictions").iterdir())) == 2
    assert len(list((result.folder / "gallery").iterdir())) == 4


def test_what_is_done_is_not_done_again(done, monkeypatch):
    result, _ = done
    before = {path: path.stat().st_mtime_ns for path in result.folder.rglob("model.safetensors")}
    monkeypatch.setattr(nn.Module, "__call__", lambda *_: pytest.fail("a network was run"))
    again = run_protocol(CONFIG, result.folder)
    assert [e.scores["one-pixel"].ods for e in again.losses] == [
        e.scores["one-pixel"].ods for e in result.losses
    ]
    assert before == {p: p.stat().st_mtime_ns for p in result.folder.rglob("model.safetensors")}
    with pytest.raises(ConfigError, match="another protocol: its seed is 0, not 1"):
        run_protocol(replace(CONFIG, seed=1), result.folder)


def test_the_same_seed_gives_the_same_table(done, tmp_path):
    result, _ = done
    again = run_protocol(CONFIG, tmp_path)
    for one, other in zip(result.losses, again.losses, strict=True):
        assert one.threshold == other.threshold
        for name in CONFIG.scoring:
            assert np.array_equal(one.scores[name].counts, other.scores[name].counts)


def test_a_loss_that_finds_its_threshold_needs_one_training(tmp_path):
    stages = []
    config = replace(CONFIG, losses=("baa-online", "baa-0.6"))
    result = run_protocol(config, tmp_path, on_stage=lambda *stage: stages.append(stage))
    assert [what for what, _, _ in stages] == [
        "train baa-online on train",
        "train baa-0.6 on train",
        "test baa-online",
        "test baa-0.6",
    ]
    assert {count for _, _, count in stages} == {4}
    online, fixed = result.losses
    assert (online.threshold_from, fixed.threshold_from) == ("training", "the loss")
    assert online.threshold == read_info(online.folder).threshold
    assert online.threshold == read_log(online.folder)[-1].threshold
    assert result.thresholds == {}
    (run,) = read_runs([tmp_path]).runs
    assert [outcome.threshold_from for outcome in run.outcomes] == ["training", "the loss"]
    assert run.outcomes[0].training.log.threshold.tolist() == [0.7, 0.7]


def test_the_report_draws_the_threshold_found_beside_the_calibrated_one(tmp_path):
    run_protocol(replace(CONFIG, losses=("baa-online", "wbce")), tmp_path)
    (run,) = read_runs([tmp_path]).runs
    (plot,) = [plot for plot in protocol_plots(run) if plot.key == "online"]
    found, calibrated = plot.series
    assert (found.label, found.y.tolist()) == ("baa-online", [0.7, 0.7])
    assert calibrated.label == "calibrated with wbce"
    assert calibrated.y.tolist() == [run.calibrations[0].threshold] * 2


def test_each_loss_trained_once_and_calibrated(done, tmp_path):
    """Without a second training: on P alone, and a threshold from V for each loss."""
    stages = []
    losses = ("baa-sa", "wbce", "dice", "baa-0.6")
    config = replace(CONFIG, losses=losses, retrain=False)
    result = run_protocol(config, tmp_path, on_stage=lambda *stage: stages.append(stage))
    threshold = f"{result.thresholds['wbce']:g}"
    assert [what for what, _, _ in stages] == [
        "train wbce on pretrain",
        "calibrate pretrain-wbce",
        f"train baa-{threshold} on pretrain",
        "calibrate baa-sa",
        "train dice on pretrain",
        "calibrate dice",
        "train baa-0.6 on pretrain",
        "calibrate baa-0.6",
        *(f"test {run}" for run in ("baa-sa", "pretrain-wbce", "dice", "baa-0.6")),
    ]
    assert [(number, count) for _, number, count in stages] == [(i, 12) for i in range(1, 13)]
    # The base is the very network that the usual protocol calibrates.
    assert result.thresholds == done[0].thresholds
    for entry in result.losses:
        info = read_info(entry.folder)
        assert len(info.trained_on) == 6
        assert info.threshold == entry.threshold
        calibration = json.loads((entry.folder / "calibration.json").read_text())
        assert (entry.threshold, entry.threshold_from) == (calibration["threshold"], "validation")
    record = json.loads((tmp_path / RESULT).read_text())
    for entry, row in zip(result.losses, record["losses"], strict=True):
        for name in CONFIG.scoring:
            assert row["scores"][name]["at_half"] == entry.scores[name].at(0.5)._asdict()
    again = run_protocol(config, tmp_path)
    assert [entry.threshold for entry in again.losses] == [e.threshold for e in result.losses]


@pytest.mark.slow
@pytest.mark.parametrize("within", [False, True])
def test_killed_between_and_within_stages(done, tmp_path, within):
    """A child goes as far as each stage in turn; then it is killed at once, or a little later."""
    result, stages = done
    folder = tmp_path / "killed"
    for _, last, _ in stages[:-1] if within else stages:  # the last may be over too soon
        ready, told = os.pipe()

        def on_stage(what, number, count, last=last, told=told):
            if number == last:
                os.write(told, b".")
                if not within:
                    signal.pause()

        child = fork(lambda on_stage=on_stage: run_protocol(CONFIG, folder, on_stage=on_stage))
        assert os.read(ready, 1) == b"."
        if within:
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        os.close(ready)
        os.close(told)
    again = run_protocol(CONFIG, folder)
    for one, other in zip(result.losses, again.losses, strict=True):
        assert np.array_equal(one.scores["one-pixel"].counts, other.scores["one-pixel"].counts)


def test_losses_with_one_base_share_its_pretraining(tmp_path):
    stages = []
    losses = ("swbce", "baa(base=swbce,threshold=sa)", "wbce")
    config = replace(CONFIG, epochs=1, losses=losses, scoring=("one-pixel",))
    result = run_protocol(config, tmp_path, on_stage=lambda what, *_: stages.append(what))
    assert [s for s in stages if "pretrain" in s and s.startswith("train")] == [
        "train swbce on pretrain",
        "train wbce on pretrain",
    ]
    assert set(result.thresholds) == {"swbce", "wbce"}
    final = json.loads((result.losses[1].folder / "config.json").read_text())["loss"]
    assert final == f"baa(base=swbce,threshold={result.thresholds['swbce']:g})"
    # Without its result the report finds the losses' folders by their names.
    (tmp_path / RESULT).unlink()
    contents = read_runs([tmp_path])
    assert [fault.reason for fault in contents.faults] == [
        "result.json, written last, is not there"
    ]
    scored = {outcome.loss: set(outcome.scored) for outcome in contents.runs[0].outcomes}
    assert scored == {loss: {"one-pixel"} for loss in losses}


def test_the_report_understands_all_of_it(done):
    """Formats are stated where they are written and where they are read: they must agree."""
    result, _ = done
    contents = read_runs([result.folder])
    assert contents.faults == []
    (run,) = contents.runs
    for entry, outcome in zip(result.losses, run.outcomes, strict=True):
        assert outcome.loss == entry.loss
        assert outcome.threshold == entry.threshold
        assert outcome.training.log is not None
        for name in CONFIG.scoring:
            assert outcome.scored[name].summary["ods"] == entry.scores[name].ods
    assert run.calibrations[0].threshold == result.thresholds["wbce"]
    assert len(run.gallery) == 2


@pytest.fixture
def folder_set(tmp_path):
    """Ten pictures of one's own."""
    for index in range(10):
        image, label = synthetic_scene(3, index, 48)
        for kind, array in (("images", image), ("labels", label)):
            path = tmp_path / "own" / kind / f"scene{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(path)
    return DataConfig("folder", root=str(tmp_path / "own"))


def test_test_images_never_reach_training_or_calibration(folder_set, tmp_path):
    """Every file that the process opens is written down, with the stage it is opened in."""
    from knifeedge.data import load_dataset

    splits = {
        split: set(load_dataset("folder", split, root=folder_set.root).names)
        for split in ("pretrain", "validation", "train", "test")
    }
    log = tmp_path / "opened.txt"

    def work() -> None:
        stage = ["before"]

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event == "open" and str(arguments[0]).startswith(str(folder_set.root)):
                opened.append((stage[0], Path(str(arguments[0])).stem))

        opened: list[tuple[str, str]] = []
        sys.addaudithook(hook)
        config = replace(CONFIG, data=folder_set, epochs=1, scoring=("one-pixel",))
        run_protocol(config, tmp_path / "run", on_stage=lambda what, *_: stage.__setitem__(0, what))
        log.write_text(json.dumps(opened))

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == 0
    opened = json.loads(log.read_text())
    read_in: dict[str, set[str]] = {}
    for stage, name in opened:
        read_in.setdefault(stage.split()[0] + " " + stage.split()[-1], set()).add(name)
    assert read_in.pop("train pretrain") == splits["pretrain"]
    assert read_in.pop("calibrate pretrain-wbce") == splits["validation"]
    assert read_in.pop("train train") == splits["train"]
    assert splits["pretrain"] | splits["validation"] == splits["train"]
    assert not splits["train"] & splits["test"]
    for stage in ("test wbce", "test baa-0.7", "test baa-sa"):
        assert read_in.pop(stage) <= splits["test"]
    assert read_in == {}


def test_too_few_images(tmp_path):
    config = replace(CONFIG, data=DataConfig("synthetic", options={"count": 1, "size": 48}))
    with pytest.raises(DataError, match="none are left for validation"):
        run_protocol(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_extractors_are_stages_of_the_same_protocol(tmp_path):
    """As for EES3, with toys: each extractor is trained alone, once, on the images of the step."""

    @register_model("toy", replace=True)
    class Extractor(nn.Module):
        def __init__(self, side_channels: int = 1) -> None:
            super().__init__()
            self.side = nn.Conv2d(3, side_channels, 3, padding=1)
            self.head = nn.Conv2d(side_channels, 1, 1)

        def forward(self, images):
            return [self.head(self.side(images))]

    @register_model("toy-selector", replace=True)
    class Selector(nn.Module):
        def __init__(self, toy: str | Path | None = None) -> None:
            super().__init__()
            self.extractor = Extractor(21)
            if toy is not None:
                self.extractor.load_state_dict(load_file(toy))
            self.extractor.requires_grad_(False)
            self.mix = nn.Conv2d(21, 1, 1)

        def forward(self, images):
            return [self.mix(self.extractor.side(images).sigmoid())]

    stages = []
    config = replace(CONFIG, model=ModelConfig("toy-selector"), losses=("wbce", "baa-sa"))
    result = run_protocol(config, tmp_path, on_stage=lambda *stage: stages.append(stage))
    threshold = f"{result.thresholds['wbce']:g}"
    assert [what for what, _, _ in stages] == [
        "train toy as extractor on pretrain",
        "train wbce on pretrain",
        "calibrate pretrain-wbce",
        "train toy as extractor on train",
        "train wbce on train",
        f"train baa-{threshold} on train",
        "test wbce",
        "test baa-sa",
    ]
    assert [(number, count) for _, number, count in stages] == [(i, 8) for i in range(1, 9)]
    pretrain = json.loads((tmp_path / "extractor-toy-pretrain" / "config.json").read_text())
    assert pretrain["data"]["split"] == "pretrain"
    assert pretrain["model"]["options"] == {"side_channels": 21}
    final = json.loads((tmp_path / "baa-sa" / "config.json").read_text())
    weights = tmp_path / "extractor-toy" / "model.safetensors"
    assert Path(final["model"]["options"]["toy"]) == weights
    frozen = load_file(tmp_path / "baa-sa" / "model.safetensors")
    for name, value in load_file(weights).items():
        assert torch.equal(frozen[f"extractor.{name}"], value)
    # It goes on from another spelling of its folder, and from where it was moved to.
    again = run_protocol(config, tmp_path / ".." / tmp_path.name)
    assert again.thresholds == result.thresholds
    (tmp_path / "baa-sa" / "scores-one-pixel.json").unlink()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert run_protocol(config, moved).thresholds == result.thresholds


def test_a_protocol_of_an_earlier_version_goes_on(done):
    """A setting that did not exist then had what is its default now."""
    result, _ = done
    path = result.folder / "config.json"
    before = path.read_text()
    saved = json.loads(before)
    assert saved.pop("refresh") == 1
    path.write_text(json.dumps(saved))
    try:
        assert run_protocol(CONFIG, result.folder).thresholds == result.thresholds
        with pytest.raises(ConfigError, match="another protocol: its refresh is 1, not 5"):
            run_protocol(replace(CONFIG, refresh=5), result.folder)
    finally:
        path.write_text(before)


def test_what_is_refused_before_the_first_training(done, tmp_path):
    config = replace(CONFIG, validate_every=1, validation_protocol="strict")
    with pytest.raises(ConfigError, match="unknown protocol 'strict'"):
        run_protocol(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    result, _ = done
    with pytest.raises(ConfigError, match="holds a single training; name another folder"):
        run_protocol(CONFIG, result.folder / "wbce")
