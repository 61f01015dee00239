"""Experiments: the table against hand counts, failures, kills, typos, and the paper's figures."""

import dataclasses
import fcntl
import itertools
import json
import math
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from torch import nn

from knifeedge.engine.signals import Interrupted
from knifeedge.errors import ConfigError
from knifeedge.experiments import (
    EXPERIMENTS,
    DataChoice,
    Difference,
    ExperimentConfig,
    ModelChoice,
    PaperRow,
    Spread,
    collect,
    processes,
    read_experiment,
    run as run_module,
    run_experiment,
)
from knifeedge.experiments.reading import select_cells
from knifeedge.experiments.table import FAILURE, finished, improvement
from knifeedge.models import register_model

# Student's t at 0.975, from printed tables: 1 and 2 degrees of freedom.
T_1, T_2 = 12.706204736, 4.302652730

LOSSES = ("wbce", "baa-0.7", "baa-sa")
SMALL = DataChoice("synthetic", options={"count": 4, "size": 48})
TRAINING = {"epochs": 1, "crop": 32, "batch_size": 4}


def register(name: str, fault=None) -> None:
    """A network of one convolution; `fault` is called in every forward pass."""

    # Local, so that other processes get the class itself and not this file's name.
    class Toy(nn.Conv2d):
        """One convolution."""

        def __init__(self) -> None:
            super().__init__(3, 1, 3, padding=1)

        def forward(self, images):
            if fault is not None:
                fault()
            return [super().forward(images)]

    register_model(name, Toy, replace=True)


def grid(*models: str, **changes) -> ExperimentConfig:
    chosen = tuple(ModelChoice(name) for name in models)
    settings = {"losses": LOSSES, "seeds": (0, 1), "training": TRAINING} | changes
    return ExperimentConfig("a grid", chosen, (SMALL,), **settings)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """An experiment that is done: two models, three losses, two seeds."""
    register("toy")
    config = grid(
        "tiny",
        "toy",
        paper=(PaperRow("tiny", "synthetic", "baa(threshold=0.7)", ods=0.5, ois=0.6),),
    )
    folder = tmp_path_factory.mktemp("experiment")
    table = run_experiment(config, folder, accelerator="cpu")
    return config, folder, table


def result(folder: Path, run: str, loss: str) -> dict:
    content = json.loads((folder / "runs" / run / "result.json").read_text())
    return next(entry for entry in content["losses"] if entry["loss"] == loss)


# --- the table ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "loss"), [("tiny", "baa-0.7"), ("toy", "baa-sa")])
def test_a_cell_by_hand(done, model: str, loss: str) -> None:
    _, folder, _ = done
    first, second = (result(folder, f"{model}-synthetic-{seed}", loss) for seed in (0, 1))
    base = [result(folder, f"{model}-synthetic-{seed}", "wbce") for seed in (0, 1)]
    record = json.loads((folder / "table.json").read_text())
    assert record["format"] == "knifeedge-experiment-1"
    assert record["baseline"] == "wbce"
    assert record["failed"] == record["unfinished"] == []
    assert len(record["rows"]) == 6
    (row,) = (r for r in record["rows"] if (r["model"], r["loss"]) == (model, loss))
    assert (row["data"], row["protocol"], row["seeds"]) == ("synthetic", "paper-strict", [0, 1])
    for key in ("ods", "ois"):
        a, b = (entry["scores"]["paper-strict"][key] for entry in (first, second))
        assert row[key]["mean"] == pytest.approx((a + b) / 2)
        assert row[key]["std"] == pytest.approx(abs(a - b) / math.sqrt(2))
    a, b = first["threshold"], second["threshold"]
    assert row["threshold"]["mean"] == pytest.approx((a + b) / 2)
    assert row["threshold"]["std"] == pytest.approx(abs(a - b) / math.sqrt(2))
    a, b = (entry["scores"]["paper-strict"]["at"]["f"] for entry in (first, second))
    assert row["at"]["mean"] == pytest.approx((a + b) / 2)
    a, b = (
        own["scores"]["paper-strict"]["ods"] - other["scores"]["paper-strict"]["ods"]
        for own, other in zip((first, second), base, strict=True)
    )
    half = T_1 * abs(a - b) / math.sqrt(2) / math.sqrt(2)
    mean = (a + b) / 2
    assert row["difference"]["n"] == 2
    assert row["difference"]["mean"] == pytest.approx(mean)
    assert row["difference"]["low"] == pytest.approx(mean - half)
    assert row["difference"]["high"] == pytest.approx(mean + half)


def test_the_baseline_and_the_papers_figures(done) -> None:
    _, folder, table = done
    rows = json.loads((folder / "table.json").read_text())["rows"]
    assert [r["difference"] is None for r in rows] == [True, False, False] * 2
    papers = {(r["model"], r["loss"]): r["paper"] for r in rows}
    assert papers.pop(("tiny", "baa-0.7")) == {"ods": 0.5, "ois": 0.6}
    assert set(papers.values()) == {None}
    row = table.find("toy", "synthetic", "wbce", "paper-strict")
    assert row is not None
    assert row.difference is None


def test_statistics_of_three_and_of_one() -> None:
    # 0.01, 0.02, 0.06: mean 0.03, s^2 = (4 + 1 + 9) / 2 e-4 = 7e-4.
    found = Difference.of([0.51, 0.62, 0.76], [0.5, 0.6, 0.7])
    half = T_2 * math.sqrt(7e-4) / math.sqrt(3)
    assert found.n == 3
    assert found.mean == pytest.approx(0.03)
    assert found.low == pytest.approx(0.03 - half)
    assert found.high == pytest.approx(0.03 + half)
    assert Difference.of([0.6], [0.5]) == Difference(pytest.approx(0.1), None, None, 1)
    assert Spread.of([0.6]) == Spread(0.6, None)
    assert improvement(0.731, 0.712) == pytest.approx(2.6685, abs=1e-4)
    assert improvement(0.5, 0.0) is None


def test_one_seed_has_no_interval(done) -> None:
    config, folder, _ = done
    before = (folder / "table.json").read_bytes()
    record = collect(dataclasses.replace(config, seeds=(1,)), folder).to_dict()
    (folder / "table.json").write_bytes(before)
    row = record["rows"][1]
    assert row["seeds"] == [1]
    assert row["ods"]["std"] is None
    assert row["difference"]["n"] == 1
    assert row["difference"]["low"] is row["difference"]["high"] is None


# --- going on -------------------------------------------------------------------------------------


def stamps(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/result.json")}


def test_what_is_done_is_not_done_again(done, monkeypatch) -> None:
    config, folder, table = done
    before, told = stamps(folder), []
    monkeypatch.setattr(run_module, "run_protocol", None)  # a call would fail
    again = run_experiment(config, folder, on_run=lambda *event: told.append(event[:2]))
    assert again == table
    assert stamps(folder) == before
    assert len(before) == 4
    assert told == [(cell.name, "there") for cell in config.cells()]


def test_another_configuration_is_neither_taken_nor_overwritten(done, tmp_path: Path) -> None:
    config, folder, _ = done
    cell = config.cells()[0]
    run = folder / "runs" / cell.name
    longer = dataclasses.replace(config, training={**TRAINING, "epochs": 2})
    assert finished(run, cell.config) is not None
    assert finished(run, longer.cells()[0].config) is None
    table, before = (folder / "table.json").read_bytes(), stamps(folder)
    found = run_experiment(longer, folder, cells=longer.cells()[:1])
    assert "epochs" in found.failed[f"runs/{cell.name}"]
    assert stamps(folder) == before
    (run / FAILURE).unlink()
    (folder / "table.json").write_bytes(table)


def test_a_damaged_result_is_made_anew(done) -> None:
    config, folder, table = done
    path = folder / "runs" / "toy-synthetic-1" / "result.json"
    whole = json.loads(path.read_text())
    del whole["losses"][1]["scores"]["paper-strict"]["at"]
    for text in ("{", json.dumps(whole)):
        path.write_text(text)
        assert collect(config, folder).unfinished == ("runs/toy-synthetic-1",)
        assert run_experiment(config, folder, accelerator="cpu") == table


def test_a_failure_is_listed_and_the_others_go_on(tmp_path: Path) -> None:
    def fault() -> None:
        raise RuntimeError("no\nforward")

    register("faulty", fault)
    register("toy")
    config, told = grid("faulty", "toy", seeds=(0,), losses=("wbce",)), []
    table = run_experiment(config, tmp_path, on_run=lambda *event: told.append(event))
    assert table.failed == {"runs/faulty-synthetic-0": "RuntimeError: no forward"}
    assert [row.model for row in table.rows] == ["toy"]
    assert told[1] == ("faulty-synthetic-0", "failed", "RuntimeError: no forward")
    assert told[3] == ("toy-synthetic-0", "done", "")
    record = json.loads((tmp_path / "table.json").read_text())
    assert record["failed"] == [
        {"run": "runs/faulty-synthetic-0", "error": "RuntimeError: no forward"}
    ]
    noted = json.loads((tmp_path / "runs" / "faulty-synthetic-0" / FAILURE).read_text())
    assert "in fault" in noted["traceback"]
    # Mended, the same call does it.
    register("faulty")
    table = run_experiment(config, tmp_path)
    assert table.failed == {}
    assert [row.model for row in table.rows] == ["faulty", "toy"]


KILLED = """
import os, signal, sys
import torch
from pathlib import Path
from knifeedge.experiments import read_experiment, run_experiment
torch.set_num_threads(1)
def stage(run, what, number, count):
    if run == "tiny-synthetic-1" and number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
run_experiment(read_experiment(sys.argv[1]), sys.argv[2], accelerator="cpu", on_stage=stage)
"""
FILE = """
title = "to be killed"
models = ["tiny"]
datasets = [{ name = "synthetic", options = { count = 4, size = 48 } }]
losses = ["wbce", "baa-0.7"]
seeds = [0, 1]
[training]
epochs = 1
crop = 32
batch_size = 4
"""


def test_killed_in_the_middle_and_started_again(tmp_path: Path) -> None:
    path, folder = tmp_path / "grid.toml", tmp_path / "out"
    path.write_text(FILE)
    command = [sys.executable, "-c", KILLED, str(path), str(folder)]
    ended = subprocess.run(command, timeout=120, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    before = stamps(folder)
    assert [p.parent.name for p in before] == ["tiny-synthetic-0"]
    table = json.loads((folder / "table.json").read_text())
    assert table["unfinished"] == ["runs/tiny-synthetic-1"]
    pretrained = folder / "runs" / "tiny-synthetic-1" / "pretrain-wbce" / "model.safetensors"
    stamp = pretrained.stat().st_mtime_ns
    table = run_experiment(read_experiment(path), folder, accelerator="cpu")
    assert table.unfinished == ()
    assert [row.seeds for row in table.rows] == [(0, 1)] * 2
    assert before.items() <= stamps(folder).items()
    assert pretrained.stat().st_mtime_ns == stamp


def test_interrupted_says_how_to_go_on(tmp_path: Path, monkeypatch) -> None:
    def stop(*args, **options):
        raise Interrupted("stopped after step 1", signal.SIGTERM)

    monkeypatch.setattr(run_module, "run_protocol", stop)
    with pytest.raises(Interrupted, match=r"0 of 2 runs done; the same command goes on") as caught:
        run_experiment(grid("tiny"), tmp_path)
    assert caught.value.number == signal.SIGTERM
    assert not list(tmp_path.rglob(FAILURE))


def test_a_run_that_another_process_has_is_left_to_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(run_module, "LOCK_SECONDS", 0.0)
    monkeypatch.setattr(run_module, "run_protocol", None)  # a call would fail
    config, told = grid("tiny", seeds=(0,)), []
    run = tmp_path / "runs" / "tiny-synthetic-0"
    run.mkdir(parents=True)
    with (run / run_module.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("process 7 on elsewhere")
        file.flush()
        table = run_experiment(config, tmp_path, on_run=lambda *event: told.append(event))
    assert told[-1] == ("tiny-synthetic-0", "busy", "process 7 on elsewhere is at it")
    assert table.unfinished == ("runs/tiny-synthetic-0",)
    assert table.failed == {}


# --- several at once ------------------------------------------------------------------------------


def test_two_processes_give_the_same_table(done, tmp_path: Path) -> None:
    config, _, table = done
    few = dataclasses.replace(config, models=(ModelChoice("toy"),), paper=())
    parallel = run_experiment(few, tmp_path, jobs=2, accelerator="cpu")
    assert parallel.failed == {}
    assert parallel.unfinished == ()
    assert parallel.rows == tuple(row for row in table.rows if row.model == "toy")


def test_a_dask_cluster_gives_the_same_table(done, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    config, _, table = done
    few = dataclasses.replace(config, models=(ModelChoice("toy"),), paper=())
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=2,  # which take turns
        processes=False,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        address = cluster.scheduler_address
        there = run_experiment(few, tmp_path, cluster=address, accelerator="cpu")
    assert there.failed == {}
    assert there.rows == tuple(row for row in table.rows if row.model == "toy")


class FakeParallel:
    """As joblib's, in this process; work that raises MemoryError kills all that are at work."""

    def __init__(self, *, pre_dispatch: int, **options: object) -> None:
        self.at_once = pre_dispatch

    def __call__(self, tasks):
        while begun := list(itertools.islice(tasks, self.at_once)):
            try:
                results = [(number, work()) for _, (number, work), _ in begun]
            except MemoryError:
                raise BrokenProcessPool from None
            yield from results


def test_a_killed_process_takes_no_other_run_with_it(monkeypatch) -> None:
    def work(item: str):
        begun.append(item)

        def call() -> str:
            if item == "deadly":
                raise MemoryError
            return f"{item} done"

        return call

    monkeypatch.setattr(processes.joblib, "Parallel", FakeParallel)
    items, begun, ended = ["a", "b", "c", "deadly", "e", "f"], [], []
    processes.run_in_processes(2, items, work, ended.append, lambda item: f"{item} lost")
    assert ended == ["a done", "b done", "c done", "deadly lost", "e done", "f done"]
    # All that were at work are done again, one by one.
    assert begun == ["a", "b", "c", "deadly", "c", "deadly", "e", "f"]


def test_a_signal_lets_no_other_run_begin(monkeypatch) -> None:
    def work(item: int):
        if item == 1:
            signal.raise_signal(signal.SIGTERM)
        return lambda: item

    monkeypatch.setattr(processes.joblib, "Parallel", FakeParallel)
    ended: list[int] = []
    with pytest.raises(Interrupted) as caught:
        processes.run_in_processes(1, [0, 1, 2], work, ended.append, lambda item: -1)
    assert caught.value.number == signal.SIGTERM
    assert ended == [0, 1]


def test_jobs_below_one() -> None:
    with pytest.raises(ConfigError, match="jobs must be at least 1, got 0"):
        run_experiment(grid("tiny"), "nowhere", jobs=0)


# --- files ----------------------------------------------------------------------------------------

WRITTEN = """
title = "typos"
models = ["tiny", { name = "hed", options = { side_channels = 21 }, label = "wide" }]
datasets = [
  "UDED",
  { name = "synthetic", options = { count = 4 } },
]
losses = ["wbce", "baa-0.7"]
seeds = [0, 1]
baseline = "wbce"
scoring = ["one-pixel"]
# ods = 2, "no model"
paper = [
  { model = "tiny", data = "UDED", loss = "wbce", protocol = "one-pixel", ods = 0.5 },
  { model = "wide", data = "UDED", loss = "wbce", protocol = "one-pixel", ods = 0.60 },
]

[grid]
loss = "baa(window={window},decay={decay})"
window = [0.1, 0.2]
decay = [8]

[training]
epochs = 3
precision = "32-true"
"""


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(WRITTEN)
    config = read_experiment(tmp_path / "a.toml")
    grid = ("baa(window=0.1,decay=8)", "baa(window=0.2,decay=8)")
    assert config.all_losses == ("wbce", "baa-0.7", *grid)
    cells = config.cells()
    assert [cell.name for cell in cells[:3]] == ["tiny-UDED-0", "wide-UDED-0", "tiny-synthetic-0"]
    assert len(cells) == 8
    assert cells[1].config.model.options == {"side_channels": 21}
    assert cells[1].config.epochs == 3
    assert cells[2].config.data.options == {"count": 4}
    assert {cell.name for cell in select_cells(config, "model=wide,seed=1,data=UDED")} == {
        "wide-UDED-1"
    }


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("seeds =", "sedes =", 9, "no key 'sedes' (the closest is 'seeds')"),
        ("epochs", "epoch", 24, "no setting 'epoch' in [training] (the closest is 'epochs')"),
        ("epochs = 3", "seed = 3", 24, "no setting 'seed' in [training]"),
        ("epochs = 3", 'epochs = "3"', 24, "epochs must be a whole number, got '3' in [training]"),
        ("epochs = 3", "epochs = 0", 24, "epochs must be at least 1"),
        ('"32-true"', '"32"', 25, "precision must be '32-true' or 'bf16-mixed', got '32'"),
        ('["tiny"', '["tinny"', 3, "no model 'tinny' (the closest is 'tiny')"),
        ("side_channels", "side_chanels", 3, "(the closest is 'side_channels')"),
        ('  "UDED"', '  "UDEDD"', 5, "no data set 'UDEDD' (the closest is 'UDED')"),
        ("count", "cuont", 6, "synthetic has no option 'cuont' (the closest is 'count')"),
        ("count = 4", "count = '4'", 6, "count must be a whole number, got '4'"),
        ("channels = 21", "channels = 2.1", 3, "side_channels must be a whole number, got 2.1"),
        ("label", "lable", 3, "no key 'lable' in [models] (the closest is 'label')"),
        ('"wide" }', '"../wide" }', 3, "a label may have letters"),
        (', label = "wide"', ', label = "tiny"', 3, "models has tiny twice; give one of them a"),
        ('["wbce", "baa', '["wbec", "baa', 8, "no loss 'wbec' (the closest is 'wbce')"),
        ('"baa-0.7"]', '"baa-1.7"]', 8, "threshold"),
        ('"baa-0.7"]', '"baa(treshold=1)"]', 8, "(the closest is 'threshold')"),
        ('baseline = "wbce"', 'baseline = "bce"', 10, "no loss 'bce' in this experiment"),
        ('scoring = ["one-pixel"', 'scoring = ["one-pixl"', 11, "(the closest is 'one-pixel')"),
        ("[0, 1]", "[0, 0]", 9, "seeds has 0 twice"),
        ("[0, 1]", "[0, -1]", 9, "seeds must be at least 0, got -1"),
        ('model = "wide"', 'model = "wiide"', 15, "no model 'wiide' in this experiment"),
        ('"wide", data = "UDED"', '"wide", data = "UED"', 15, "(the closest is 'UDED')"),
        ("ods = 0.60", "odds = 0.60", 15, "no key 'odds' in [paper] (the closest is 'ods')"),
        ("ods = 0.60", "ods = 60.0", 15, "ods must be in [0,1] in [paper], got 60.0"),
        ("window = [", "windows = [", 19, "no list of values 'window' in [grid]"),
        ("decay = [8]", "decay = [8]\ndelta = [1]", 22, "no field of loss 'delta' in [grid]"),
        ("decay = [8]", "decay = 8", 21, "decay must be a list of values in [grid], got 8"),
        ("{decay})", "{decay", 19, "loss in [grid]"),
        ("window=", "windw=", 19, "(the closest is 'window')"),
        ('loss = "baa(window={window},decay={decay})"', "", 18, "[grid] needs loss"),
    ],
)
def test_a_typo_is_refused_with_its_line(
    tmp_path: Path, right: str, wrong: str, line: int, message: str
) -> None:
    assert right in WRITTEN
    path = tmp_path / "a.toml"
    path.write_text(WRITTEN.replace(right, wrong, 1))
    with pytest.raises(ConfigError) as caught:
        read_experiment(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert message in str(caught.value)


def test_two_runs_with_one_folder_are_refused() -> None:
    models = (ModelChoice("tiny", label="a"), ModelChoice("tiny", label="a-b"))
    datasets = (DataChoice("synthetic", label="b-c"), DataChoice("synthetic", label="c"))
    with pytest.raises(ConfigError, match="two runs would share the folder a-b-c-SEED; change"):
        ExperimentConfig("twins", models, datasets, ("wbce",))


def test_other_faults_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    with pytest.raises(ConfigError, match=r"no file .*nowhere.*; there are table-1, tables-2-3"):
        read_experiment(tmp_path / "nowhere.toml")
    path.write_text("title = \nseeds = [0]")
    with pytest.raises(ConfigError, match=r"a\.toml is not TOML: .*line 1"):
        read_experiment(path)
    path.write_text('title = "nothing"')
    with pytest.raises(ConfigError, match="models is missing"):
        read_experiment(path)
    config = grid("tiny")
    for only, message in (("modle=tiny", "modle=tiny"), ("model=hed", "no model 'hed' here")):
        with pytest.raises(ConfigError, match=message):
            select_cells(config, only)


# --- the paper ------------------------------------------------------------------------------------


def test_every_experiment_of_the_paper_is_read() -> None:
    counts = {name: len(read_experiment(name).paper) for name in EXPERIMENTS}
    assert counts == {
        **{"table-1": 16, "tables-2-3": 96, "tables-4-5": 96, "tables-2-5": 96},
        **{"ablation": 22, "comparison": 0, "comparison-uded": 0},
    }
    assert len(read_experiment("tables-2-5").cells()) == 4 * 4 * 3
    ablation = read_experiment("ablation")
    assert len(ablation.all_losses) == 22
    one, other = read_experiment("comparison"), read_experiment("comparison-uded")
    assert one.all_losses == other.all_losses
    assert len(one.all_losses) == 18
    for config in map(read_experiment, EXPERIMENTS):
        published = {(r.model, r.data, r.loss, r.protocol) for r in config.paper}
        assert len(published) == len(config.paper)  # none is there twice
    for loss in ablation.all_losses:
        assert ablation.published("ees3-double", "BRIND", loss, "paper-strict") is not None


@pytest.mark.parametrize(
    ("name", "row", "figures"),
    [
        ("table-1", ("hed", "UDED", "wbce", "paper-strict"), (None, None, 0.74)),
        ("table-1", ("dexined", "BSDS500", "wbce", "paper-strict"), (None, None, 0.87)),
        ("table-1", ("ees3-double", "BRIND", "wbce", "paper-strict"), (None, None, 0.77)),
        ("table-1", ("bdcn", "BIPED2", "wbce", "paper-strict"), (None, None, 0.72)),
        # Table 2
        ("tables-2-3", ("hed", "BRIND", "wbce", "paper-strict"), (0.664, 0.673, 0.77)),
        ("tables-2-3", ("bdcn", "BSDS500", "baa-sa", "paper-strict"), (0.454, 0.468, None)),
        ("tables-2-3", ("ees3-double", "BSDS500", "baa-0.7", "paper-strict"), (0.493, 0.509, None)),
        # Table 3
        ("tables-2-3", ("hed", "UDED", "baa-0.7", "paper-strict"), (0.727, 0.755, None)),
        ("tables-2-3", ("dexined", "UDED", "baa-sa", "paper-strict"), (0.731, 0.765, None)),
        ("tables-2-3", ("ees3-double", "BIPED2", "wbce", "paper-strict"), (0.670, 0.673, 0.80)),
        # Table 4
        ("tables-4-5", ("hed", "BSDS500", "baa-sa", "paper-relaxed"), (0.629, 0.642, None)),
        ("tables-4-5", ("dexined", "BSDS500", "baa-0.7", "paper-relaxed"), (0.648, 0.673, None)),
        ("tables-4-5", ("bdcn", "BRIND", "wbce", "paper-relaxed"), (0.770, 0.783, None)),
        # Table 5
        ("tables-4-5", ("dexined", "UDED", "baa-sa", "paper-relaxed"), (0.814, 0.858, None)),
        ("tables-4-5", ("ees3-double", "BIPED2", "baa-sa", "paper-relaxed"), (0.890, 0.898, None)),
        ("tables-4-5", ("bdcn", "BIPED2", "baa-0.7", "paper-relaxed"), (0.881, 0.889, None)),
    ],
)
def test_figures_of_the_paper(name: str, row: tuple[str, ...], figures: tuple) -> None:
    found = read_experiment(name).published(*row)
    assert found is not None
    assert (found.ods, found.ois, found.threshold) == figures


@pytest.mark.parametrize(
    ("window", "decay", "ods", "ois"),
    [(0.1, 8, 0.686, 0.695), (0.5, 16, 0.685, 0.694), (0.2, 32, 0.690, 0.698)],
)
def test_figures_of_the_ablation(window: float, decay: int, ods: float, ois: float) -> None:
    loss = f"baa(threshold=0.7,window={window},decay={decay})"
    found = read_experiment("ablation").published("ees3-double", "BRIND", loss, "paper-strict")
    assert found is not None
    assert (found.ods, found.ois) == (ods, ois)


def test_the_papers_averages_follow_from_its_rows() -> None:
    # A-BAA-SA of Tables 2, 3 and 5, which the paper rounds to three digits.
    config = read_experiment("tables-2-5")
    for data, protocol, ods, ois in (
        ("BRIND", "paper-strict", 0.675, 0.683),
        ("BSDS500", "paper-strict", 0.469, 0.480),
        ("BIPED2", "paper-strict", 0.647, 0.651),
        ("UDED", "paper-relaxed", 0.814, 0.848),
    ):
        wanted = (data, "baa-sa", protocol)
        rows = [r for r in config.paper if (r.data, r.loss, r.protocol) == wanted]
        assert len(rows) == 4
        assert sum(r.ods for r in rows) / 4 == pytest.approx(ods, abs=6e-4)
        assert sum(r.ois for r in rows) / 4 == pytest.approx(ois, abs=6e-4)
