"""`knifeedge experiment`: its tables, its lists, its one-line errors."""

import json
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from torch import nn

from knifeedge import cli, experiments
from knifeedge.config import to_mapping
from knifeedge.engine.signals import Interrupted
from knifeedge.models import register_model

GRID = """
title = "a small grid"
models = ["toy", "faulty"]
datasets = [{ name = "synthetic", options = { count = 4, size = 48 } }]
losses = ["wbce", "baa-0.7"]
seeds = [0]
paper = [{ model = "toy", data = "synthetic", loss = "wbce", ods = 0.321 }]
[training]
epochs = 1
crop = 32
"""


class Run(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Call the command line in this process and an empty folder, with main()'s handling."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Run:
        monkeypatch.setattr(sys, "argv", ["knifeedge", "experiment", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Run(int(ended.value.code or 0), out, err)

    return call


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An experiment of a network that works and one that does not."""

    class Toy(nn.Conv2d):
        def __init__(self) -> None:
            super().__init__(3, 1, 3, padding=1)

        def forward(self, images):
            return [super().forward(images)]

    class Faulty(Toy):
        def forward(self, images):
            raise RuntimeError("no forward")

    register_model("toy", Toy, replace=True)
    register_model("faulty", Faulty, replace=True)
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


def make_result(folder: Path, cell: experiments.Cell, scores) -> None:
    """A finished run: scores(loss, protocol) is its ODS."""
    losses = [
        {
            "loss": loss,
            "threshold": 0.7,
            "scores": {
                protocol: {
                    "ods": scores(loss, protocol),
                    "ois": scores(loss, protocol) + 0.01,
                    "at": {"f": scores(loss, protocol) - 0.01},
                    "at_half": {"f": scores(loss, protocol) - 0.02},
                }
                for protocol in cell.config.scoring
            },
        }
        for loss in cell.config.losses
    ]
    config = {"format": 1, "kind": "protocol", **to_mapping(cell.config)}
    path = folder / "runs" / cell.name / "result.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"config": config, "losses": losses}))


def test_a_run_with_a_failure(run, file: Path) -> None:
    before = run(file, "--dry-run")
    assert before.code == 0
    assert before.out.splitlines() == [
        "runs/toy-synthetic-0: to do",
        "runs/faulty-synthetic-0: to do",
        "2 runs of 2 losses each, 0 done; all files: runs/grid",
    ]
    assert not Path("runs").exists()
    result = run(file, "--accelerator", "cpu")
    assert result.code == 1
    assert "a small grid: synthetic, paper-strict" in result.out
    assert "One seed: no standard deviation, no interval" in result.out
    assert "0.321" in result.out
    error = "runs/faulty-synthetic-0: RuntimeError: no forward"
    assert f"failed: {error}" in result.err.splitlines()
    assert "[1/2] toy-synthetic-0: done" in result.err.splitlines()
    assert "toy-synthetic-0: stage 1 of 6: train wbce on pretrain" in result.err.splitlines()
    assert "Traceback" not in result.err
    dry = run(file, "--dry-run", "--json")
    assert json.loads(dry.out) == [
        {"run": "runs/toy-synthetic-0", "state": "done"},
        {"run": "runs/faulty-synthetic-0", "state": "failed: RuntimeError: no forward"},
    ]
    only = run(file, "--only", "model=toy", "--json")
    assert json.loads(only.out) == json.loads(Path("runs/grid/table.json").read_text())
    assert "[1/1] toy-synthetic-0: done before" in only.err.splitlines()
    collected = run(file, "--table")
    assert collected.code == 0
    assert collected.out == result.out


def test_the_papers_tables_share_their_runs(run, tmp_path: Path) -> None:
    config = experiments.read_experiment("tables-2-5")
    seeds = {0: 0.0, 1: 0.02, 2: 0.04}
    ods = {("wbce", "paper-strict"): 0.7, ("wbce", "paper-relaxed"): 0.8}
    for cell in config.cells():
        if cell.data == "UDED" and cell.model in ("hed", "bdcn"):
            shift = seeds[cell.seed] - 0.02

            def score(loss: str, protocol: str, shift: float = shift) -> float:
                gain = {"wbce": 0.0, "baa-0.7": 0.01, "baa-sa": 0.014 + shift / 2}[loss]
                return ods["wbce", protocol] + shift + gain

            make_result(tmp_path / "runs" / "tables-2-5", cell, score)
    strict, relaxed = (run(name, "--table") for name in ("tables-2-3", "tables-4-5"))
    assert strict.code == relaxed.code == 0
    assert "UDED, paper-strict" in strict.out
    assert "paper-relaxed" not in strict.out
    assert "UDED, paper-relaxed" in relaxed.out
    assert "paper-strict" not in relaxed.out
    assert "unfinished: 42 runs: runs/hed-BRIND-0, " in strict.err
    assert strict.err.rstrip().endswith(", ..")
    lines = [[c.strip() for c in line.split("│")[1:-1]] for line in strict.out.splitlines()]
    rows = [line for line in lines if line]
    # A constant gain has a difference without spread; the other's is 4.3027 x 0.01 / sqrt(3).
    assert rows[0] == [
        *("hed", "wbce", "3", "0.700 ± 0.020", "", "", "0.710 ± 0.020", "0.70 ± 0.00"),
        *("0.690 ± 0.020", "0.709", "", "0.742", "0.74"),
    ]
    assert rows[1][1:6] == ["baa-0.7", "3", "0.710 ± 0.020", "+1.43 %", "+0.010 [+0.010, +0.010]"]
    assert rows[1][9:] == ["0.727", "+2.54 %", "0.755", "-"]
    assert rows[2][5] == "+0.014 [-0.011, +0.039]"
    assert rows[3][0] == "bdcn"
    # The mean over the models, of ours and of the paper's.
    assert rows[6][:5] == ["average of 2 models", "wbce", "", "0.700", ""]
    assert rows[7][3:5] == ["0.710", "+1.43 %"]
    assert rows[7][9:12] == ["0.720", "+3.08 %", "0.748"]


def test_the_list(run) -> None:
    names = ["table-1", "tables-2-3", "tables-4-5", "tables-2-5", "ablation"]
    names += ["comparison", "comparison-uded"]
    assert [line.split()[0] for line in run("--list").out.splitlines()] == names
    assert [entry["name"] for entry in json.loads(run("--list", "--json").out)] == names


def test_mistakes_are_one_line(run, file: Path, monkeypatch) -> None:
    monkeypatch.setattr(experiments, "run_experiment", None)  # a call would fail
    file.write_text(GRID.replace("epochs", "epoch"))
    for arguments, message in (
        ((), "name an experiment file, or one of table-1"),
        (("nowhere.toml",), "there is no file nowhere.toml"),
        ((file,), f"{file}, line 9: there is no setting 'epoch' in [training] (the closest is"),
        (("ablation", "--only", "model=hed"), "there is no model 'hed' here"),
        (("ablation", "--table"), "there is no folder runs/ablation to collect from"),
    ):
        result = run(*arguments)
        assert result.code == 1
        assert message in result.err
        assert len(result.err.splitlines()) == 1
        assert result.out == ""
    assert run("ablation", "--jobs", "0").code == 2


def test_an_out_that_is_a_file(run, file: Path) -> None:
    result = run(file, "--out", file)
    assert result.code == 1
    assert "is a file; name a folder" in result.err


def test_an_interrupted_one_says_how_to_go_on(run, file: Path, monkeypatch) -> None:
    def stop(*args, **options):
        raise Interrupted("stopped with 1 of 2 runs done; the same command goes on", 15)

    monkeypatch.setattr(experiments, "run_experiment", stop)
    result = run(file)
    assert result.code == 128 + 15
    assert result.err == "knifeedge: stopped with 1 of 2 runs done; the same command goes on\n"


def test_options_reach_the_experiment(run, file: Path, monkeypatch) -> None:
    seen = {}

    def take(config, folder, **options):
        seen.update(options, folder=folder)
        return experiments.Table(config.title, config.baseline, (), {}, ())

    monkeypatch.setattr(experiments, "run_experiment", take)
    arguments = ("--jobs", "3", "--cluster", "tcp://there", "--accelerator", "cuda", "--out", "o")
    assert run(file, *arguments, "--only", "model=toy").code == 0
    assert [cell.name for cell in seen["cells"]] == ["toy-synthetic-0"]
    assert (seen["jobs"], seen["cluster"], seen["accelerator"]) == (3, "tcp://there", "cuda")
    assert seen["folder"] == Path("o")
