"""Runs that are unfinished or damaged appear as such, and never stop the rest."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from knifeedge.errors import DataError
from knifeedge.report import FORMATS, read_runs, write_report
from knifeedge.report.drawing import write_plots
from report.fake_runs import make_experiment, make_protocol, make_training, write_json


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return make_protocol(tmp_path_factory.mktemp("small") / "run", images=2, size=48)


@pytest.fixture
def copy(small, tmp_path):
    return shutil.copytree(small, tmp_path / "run")


def faults(contents):
    return {(fault.kind, fault.where, fault.reason) for fault in contents.faults}


def test_a_whole_run_has_no_faults(small):
    contents = read_runs([small])
    assert not contents.faults
    (run,) = contents.runs
    assert run.title == "tiny on synthetic, seed 0"
    assert [outcome.loss for outcome in run.outcomes] == ["wbce", "baa-0.7", "baa-sa"]
    assert [outcome.threshold for outcome in run.outcomes] == [0.61, 0.7, 0.61]
    assert [calibration.threshold for calibration in run.calibrations] == [0.61]
    assert run.outcomes[1].scored["one-pixel"].at.threshold == 0.7
    assert run.outcomes[0].training.log.epoch[-1] == 12


def test_runs_are_found_below_a_folder(tmp_path):
    make_protocol(tmp_path / "a" / "b" / "protocol", images=1, size=48)
    make_training(tmp_path / "a" / "alone")
    make_experiment(tmp_path / "grid", images=1, size=48, seeds=(0, 1))
    contents = read_runs([tmp_path])
    name = tmp_path.name
    assert [run.name for run in contents.runs] == [
        f"{name}/a/b/protocol",
        f"{name}/grid/runs/tiny-synthetic-0",
        f"{name}/grid/runs/tiny-synthetic-1",
    ]
    assert [training.name for training in contents.trainings] == [f"{name}/a/alone"]
    assert [experiment.title for experiment in contents.experiments] == ["Losses on made-up scenes"]
    assert {fault.kind for fault in contents.faults} == {"failed", "unfinished"}


def break_result(run):
    (run / "result.json").write_text('{"format": "knifeedge-res')


def other_format(run):
    write_json(run / "result.json", {"format": "knifeedge-result-9"})


def cut_scores(run):
    text = (run / "wbce" / "scores-one-pixel.json").read_text()
    (run / "wbce" / "scores-one-pixel.json").write_text(text[: len(text) // 2])


def lose_scores(run):
    (run / "wbce" / "scores-one-pixel.json").unlink()


def lose_folder(run):
    shutil.rmtree(run / "baa-0.7")


def cut_log(run):
    (run / "wbce" / "log.csv").write_text("epoch,step,loss\n1,2,x\n2,4,0.5\n")


def lose_weights(run):
    (run / "wbce" / "model.safetensors").unlink()


def cut_prediction(run):
    path = min((run / "wbce" / "predictions").glob("*.png"))
    path.write_bytes(path.read_bytes()[:60])


def lose_prediction(run):
    next((run / "wbce" / "predictions").glob("*.png")).unlink()


def cut_image(run):
    path = next((run / "gallery").glob("*.image.png"))
    path.write_bytes(path.read_bytes()[:100])


def change_prediction(run):
    one, other = sorted((run / "wbce" / "predictions").glob("*.png"))
    shutil.copy(one, other)


def change_counts(run):
    """At one threshold, which is not the fixed one."""
    path = run / "wbce" / "scores-one-pixel.json"
    record = json.loads(path.read_text())
    record["counts"][0][4][3] += 1
    write_json(path, record)


def change_result(run):
    result = json.loads((run / "result.json").read_text())
    result["losses"][0]["scores"]["one-pixel"]["ods"] += 0.01
    write_json(run / "result.json", result)


def break_config(run):
    (run / "config.json").write_bytes(b"\xff\xfe{")


def lead_away(run):
    result = json.loads((run / "result.json").read_text())
    result["gallery"][0] = "../../secret"
    result["losses"][1]["run"] = ".."
    write_json(run / "result.json", result)


def wrong_types(run):
    result = json.loads((run / "result.json").read_text())
    result["losses"] = [None, 7, {"loss": "wbce", "run": "wbce", "threshold": "high"}]
    result["images"] = []
    write_json(run / "result.json", result)


def change_scores(run, change):
    path = run / "wbce" / "scores-one-pixel.json"
    record = json.loads(path.read_text())
    change(record)
    write_json(path, record)


def negative_tolerance(run):
    change_scores(run, lambda record: record["protocol"].update(max_dist=-1))


def unknown_unit(run):
    change_scores(run, lambda record: record["protocol"].update(unit="mm"))


def enormous_tolerance(run):
    change_scores(run, lambda record: record["protocol"].update(max_dist=600))


def tolerance_wider_than_matching(run):
    """As a share of the diagonal it is known to be too wide only with the image."""
    Image.fromarray(np.zeros((600, 600), np.uint8)).save(run / "gallery" / "wide.label.png")
    Image.fromarray(np.zeros((600, 600), np.uint8)).save(run / "gallery" / "wide.image.png")
    Image.fromarray(np.zeros((600, 600), np.uint8)).save(run / "wbce" / "predictions" / "wide.png")
    result = json.loads((run / "result.json").read_text())
    result["gallery"].append("wide")
    write_json(run / "result.json", result)

    def widen(record):
        record["protocol"].update(unit="diagonal", max_dist=1)
        record["images"][0]["name"] = "wide"

    change_scores(run, widen)


def enormous_count(run):
    change_scores(run, lambda record: record["counts"][0][4].__setitem__(3, 10**30))


def enormous_result(run):
    result = json.loads((run / "result.json").read_text())
    result["losses"][0]["scores"]["one-pixel"]["ods"] = 10**400
    write_json(run / "result.json", result)


def endless_name(run):
    result = json.loads((run / "result.json").read_text())
    result["losses"][0]["run"] = "x" * 300
    write_json(run / "result.json", result)


def enormous_mark(run):
    """In a place that the counts cannot mend, as they have no fixed threshold."""
    change_scores(run, lambda record: record.pop("at"))
    result = json.loads((run / "result.json").read_text())
    result["losses"][0]["scores"]["one-pixel"]["at"]["f"] = -1e308
    write_json(run / "result.json", result)


def half_a_pair(run):
    result = json.loads((run / "result.json").read_text())
    result["gallery"][0] = "\ud800"
    write_json(run / "result.json", result)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (negative_tolerance, "scores-one-pixel.json: this is no record of scores"),
        (unknown_unit, "unit must be one of diagonal, pixel, got"),
        (enormous_tolerance, "scores-one-pixel.json: this is no record of scores"),
        (tolerance_wider_than_matching, "max_dist must be at most 512 pixels"),
        (enormous_count, "scores-one-pixel.json: this is no record of scores"),
        (enormous_result, "ods must be a number"),
        (endless_name, "it cannot be read: File name too long"),
        (enormous_mark, "f must be in [0,1], got -1e+308"),
        (half_a_pair, "must do as a file name, got"),
        (break_result, "result.json is no JSON"),
        (other_format, "this version reads 'knifeedge-result-1'"),
        (cut_scores, "scores-one-pixel.json is no JSON"),
        (lose_scores, "scores-one-pixel.json is missing"),
        (lose_folder, "the folder is missing"),
        (cut_log, "log.csv, line 2: epoch and loss must be numbers"),
        (lose_weights, "model.safetensors, written last, is not there"),
        (cut_prediction, "predictions/synthetic-0-1073741824.png"),
        (lose_prediction, ".png is missing"),
        (cut_image, "is no whole picture"),
        (change_prediction, "does not belong to the scores"),
        (change_counts, "does not belong to the scores: at 0.05 it gives"),
        (change_result, "by the counts"),
        (break_config, "config.json is no JSON"),
        (lead_away, "must do as a file name, got '../../secret'"),
        (wrong_types, "threshold must be a number, got 'high'"),
    ],
)
def test_damage_is_told_and_stops_nothing(copy, tmp_path, damage, reason):
    damage(copy)
    page = write_report([copy], tmp_path / "report.html").read_text()
    assert reason.replace("'", "&#x27;") in page
    assert str(tmp_path) not in page
    assert "Curves" in page  # the losses' own files are still there, or the pre-training's


def test_a_name_that_is_not_utf8_is_spelled_out(copy, tmp_path):
    """Without a result the names are those of the files."""
    (copy / "result.json").unlink()
    for kind in ("image", "label"):
        path = min((copy / "gallery").glob(f"*.{kind}.png"))
        path.rename(path.with_name(f"caf\udce9.{kind}.png"))
    (copy / "wbce").rename(copy / "pretrain-\udce9")
    contents = read_runs([copy])
    for format in FORMATS:
        page = write_report([copy], tmp_path / f"report.{format}", format=format).read_text()
        assert "pretrain-\\udce9" in page.replace("\\\\", "\\")
    assert "caf\\udce9" in write_report([copy], tmp_path / "report.html").read_text()
    assert write_plots(contents, tmp_path / "plots", ("svg",)) > 0


def test_a_calibration_curve_that_is_none_is_left_out(copy, tmp_path):
    path = copy / "pretrain-wbce" / "calibration.json"
    record = json.loads(path.read_text())
    record["curve"][2] = -1e308
    write_json(path, record)
    assert read_runs([copy]).runs[0].calibrations[0].curve is None
    assert "Curves" in write_report([copy], tmp_path / "report.html").read_text()


@pytest.mark.parametrize("losses", [("1e308", "-1e308"), ("1e-200", "0"), ("1e30", "inf")])
def test_losses_of_any_size_can_be_drawn(copy, tmp_path, losses):
    rows = (f"{number},2,{loss}" for number, loss in enumerate(losses, start=1))
    (copy / "wbce" / "log.csv").write_text("epoch,step,loss\n" + "\n".join(rows) + "\n")
    log = "epoch,loss,validation_ods\n1,0.5,{}\n2,0.4,{}\n".format(*losses)
    (copy / "pretrain-wbce" / "log.csv").write_text(log)
    assert "Loss while training" in write_report([copy], tmp_path / "report.html").read_text()
    assert write_plots(read_runs([copy]), tmp_path / "plots", ("png",)) > 0


def test_an_unfinished_protocol_shows_what_it_has(copy, tmp_path):
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "baa-sa")
    contents = read_runs([copy])
    assert ("unfinished", "run", "result.json, written last, is not there") in faults(contents)
    assert ("unfinished", "run/baa-sa", "the folder is missing") in faults(contents)
    (run,) = contents.runs
    assert run.title.endswith("(unfinished)")
    assert run.outcomes[1].threshold == 0.7
    assert len(run.gallery) == 2
    assert "(unfinished)" in write_report([copy], tmp_path / "report.html").read_text()


def test_a_last_line_that_was_cut_off_is_left_out(copy):
    with (copy / "wbce" / "log.csv").open("a") as log:
        log.write("13,70")
    assert read_runs([copy]).runs[0].outcomes[0].training.log.epoch[-1] == 12


def test_nothing_usable_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"nothing to report on in .*empty; name the folder of"):
        read_runs([tmp_path / "empty"])
    with pytest.raises(DataError, match="it does not exist") as caught:
        read_runs([tmp_path / "missing"])
    assert "\n" not in str(caught.value)


def test_a_missing_folder_does_not_hide_the_others(small, tmp_path):
    contents = read_runs([tmp_path / "missing", small])
    assert len(contents.runs) == 1
    assert ("damaged", "missing", "it does not exist") in faults(contents)


def test_a_broken_table_leaves_the_runs(tmp_path):
    make_experiment(tmp_path / "grid", images=1, size=48, seeds=(0,))
    (tmp_path / "grid" / "table.json").write_text("[]")
    contents = read_runs([tmp_path / "grid"])
    assert len(contents.runs) == 1
    assert ("damaged", "grid", "table.json must hold an object, got list") in faults(contents)


def test_a_table_of_wrong_kinds_leaves_the_rest(tmp_path):
    make_experiment(tmp_path / "grid", images=1, size=48, seeds=(0,))
    table = json.loads((tmp_path / "grid" / "table.json").read_text())
    table |= {"rows": 5, "failed": 7, "unfinished": 5}
    write_json(tmp_path / "grid" / "table.json", table)
    contents = read_runs([tmp_path / "grid"])
    assert len(contents.runs) == 1
    for key in ("rows", "failed", "unfinished"):
        reason = f"table.json: {key} must be a list, got {table[key]}"
        assert ("damaged", "grid", reason) in faults(contents)
    table["rows"] = [{"loss": "wbce", "ods": {"mean": 10**400}}]
    write_json(tmp_path / "grid" / "table.json", table)
    assert "Scores" in write_report([tmp_path / "grid"], tmp_path / "report.html").read_text()
