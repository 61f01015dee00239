"""The reproduction: its page is what the records give, folds are pooled exactly, words follow."""

import copy
import dataclasses
import importlib
import json
import shlex
import signal
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from knifeedge.data import SyntheticSet, load_dataset, load_splits
from knifeedge.engine.predict import labels_of
from knifeedge.engine.signals import Interrupted
from knifeedge.errors import ConfigError, DataError
from knifeedge.experiments.table import Difference
from knifeedge.metrics import PROTOCOLS, evaluate
from knifeedge.metrics.scores import score
from knifeedge.version import VERSION

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
LOSSES = ("wbce", "baa-0.7")


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def reproduce():
    return importlib.import_module("reproduce")


@pytest.fixture
def page():
    return importlib.import_module("reproduction")


@pytest.fixture
def records():
    return importlib.import_module("page.records")


def make_record(seed, *, shift=0.0, name="hed", losses=None, data="UDED", **settings):
    """The record of a seed of HED on UDED, with the ODS of all its losses shifted."""
    record = json.loads((RESULTS / f"uded-hed-{seed}.json").read_text()) | {"version": VERSION}
    record["config"] |= {"model": {"name": name, "options": {}}, **settings}
    record["config"]["data"]["name"] = data
    if losses is not None:
        entry = record["losses"][1]
        record["losses"] = [copy.deepcopy(entry) | {"loss": loss} for loss in losses]
        record["config"]["losses"] = list(losses)
    for entry in record["losses"]:
        for scores in entry["scores"].values():
            scores["ods"] += shift
    return record


def write(folder, name, record):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record))


def test_the_page_is_what_the_results_give(page):
    page.main(["--check"])


def test_another_page_is_told(page, tmp_path):
    text = page.make_page()
    changed = tmp_path / "page.md"
    changed.write_text(text.replace("# Reproduction", "# Another", 1))
    assert changed.read_text() != text
    with pytest.raises(SystemExit, match="is not what the results give"):
        page.main(["--check", "--out", str(changed)])
    page.main(["--out", str(changed)])
    assert changed.read_text() == text


def test_a_page_without_records_names_the_commands(page, tmp_path):
    text = page.make_page(tmp_path)
    assert "there are 0: none" in text
    assert "nothing was run with two seeds" in text
    for arguments in (
        "--data UDED --model hed --seeds 0,1,2,3,4,5,6,7",
        "--data UDED --model hed --epochs 40 --fold 3 --seeds 0,1,2",
        "--epochs 20 --losses wbce,baa-0.7 --name short",
        "--precision 32-true --name fp32",
        "--losses ablation --name ablation --seeds 0,1,2",
        "--model-options '{\"attention\": true}' --name attention",
    ):
        assert arguments in text


def test_every_command_of_the_page_is_understood(reproduce, tmp_path):
    missing = importlib.import_module("page.missing")
    for entry in (*missing.PLANNED, *missing.ELSEWHERE):
        given = shlex.split(entry.command().removeprefix(missing.SCRIPT))
        runs = reproduce.plan(reproduce.parse([*given, "--out", str(tmp_path)]))
        assert list(runs) == [f"{entry.name}-{seed}" for seed in range(entry.seeds)]


def test_a_command_for_more_seeds_goes_on_with_the_records_that_are_there(reproduce, tmp_path):
    missing = importlib.import_module("page.missing")
    for entry in missing.PLANNED:
        given = shlex.split(entry.command().removeprefix(missing.SCRIPT))
        # Refused with ConfigError where a record is of other settings.
        reproduce.plan(reproduce.parse([*given, "--out", str(RESULTS)]))


def test_missing_runs_are_those_without_a_record(reproduce, tmp_path):
    missing = importlib.import_module("page.missing")
    planned = [f"{entry.name}-{seed}" for entry in missing.PLANNED for seed in range(entry.seeds)]
    given = ["--missing", "--out", str(tmp_path), "--root", "somewhere"]
    runs = reproduce.plan_page(reproduce.parse(given))
    assert list(runs) == planned
    assert {c.data.root for c in runs.values()} == {"somewhere/UDED", "somewhere/BSDS500"}
    assert (runs["uded-hed-5"].epochs, runs["uded-hed-fold3-1"].data.options) == (200, {"fold": 3})
    for seed in (0, 2):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed))
    rest = reproduce.plan_page(reproduce.parse(given))
    assert list(rest) == [name for name in planned if name not in ("uded-hed-0", "uded-hed-2")]


def test_records_whose_maps_have_false_borders_are_to_be_run_again(reproduce, page, tmp_path):
    for seed, version in enumerate(("0.1.0", VERSION, "0.1.0")):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed) | {"version": version})
    again = reproduce.plan_page(reproduce.parse(["--outdated", "--out", str(tmp_path)]))
    assert list(again) == ["uded-hed-0", "uded-hed-2"]
    text = page.make_page(tmp_path)
    assert "Version 0.1.0 saw false edges" in text
    row = text.split("## To be run again")[1].splitlines()[-1]
    assert row.startswith("| HED on UDED | 2 of 8 |")
    assert row.endswith("--model hed --seeds 0,2` |")
    for seed in (0, 2):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed))
    text = page.make_page(tmp_path)
    assert "false edges" not in text
    assert "## To be run again" not in text
    assert not reproduce.plan_page(reproduce.parse(["--outdated", "--out", str(tmp_path)]))


def test_versions_that_score_otherwise_are_not_compared(records, tmp_path):
    """Some seeds were run again: the others of one name are none beside another's."""
    for seed in (0, 1, 2):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed))
        old = {} if seed else {"version": records.FALSE_BORDERS}
        write(tmp_path, f"uded-hed-online-{seed}", make_record(seed) | old)
    groups = records.read_groups(tmp_path.glob("*.json"))
    main, online = groups["uded-hed"], groups["uded-hed-online"]
    assert list(online.beside(main)) == list(main.beside(online)) == [1, 2]


def test_runs_at_a_time_fail_without_stopping_the_others(reproduce, tmp_path, capfd):
    (tmp_path / "UDED").mkdir()
    given = ["--root", str(tmp_path / "UDED"), "--runs", str(tmp_path / "runs"), "--jobs", "2"]
    given += ["--out", str(tmp_path), "--accelerator", "cpu", "--model", "tiny", "--seeds", "0,1,2"]
    with pytest.raises(SystemExit, match="error: 3 of 3 runs failed"):
        reproduce.main(given)
    said = capfd.readouterr().out
    assert all(f"error: uded-tiny-{seed}: " in said for seed in range(3))
    assert not list(tmp_path.glob("*.json"))


def test_what_the_page_says_follows_from_the_records(page, tmp_path):
    grid = [f"baa(threshold=0.7,window={w},decay={d})" for d in (8, 16) for w in (0.1, 0.2)]
    for seed in range(3):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed))
        # A shift that differs a little from seed to seed: an interval of known place.
        far = make_record(seed, shift=0.01 + 0.0001 * seed, precision="32-true")
        write(tmp_path, f"uded-hed-fp32-{seed}", far)
        write(tmp_path, f"uded-hed-ablation-{seed}", make_record(seed, losses=grid))
        clear = make_record(seed, name="dexined")
        for entry in clear["losses"]:
            for scores in entry["scores"].values():
                scores["ods"] = 0.7 + 0.001 * seed + 0.05 * (entry["loss"] == "baa-0.7")
            if entry["loss"] == "baa-0.7":
                entry["scores"]["paper-strict"]["ods"] += 0.0001 * seed
        write(tmp_path, f"uded-dexined-{seed}", clear)
    write(tmp_path, "uded-ees3-double-0", make_record(0, name="ees3-double"))
    write(tmp_path, "uded-ees3-double-attention-0", make_record(0, shift=0.02, name="ees3-double"))
    text = page.make_page(tmp_path)
    half = 4.302653 * 0.0001 / np.sqrt(3)  # Student's t, 2 degrees of freedom
    assert f"| -0.0101 ± {half:.4f} |" in text.split("| mean of the losses | 3 |")[1]
    assert "the interval lies below 0: with 3 seeds it is lower than in float32" in text
    assert "| BAA-0.7 | 3 | 0.7511 (0.0011) | +0.0501 ± 0.0002 |" in text
    assert "DexiNed, BAA-0.7. ODS: the interval lies above 0: with 3 seeds it is higher" in text
    assert "The paper's +0.021 lies outside it." in text
    assert "DexiNed on UDED, BAA-0.7, `paper-strict`: +0.0501 ± 0.0002" in text
    ods = make_record(0)["losses"][0]["scores"]["paper-strict"]["ods"]
    assert f"| `paper-strict` | WBCE | {ods:.4f} | {ods + 0.02:.4f} | +0.0200 |" in text
    assert "its mean differs from the first by +0.0000" in text
    assert "| decay 8 | 0.686 | 0.689 |" in text
    assert "The means span 0.0000" in text
    gone = text.split("## Not run")[1]
    assert "DexiNed on UDED" not in gone
    assert "--seeds 3,4,5,6,7" in gone
    assert "| HED on UDED, 20 epochs in float32 | 2 of 5 |" in gone


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.1, 0.2, "the interval contains 0: no effect is shown with 4 seeds"),
        (0.0, 0.2, "the interval contains 0"),
        (0.01, 0.2, "the interval lies above 0: with 4 seeds it is higher than with WBCE"),
        (-0.2, -0.01, "the interval lies below 0: with 4 seeds it is lower than with WBCE"),
        (None, None, "one seed has no interval and shows nothing"),
    ],
)
def test_a_verdict_follows_from_the_interval(low, high, words):
    cells = importlib.import_module("page.cells")
    assert words in cells.verdict(Difference(0.05, low, high, 4))


def test_folds_are_pooled_exactly(records, tmp_path):
    rng = np.random.default_rng(0)
    protocol, thresholds = PROTOCOLS["paper-strict"], (0.6, 0.71, 0.8, 0.55)
    falling = np.linspace(900, 100, 99).astype(int)[:, None]
    tables = []
    for fold, threshold in enumerate(thresholds):
        found = np.minimum.accumulate(rng.integers(0, 400, (7, 99)), axis=1)
        counts = np.stack([found, np.full((7, 99), 500), found, found + falling.T], axis=2)
        scores = score(
            counts, protocol=protocol, crispness=[1] * 7, names=[f"{fold}-{n}" for n in range(7)]
        )
        record = make_record(0, losses=["wbce"])
        entry = record["losses"][0]
        entry["threshold"] = threshold
        del entry["scores"]["paper-relaxed"]
        record["counts"] = {"wbce": {"paper-strict": records.counts_record(scores)}}
        write(tmp_path, f"uded-hed-fold{fold}-0", record)
        tables.append(scores.counts)
    groups = records.read_groups(tmp_path.glob("*.json"))
    pooled = records.pooled(list(groups.values()))[0]["wbce", "paper-strict"]
    whole = score(np.concatenate(tables), protocol=protocol, crispness=[1] * 28)
    assert pooled["ods"] == whole.ods
    assert pooled["ois"] == whole.ois
    rows = sum(
        table[:, round(100 * t) - 1].sum(axis=0)
        for table, t in zip(tables, thresholds, strict=True)
    )
    precision, recall = rows[2] / rows[3], rows[0] / rows[1]
    assert pooled["f"] == pytest.approx(2 * precision * recall / (precision + recall))
    twice = [groups["uded-hed-fold0"], groups["uded-hed-fold0"]]
    with pytest.raises(DataError, match="tested in two folds"):
        records.pooled(twice)


def test_over_the_folds_every_image_is_tested_once(reproduce, records, tmp_path, monkeypatch):
    """From made pictures to records of four folds, and their pooled score against one scoring."""
    root = tmp_path / "UDED"
    names = sorted({n for names in load_splits("uded").lists.values() for n in names})
    for part in ("imgs", "gt"):
        (root / part).mkdir(parents=True)
    for name, sample in zip(names, SyntheticSet(count=len(names), size=32), strict=True):
        Image.fromarray(sample.image).save(root / "imgs" / f"{name}.png")
        Image.fromarray(sample.label).save(root / "gt" / f"{name}.png")
    small = {"crop": 16, "turns": False, "noiseless": False, "learning_rate": 2e-3}
    run = reproduce.run_protocol

    def run_small(config, folder, **options):
        return run(dataclasses.replace(config, **small), folder, **options)

    monkeypatch.setattr(reproduce, "run_protocol", run_small)
    shared = ["--root", str(root), "--model", "tiny", "--losses", ",".join(LOSSES)]
    shared += ["--epochs", "1", "--precision", "32-true", "--accelerator", "cpu"]
    shared += ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "results")]
    for fold in range(4):
        reproduce.main([*shared, "--fold", str(fold)])
    groups = records.read_groups((tmp_path / "results").glob("*.json"))
    assert list(groups) == [f"uded-tiny-fold{fold}" for fold in range(4)]
    everything = load_dataset("UDED", "all", root=root)
    maps, tested = {loss: {} for loss in LOSSES}, []
    for fold, group in enumerate(groups.values()):
        train = load_dataset("UDED", "train", root=root, **group.config["data"]["options"])
        counts = group.first["counts"]["wbce"]["paper-strict"]
        assert group.first["images"] == {"pretrain": 16, "validation": 5, "train": 21, "test": 7}
        assert not set(counts["images"]) & set(train.names)
        tested += counts["images"]
        for loss in LOSSES:
            for name in counts["images"]:
                where = tmp_path / "runs" / f"uded-tiny-fold{fold}-0" / loss / "predictions"
                with Image.open(where / f"{name}.png") as picture:
                    maps[loss][name] = np.asarray(picture, np.float32) / np.float32(255)
    assert sorted(tested) == sorted(everything.names)
    pooled = records.pooled(list(groups.values()))[0]
    for loss in LOSSES:
        for protocol in ("paper-strict", "paper-relaxed"):
            whole = evaluate(maps[loss], labels_of(everything), protocol=protocol)
            assert pooled[loss, protocol]["ods"] == whole.ods
            assert pooled[loss, protocol]["ois"] == whole.ois


def test_a_record_has_a_line_for_a_list_of_whole_numbers(reproduce):
    record = {"a": [1, 23, 456], "b": {"c": [0.5, 1.0]}, "d": "[1,\n 2]", "e": [], "f": [7]}
    text = reproduce.to_text(record)
    assert '"a": [1, 23, 456]' in text
    assert json.loads(text) == record


def test_a_record_of_other_settings_is_not_written_over(reproduce):
    runs = reproduce.plan(reproduce.parse(["--seeds", "0,1"]))
    assert [config.seed for config in runs.values()] == [0, 1]
    for wrong in (["--precision", "32-true"], ["--epochs", "3"], ["--losses", "ablation"]):
        with pytest.raises(ConfigError, match=r"uded-hed-0.json is a record of another"):
            reproduce.plan(reproduce.parse(wrong))
    assert list(reproduce.plan(reproduce.parse([*wrong, "--name", "other"])))
    with pytest.raises(SystemExit, match=r"error: .* give a --name of its own"):
        reproduce.main(["--epochs", "3"])


def test_losses_and_options_of_a_model(reproduce, capsys):
    given = ["--losses", "wbce,baa(threshold=0.7,window=0.1)", "--name", "x"]
    (config,) = reproduce.plan(reproduce.parse(given)).values()
    assert config.losses == ("wbce", "baa(threshold=0.7,window=0.1)")
    given = ["--model", "ees3-double", "--model-options", '{"attention": true}', "--name", "x"]
    ((name, config),) = reproduce.plan(reproduce.parse(given)).items()
    assert (name, config.model.options) == ("uded-ees3-double-x-0", {"attention": True})
    (config,) = reproduce.plan(reproduce.parse(["--losses", "ablation", "--name", "x"])).values()
    assert len(config.losses) == 9
    for wrong in ("--fold 4", "--model-options 3", "--model-options {", "--jobs 0"):
        with pytest.raises(SystemExit):
            reproduce.parse(wrong.split())
    capsys.readouterr()


def test_a_run_that_is_stopped_says_how_it_goes_on(reproduce, monkeypatch, tmp_path, capsys):
    def stop(*_, **__):
        raise Interrupted("stopped in stage 2 of 8; the same command goes on", signal.SIGTERM)

    monkeypatch.setattr(reproduce, "run_protocol", stop)
    with pytest.raises(SystemExit) as end:
        reproduce.main(["--out", str(tmp_path)])
    assert end.value.code == 128 + signal.SIGTERM
    assert "the same command goes on" in capsys.readouterr().out


def test_records_of_one_name_are_of_one_configuration(records, page, tmp_path):
    write(tmp_path, "uded-hed-0", make_record(0))
    new = make_record(1)
    new["config"]["later"] = True  # a setting that came in after the first was written
    write(tmp_path, "uded-hed-1", new)
    assert list(records.read_groups(tmp_path.glob("*.json"))["uded-hed"].records) == [0, 1]
    write(tmp_path, "uded-hed-2", make_record(2, epochs=3))
    with pytest.raises(SystemExit, match="not of one configuration: epochs is 200 and 3"):
        page.main(["--results", str(tmp_path), "--out", str(tmp_path / "page.md")])
    assert not (tmp_path / "page.md").exists()
    write(tmp_path, "uded-hed-2", make_record(1))
    with pytest.raises(DataError, match="is of seed 1; its name says 2"):
        records.read_groups(tmp_path.glob("*.json"))


def test_trainings_are_compared_with_those_as_long(page, tmp_path):
    grid = ["wbce", "baa(threshold=0.7,window=0.2,decay=16)"]
    for seed in range(3):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed))
        far = make_record(seed, shift=0.01, precision="32-true", epochs=40)
        write(tmp_path, f"uded-hed-fp32-{seed}", far)
        write(tmp_path, f"uded-hed-ablation-{seed}", make_record(seed, losses=grid, epochs=40))
    text = page.make_page(tmp_path)
    assert "- bfloat16 against float32: not run." in text
    assert "trained here a second time" not in text
    for seed in range(3):
        short = make_record(seed, shift=0.02, epochs=40)
        write(tmp_path, f"uded-hed-short-{seed}", short)
    text = page.make_page(tmp_path)
    assert "- bfloat16 against float32: +0.0100" in text
    assert "HED on UDED at threshold 0.7, 40 epochs," in text
    assert "its mean differs from the first by -0.0200" in text


def test_seeds_has_a_table_for_each_name(tmp_path, capsys):
    seeds = importlib.import_module("seeds")
    for seed in range(2):
        write(tmp_path, f"uded-hed-{seed}", make_record(seed))
        write(tmp_path, f"uded-hed-fp32-{seed}", make_record(seed, precision="32-true"))
    write(tmp_path, "uded-bdcn-0", make_record(0, name="bdcn"))
    seeds.main(list(map(str, tmp_path.glob("*.json"))))
    printed = capsys.readouterr().out
    assert printed.count("hed on UDED, paper-strict, 2 seeds, 7 images") == 2
    assert "bdcn" not in printed
    with pytest.raises(SystemExit, match="at least two result files"):
        seeds.main([str(tmp_path / "uded-bdcn-0.json")])
