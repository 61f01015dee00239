"""`knifeedge train`: its options, its one-line errors, signals, and a full disk."""

import json
import os
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import MISSING, fields
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

import knifeedge.engine as engine
from command_line import TINY, call, deny_writing, done, refused
from forking import fork
from knifeedge.cli import training
from knifeedge.config import DataConfig, ModelConfig, TrainConfig, from_mapping, to_mapping
from knifeedge.engine import Callback, EpochRecord, Run, load_model
from knifeedge.engine.logs import read_log


def test_warnings_are_lines_without_a_place_in_the_source(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        result = done(
            "train", *TINY, "--split", "test", "--batch-size", 2, "--out", tmp_path / "run"
        )
    (line,) = [line for line in result.err.splitlines() if "warning" in line]
    assert line.startswith("knifeedge: warning: these are the test images of synthetic: ")


def test_machines_that_nobody_brings_together_are_not_waited_for(tmp_path: Path) -> None:
    said = refused("train", *TINY, "--nodes", 2, "--out", tmp_path / "run")
    assert "2 nodes need torchrun" in said


def config_of(folder: Path) -> TrainConfig:
    return from_mapping(TrainConfig, json.loads((folder / "config.json").read_text()))


def same_weights(one: Path, other: Path) -> bool:
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(first[k].equal(second[k]) for k in first)


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_and_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    options = ("--loss", "baa-0.7", "--split", "pretrain", "--validate-every", 1)
    result = done("train", *TINY, *options, "--out", folder)
    (row,) = read_log(folder)
    assert result.out == f"{folder / 'model.safetensors'}: 2 steps, loss {row.loss:.4f}\n"
    assert result.err == ""
    assert row.validation_ods is not None
    kinds = sorted(path.name.split(".")[0] for path in folder.iterdir())
    assert kinds == ["config", "events", "log", "model"]
    config = config_of(folder)
    data = DataConfig("synthetic", "pretrain", options={"count": 4, "size": 48})
    assert config.data == data
    assert (config.loss, config.crop, config.turns, config.epochs) == ("baa-0.7", 32, False, 1)
    assert load_model(folder)[1].training == to_mapping(config)


def test_a_finished_run_is_not_done_again(tmp_path: Path) -> None:
    first = done("train", *TINY, "--out", tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    assert done("train", "--resume", tmp_path) == first
    (tmp_path / "log.csv").unlink()
    assert "no log" in done("train", "--resume", tmp_path).out
    assert (tmp_path / "model.safetensors").read_bytes() == before
    message = refused("train", *TINY, "--out", tmp_path)
    assert f"holds a run already; continue it with --resume {tmp_path}" in message
    assert "--out" in message


def test_a_folder_of_its_own_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("train", *TINY, "--seed", 3, "--loss", "focal(gamma=3)")
    assert (tmp_path / "runs" / "tiny-synthetic-focal-gamma=3-3" / "model.safetensors").is_file()


@pytest.fixture
def given(monkeypatch):
    """What the command line would train, without doing so."""
    configs: list[TrainConfig] = []

    def take(config: TrainConfig, folder: Path | None, **machine: object) -> Run:
        configs.append(config)
        assert machine.keys() == {"callbacks", "accelerator", "devices", "nodes"}
        return Run(Path("run"), config, (EpochRecord(1, 2, 0.5, 1.0, 1.0),))

    monkeypatch.setattr(engine, "train", take)

    def config(*arguments: object) -> TrainConfig:
        done("train", *arguments)
        return configs.pop()

    return config


NAMES = ("--data", "UDED", "--model", "hed")
OPTIONS = {
    "loss": "swbce",
    "epochs": 3,
    "seed": 4,
    "batch_size": 5,
    "crop": 64,
    "refresh": 5,
    "turns": False,
    "noiseless": False,
    "learning_rate": 0.5,
    "weight_decay": 0.25,
    "precision": "bf16-mixed",
    "validate_every": 7,
    "checkpoint_seconds": 8.5,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_reaches_its_field(given, name: str) -> None:
    flag, value = name.replace("_", "-"), OPTIONS[name]
    arguments = (f"--no-{flag}",) if value is False else (f"--{flag}", value)
    base = given(*NAMES)
    assert base == TrainConfig(DataConfig("UDED"), ModelConfig("hed"))
    assert getattr(base, name) != value
    assert to_mapping(given(*NAMES, *arguments)) == to_mapping(base) | {name: value}


def test_data_and_model_have_options_of_their_own(given) -> None:
    config = given(
        *("--data", "folder", "--root", "pictures", "--split", "all"),
        *("--data-option", "threshold=0.5", "--data-option", "annotator=merged"),
        *("--model", "hed", "--model-option", "side_channels=21", "--model-option", "vgg16=a=b"),
    )
    wanted = {"threshold": 0.5, "annotator": "merged"}
    assert config.data == DataConfig("folder", "all", "pictures", wanted)
    assert config.model == ModelConfig("hed", {"side_channels": 21, "vgg16": "a=b"})


def test_options_are_read_as_what_takes_them(given) -> None:
    """A folder may be called 2024; yes and no may be written as in Python."""
    config = given(
        *("--data", "folder", "--data-option", "images=2024", "--data-option", "labels=None"),
        *("--data-option", "invert=False", "--data-option", "ignore=None"),
        *("--model", "hed", "--model-option", "vgg16=5"),
    )
    wanted = {"images": "2024", "labels": "None", "invert": False, "ignore": None}
    assert config.data.options == wanted
    assert config.model.options == {"vgg16": "5"}


def test_a_file_and_what_goes_before_it(given, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        'epochs = 9\nturns = false\n[data]\nname = "UDED"\noptions = { annotator = 1 }\n'
        '[model]\nname = "hed"\noptions = { side_channels = 21 }\n'
    )
    config = given("--config", path)
    assert (config.epochs, config.turns) == (9, False)
    assert config.data == DataConfig("UDED", options={"annotator": 1})
    changed = given("--config", path, "--epochs", 2, "--turns", "--data-option", "annotator=2")
    assert (changed.epochs, changed.turns) == (2, True)
    assert changed.data.options == {"annotator": 2}
    assert changed.model == config.model
    # Another model's options would not be this one's.
    assert given("--config", path, "--model", "tiny").model == ModelConfig("tiny")


def test_help_shows_the_defaults_of_the_dataclass(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    text = done("train", "--help").out
    assert "Example: knifeedge train --data UDED --model hed --loss baa-0.7" in text
    assert {f.name for f in fields(TrainConfig)} - OPTIONS.keys() == {
        *("data", "model", "validation_split", "validation_protocol")
    }
    for entry in fields(TrainConfig):
        if entry.name in OPTIONS and entry.name != "epochs":
            assert entry.default is not MISSING
            (line,) = re.findall(rf"│ --{entry.name.replace('_', '-')} .*", text)
            assert f"[default: ({entry.default})]" in line
    assert "[default: (200 on UDED, 50 elsewhere)]" in text


# --- bad input ------------------------------------------------------------------------------------


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A data set of black labels."""
    for part in ("images", "labels"):
        (tmp_path / "set" / part).mkdir(parents=True)
        for name in "ab":
            black = np.zeros((40, 40), np.uint8)
            Image.fromarray(black).save(tmp_path / "set" / part / f"{name}.png")
    return tmp_path / "set"


def test_a_data_set_without_edges(bare: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    data = ("--data", "folder", "--root", bare, "--split", "all")
    message = refused("train", *data, "--model", "tiny", "--crop", 32, "--out", out)
    assert "no label of folder, split all, has an edge: there is nothing to learn" in message
    assert "knifeedge data show" in message
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch-size", 9), "batch_size must not be larger than the set's 8 samples, got 9;"),
        (("--loss", "wbec"), "there is no loss 'wbec' (the closest is 'wbce')"),
        (("--loss", "baa-sa"), "baa-sa needs a calibrated threshold: `knifeedge protocol`"),
        (("--loss", "baa-1.7"), "threshold must lie in (0, 1), got 1.7"),
        (("--model", "teeny"), "there is no model 'teeny' (the closest is 'tiny')"),
        (("--model", "ees3-double"), "trains on top of frozen networks: give their weights"),
        (("--model-option", "kernel=3"), "model 'tiny' has no option 'kernel'"),
        (("--model-option", "kernel"), "--model-option must be KEY=VALUE, got 'kernel'"),
        (("--data", "UDDE"), "there is no data set 'UDDE' (the closest is 'UDED'); there are"),
        (("--data", "folder", "--root", "nowhere"), "folder has no option 'count'"),
        (("--split", "trian"), "synthetic has no split 'trian'; it has train"),
        (("--learning-rate", "nan"), "learning_rate must be at least 0 and finite, got nan"),
        (("--learning-rate", "1e40"), "learning_rate must be at most 1e+30, got 1e+40"),
        (("--seed", 2**64), "seed must be at most"),
        (("--precision", "16"), "precision must be '32-true' or 'bf16-mixed', got '16'"),
        (("--accelerator", "tpu"), "accelerator must be auto, cpu or cuda, got 'tpu'"),
        (("--config", "nowhere.toml"), "nowhere.toml cannot be read: No such file"),
        (("--data-option", "cuont=3"), "no option 'cuont' (the closest is 'count')"),
        (("--data-option", "size=abc"), "size must be a whole number"),
        (("--data-option", "seed=1.5"), "seed must be a whole number, got 1.5"),
        (("--crop", 10**9), "crop must be at most 8192, got 1000000000"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_wrong_values_are_one_line(tmp_path: Path, monkeypatch, options, message) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("train", *TINY, *options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [("--epochs", 0), ("--crop", "x"), ("--devices", 0), ("--los", "wbce"), ("--seed", -1)],
    ids=str,
)
def test_usage_errors_name_the_option(options) -> None:
    result = call("train", *TINY, *options)
    assert result.code == 2
    assert options[0] in result.err
    assert len(result.err.splitlines()) == 1


def test_nothing_named() -> None:
    assert "the data is not named; give --data" in refused("train", "--model", "tiny")
    assert "the model is not named; give --model" in refused("train", "--data", "UDED")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "a.toml",
            "crop = 32\nepoch = 3\n",
            "a.toml, line 2: there is no key 'epoch' (the closest",
        ),
        ("a.toml", "crop = '32'\n", "a.toml, line 1: crop must be a whole number, got '32'"),
        ("a.toml", "crop = 0\n", "a.toml: crop must be at least 1 and finite, got 0"),
        ("a.toml", "crop = \n", "a.toml is not TOML"),
        ("a.json", '{\n "crop": 32,\n "sede": 1\n}', "a.json, line 3: there is no key 'sede'"),
        ("a.json", "[1]", "a.json: a configuration must be a table, got [1]"),
        ("a.json", "null", "a.json: a configuration must be a table, got None"),
        ("a.json", '{"data": "UDED"}', "a.json, line 1: data must be a table, got 'UDED'"),
        ("a.toml", "[data]\nname = 'UDED'\noptions = 3\n", "line 3: options must be a table"),
        ("a.toml", "[data]\nnmae = 'UDED'\n", "line 2: there is no key 'nmae' in [data] (the clos"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, name, text, message) -> None:
    path = tmp_path / name
    path.write_text(text)
    out = tmp_path / "run"
    assert message in refused("train", *TINY[:8], "--config", path, "--out", out)
    assert not out.exists()


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in refused("train", *TINY, "--out", tmp_path / "file")
    message = refused("train", *TINY, "--out", tmp_path / "file" / "run")
    assert "is no folder that may be written to" in message
    deny_writing(monkeypatch)
    message = refused("train", *TINY, "--out", tmp_path / "run")
    assert f"{tmp_path / 'run'} cannot be written: {tmp_path} is no folder that may be" in message
    assert not (tmp_path / "run").exists()


def test_too_little_disk_is_seen_before_the_work(tmp_path: Path, monkeypatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    message = refused("train", *TINY, "--out", tmp_path / "run")
    assert re.search(r"has 1 MB of free disk, and two checkpoints need \d MB; make room", message)
    assert "--out" in message
    assert not (tmp_path / "run").exists()


# --- interrupted and resumed ----------------------------------------------------------------------


class SignalAt(Callback):
    """Sends this process a signal at the end of an epoch."""

    def __init__(self, epoch: int, number: int) -> None:
        self.epoch, self.number = epoch, number

    def on_epoch(self, record, losses) -> None:
        if record.epoch == self.epoch:
            signal.raise_signal(self.number)


def interrupt(monkeypatch, *arguments: object, epoch: int = 1, number: int = signal.SIGTERM):
    """A training that is interrupted after an epoch."""
    with monkeypatch.context() as patch:
        patch.setattr(training, "training_bar", lambda: SignalAt(epoch, number))
        return call("train", *arguments)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_says_how_to_resume(tmp_path, monkeypatch, number, code) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done("train", *TINY, "--epochs", 3, "--out", whole)
    arguments = (*TINY, "--epochs", 3, "--out", cut)
    result = interrupt(monkeypatch, *arguments, epoch=2, number=number)
    assert result.code == code
    assert result.out == ""
    assert result.err == (
        "knifeedge: stopped after step 4 of 6 and saved; continue with"
        f" `knifeedge train --resume {cut}`\n"
    )
    assert (cut / "last.ckpt").is_file()
    assert not (cut / "model.safetensors").exists()
    assert "6 steps" in done("train", "--resume", cut).out
    assert same_weights(whole, cut)
    assert not (cut / "last.ckpt").exists()
    assert [row.loss for row in read_log(whole)] == [row.loss for row in read_log(cut)]


@pytest.fixture
def cut(tmp_path: Path, monkeypatch) -> Path:
    """A run that was interrupted."""
    interrupt(monkeypatch, *TINY, "--epochs", 2, "--out", tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize(
    "options",
    [("--seed", 0), ("--out", "x"), TINY[:2], ("--config", "x"), ("--data-option", "a=1")],
    ids=str,
)
def test_resume_takes_no_other_options(cut: Path, options) -> None:
    message = refused("train", "--resume", cut, *options)
    assert f"goes on with the configuration in {cut}; leave out the other options" in message
    done("train", "--resume", cut, "--accelerator", "cpu", "--devices", 1)


def test_a_truncated_checkpoint(cut: Path) -> None:
    path = cut / "last.ckpt"
    path.write_bytes(path.read_bytes()[:-10])
    message = refused("train", "--resume", cut)
    assert "last.ckpt is damaged or no safetensors file" in message
    assert not (cut / "model.safetensors").exists()


def test_a_checkpoint_of_another_model_or_training(cut: Path, tmp_path, monkeypatch) -> None:
    other = tmp_path / "other"
    interrupt(monkeypatch, *TINY, "--epochs", 2, "--seed", 7, "--out", other)
    shutil.copy(other / "last.ckpt", cut / "last.ckpt")
    message = refused("train", "--resume", cut)
    assert "last.ckpt belongs to another training: its seed is 7, not 0" in message
    config = json.loads((cut / "config.json").read_text())
    config["model"] = {"name": "hed", "options": {}}
    (cut / "config.json").write_text(json.dumps(config))
    message = refused("train", "--resume", cut)
    assert "belongs to another training: its model is {'name': 'tiny'" in message


def test_a_folder_without_a_run(tmp_path: Path, cut: Path) -> None:
    assert "holds no run: there is no config.json" in refused("train", "--resume", tmp_path)
    (cut / "config.json").write_text('{"data": {"name"')
    assert "config.json is not JSON" in refused("train", "--resume", cut)


# --- other processes ------------------------------------------------------------------------------


def start(*arguments: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "knifeedge", "train", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def start_copy(output: Path, *arguments: object, largest_file: int | None = None) -> int:
    """The same in a copy of this process, which need not import everything anew; its number."""

    def work() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        with output.open("w") as sys.stdout:
            sys.stderr, sys.argv = sys.stdout, ["knifeedge", "train", *map(str, arguments)]
            try:
                runpy.run_module("knifeedge", run_name="__main__")
            except SystemExit as ended:
                sys.stdout.flush()
                os._exit(ended.code or 0)

    return fork(work)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def wait_for_progress(folder: Path) -> None:
    before, end = len(read_log(folder)), time.monotonic() + 120
    while len(read_log(folder)) <= before and time.monotonic() < end:
        time.sleep(0.05)


def steps_done(message: str) -> int:
    """The step at which a run was stopped; it must be all that it says."""
    (line,) = message.splitlines()
    (found,) = re.findall(r"stopped after step (\d+) of 100000 and saved; continue with", line)
    return int(found)


def test_real_processes_signals_and_a_full_disk(tmp_path: Path, monkeypatch) -> None:
    folder, output = tmp_path / "run", tmp_path / "output"
    long = (*TINY, "--epochs", 100_000, "--no-noiseless", "--checkpoint-seconds", 0)
    first_child = start(*long, "--out", folder)
    wait_for_progress(folder)
    first_child.send_signal(signal.SIGTERM)
    out, errors = first_child.communicate(timeout=60)
    assert first_child.returncode == 143, errors
    assert out == ""
    first = steps_done(errors)

    child = start_copy(output, "--resume", folder)
    wait_for_progress(folder)
    os.kill(child, signal.SIGINT)
    assert ended(child) == 130
    assert f"`knifeedge train --resume {folder}`" in output.read_text()
    second = steps_done(output.read_text())
    assert second > first > 0

    # A checkpoint is larger than a file may be: the run ends, and the one before it stays.
    before = (folder / "last.ckpt").read_bytes()
    child = start_copy(output, "--resume", folder, largest_file=len(before) // 2)
    assert ended(child) == 1
    (line,) = output.read_text().splitlines()
    assert "last.ckpt cannot be written: File too large; the file before it is intact" in line
    assert (folder / "last.ckpt").read_bytes() == before
    assert not list(folder.glob(".knifeedge-*"))

    result = interrupt(monkeypatch, "--resume", folder, epoch=second + 1)
    assert result.code == 143
    assert steps_done(result.err) == second + 1
    assert [row.epoch for row in read_log(folder)] == list(range(1, second + 2))
