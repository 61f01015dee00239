"""`knifeedge protocol`: the table, the JSON, going on, and what it refuses."""

import inspect
import json
import re
import signal
from dataclasses import fields
from pathlib import Path

import pytest

from command_line import TINY, call, deny_writing, done, refused
from knifeedge import cli, protocol as protocol_module
from knifeedge.cli import training
from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig
from knifeedge.engine import Callback
from knifeedge.engine.checkpoint import read_info
from knifeedge.metrics.scores import EdgeScores

LOSSES = "wbce, baa-sa, baa(threshold=0.6,base=focal(gamma=1))"
ARGUMENTS = (*TINY, "--losses", LOSSES, "--scoring", "one-pixel, paper-strict")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, str, str]:
    """A finished protocol: its folder, and what was printed."""
    folder = tmp_path_factory.mktemp("protocol") / "all"
    result = done("protocol", *ARGUMENTS, "--out", folder)
    return folder, result.out, result.err


def test_the_table_and_the_stages(finished) -> None:
    folder, out, err = finished
    record = json.loads((folder / "result.json").read_text())
    names = ["wbce", "baa-sa", "baa(threshold=0.6,base=focal(gamma=1))"]
    assert [entry["loss"] for entry in record["losses"]] == names
    for scoring in ("one-pixel", "paper-strict"):
        assert f"tiny on synthetic, {scoring}" in out
        for entry in record["losses"]:
            scores = entry["scores"][scoring]
            values = (scores["at"]["f"], *(scores[key] for key in ("ods", "ois", "ois_mean", "ap")))
            row = rf"{re.escape(entry['loss'][:8])}.*{entry['threshold']:.2f}.*" + ".*".join(
                f"{value:.4f}" for value in values
            )
            assert re.search(row, out), entry["loss"]
    for entry in record["calibrations"]:
        calibrated = f"{entry['base']}, calibrated on validation images: {entry['threshold']:.2f}"
        assert f"threshold of {calibrated}" in out
    assert out.endswith(f"all files: {folder}\n")
    # The base whose threshold is wanted is pre-trained and calibrated, three losses trained and
    # tested.
    stages = re.findall(r"\[(\d+)/8\] (\w+)", err)
    assert [int(number) for number, _ in stages] == list(range(1, 9))
    kinds = ["train", "calibrate"] + ["train"] * 3 + ["test"] * 3
    assert [kind for _, kind in stages] == kinds
    assert len(err.splitlines()) == 8


def test_the_thresholds_go_where_they_should(finished) -> None:
    folder, _, _ = finished
    record = json.loads((folder / "result.json").read_text())
    calibrated = {entry["base"]: entry["threshold"] for entry in record["calibrations"]}
    assert list(calibrated) == ["wbce"]
    found = [(entry["threshold"], entry["threshold_from"]) for entry in record["losses"]]
    assert found == [
        (calibrated["wbce"], "validation"),
        (calibrated["wbce"], "validation"),
        (0.6, "the loss"),
    ]
    for entry in record["losses"]:
        info = read_info(folder / entry["run"])
        assert info.threshold == entry["threshold"]
        scores = json.loads((folder / entry["run"] / "scores-one-pixel.json").read_text())
        at = EdgeScores.from_dict(scores).at(entry["threshold"])._asdict()
        assert at == entry["scores"]["one-pixel"]["at"] == scores["at"]
    adapted = read_info(folder / "baa-sa").training["loss"]
    assert adapted == f"baa-{calibrated['wbce']:g}"


def test_json_parses_and_nothing_is_done_again(finished, monkeypatch) -> None:
    folder, out, _ = finished
    kept = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.suffix in (".png", ".csv")}
    weights = {p: p.read_bytes() for p in folder.rglob("*.safetensors")}
    for name in ("predict_sample", "evaluate", "calibrate_weights"):
        monkeypatch.setattr(protocol_module, name, None)  # a call would fail
    result = done("protocol", *ARGUMENTS, "--out", folder, "--json")
    assert json.loads(result.out) == json.loads((folder / "result.json").read_text())
    assert done("protocol", *ARGUMENTS, "--out", folder).out == out
    gallery = folder / "gallery"
    assert all(p.stat().st_mtime_ns == t for p, t in kept.items() if p.parent != gallery)
    assert len(weights) == 4
    assert all(p.read_bytes() == data for p, data in weights.items())


def test_another_protocol_in_the_folder(finished) -> None:
    folder, _, _ = finished
    message = refused("protocol", *ARGUMENTS, "--out", folder, "--seed", 1)
    assert f"{folder} holds another protocol: its seed is 0, not 1; name another folder" in message


class SignalOnce(Callback):
    """Sends this process a signal at the first epoch's end of one training."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number

    def on_start(self, config, folder, step, steps) -> None:
        self.now = folder.name == self.name

    def on_epoch(self, record, losses) -> None:
        if self.now:
            signal.raise_signal(self.number)


def test_an_interrupted_protocol_goes_on(finished, tmp_path: Path, monkeypatch) -> None:
    reference, _, _ = finished
    folder = tmp_path / "all"
    arguments = ("protocol", *ARGUMENTS, "--epochs", 1, "--out", folder)
    for name, number, code in (
        ("pretrain-wbce", signal.SIGINT, 130),
        ("baa-sa", signal.SIGTERM, 143),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(training, "training_bar", lambda: SignalOnce(name, number))  # noqa: B023
            result = call(*arguments)
        assert result.code == code
        assert result.out == ""
        assert "and saved; the same command goes on" in result.err.splitlines()[-1]
        assert not (folder / "result.json").exists()
    done(*arguments)

    def numbers(path: Path) -> object:
        record = json.loads((path / "result.json").read_text())
        return [(entry["loss"], entry["scores"]) for entry in record["losses"]]

    assert numbers(folder) == numbers(reference)


# --- options --------------------------------------------------------------------------------------


@pytest.fixture
def given(monkeypatch):
    """What the command line would do, without doing it."""
    taken: list = []

    class Taken(Exception):
        pass

    def take(config: ProtocolConfig, folder: Path, **options: object) -> None:
        taken.append((config, folder))
        raise Taken

    monkeypatch.setattr(protocol_module, "run_protocol", take)

    def config(*arguments: object) -> tuple[ProtocolConfig, Path]:
        with pytest.raises(Taken):
            call("protocol", *arguments)
        return taken.pop()

    return config


def test_options_and_defaults(given, monkeypatch, tmp_path: Path) -> None:
    names = ("--data", "UDED", "--model", "hed")
    plain, folder = given(*names)
    assert plain == ProtocolConfig(DataConfig("UDED"), ModelConfig("hed"))
    assert folder == Path("runs/hed-uded-0")
    chosen, folder = given(*names, "--losses", LOSSES, "--seed", 3, "--out", tmp_path)
    assert chosen.losses == ("wbce", "baa-sa", "baa(threshold=0.6,base=focal(gamma=1))")
    assert (chosen.seed, folder) == (3, tmp_path)
    path = tmp_path / "a.toml"
    path.write_text('losses = ["bce"]\nscoring = ["bsds"]\ndata.name = "UDED"\nmodel.name = "hed"')
    assert given("--config", path)[0].losses == ("bce",)
    assert given("--config", path, "--losses", "ebt")[0].losses == ("ebt",)
    shared = set(inspect.signature(cli.protocol).parameters)
    missing = {entry.name for entry in fields(ProtocolConfig)} - shared
    assert missing == {"validation_split", "validation_protocol"}
    monkeypatch.setenv("COLUMNS", "250")
    text = done("protocol", "--help").out
    assert "Example: knifeedge protocol --data UDED" in text
    for name in ("losses", "scoring", "crop", "learning_rate", "batch_size", "noiseless"):
        (line,) = re.findall(rf"│ --{name.replace('_', '-')} .*", text)
        assert f"[default: ({getattr(plain, name)})]" in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--losses", "wbce,wbec"), "there is no loss 'wbec' (the closest is 'wbce')"),
        (("--losses", "wbce,wbce"), "losses must be at least one, each once"),
        (("--losses", ""), "the loss '' cannot be understood"),
        (("--losses", "wbce,baa(threshold=0.6"), "cannot be understood"),
        (("--scoring", "strict"), "unknown protocol 'strict'"),
        (("--data-option", "count=3"), "too few images: none are left for validation"),
        (("--model", "teeny"), "there is no model 'teeny'"),
        (("--batch-size", 7), "batch_size must not be larger than the set's 6 samples"),
        (("--accelerator", "tpu"), "accelerator must be auto, cpu or cuda"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_wrong_values_are_one_line(tmp_path: Path, options, message) -> None:
    result = call("protocol", *TINY, *options, "--out", tmp_path / "all")
    assert result.code == 1
    assert result.out == ""
    *stages, line = result.err.splitlines()
    assert all(stage.startswith("[1/") for stage in stages)
    assert line.startswith("knifeedge: ")
    assert message in line


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    assert "is a file; name a folder" in refused("protocol", *TINY, "--out", tmp_path / "file")
    deny_writing(monkeypatch)
    message = refused("protocol", *TINY, "--out", tmp_path / "all")
    assert "no folder that may be written to" in message


def test_a_damaged_record(finished) -> None:
    folder, _, _ = finished
    path = folder / "pretrain-wbce" / "calibration.json"
    whole = path.read_text()
    path.write_text(whole[:20])
    result = call("protocol", *ARGUMENTS, "--out", folder)
    path.write_text(whole)
    assert result.code == 1
    assert "calibration.json cannot be read" in result.err.splitlines()[-1]
    assert "delete it to have it made anew" in result.err.splitlines()[-1]
