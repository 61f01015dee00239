"""Tables: rows in the paper's form, improvements, the best in bold, averages over models."""

import pytest

from knifeedge.report import read_runs
from knifeedge.report.settings import protocol_table, settings_tables
from knifeedge.report.tables import experiment_tables, score_tables, signed_percent
from report.fake_runs import make_experiment, make_protocol, table_row, write_json


def texts(row):
    return [cell.text for cell in row.cells]


@pytest.fixture(scope="module")
def two_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    for number, model in enumerate(("hed", "tiny")):
        make_protocol(folder / model, model=model, images=2, size=48, seed=number)
    return read_runs([folder])


def test_rows_by_model_and_loss(two_models):
    (table,) = score_tables(two_models)
    assert table.caption == "synthetic, one-pixel, 2 test images"
    assert [(row.kind, *texts(row)[:2]) for row in table.rows] == [
        ("first", "hed", "wbce"),
        ("plain", "", "baa-0.7"),
        ("improvement", "", "improvement"),
        ("plain", "", "baa-sa"),
        ("improvement", "", "improvement"),
        ("first", "tiny", "wbce"),
        ("plain", "", "baa-0.7"),
        ("improvement", "", "improvement"),
        ("plain", "", "baa-sa"),
        ("improvement", "", "improvement"),
        ("average", "average of 2 models", "wbce"),
        ("plain", "", "baa-0.7"),
        ("improvement", "", "improvement"),
        ("plain", "", "baa-sa"),
        ("improvement", "", "improvement"),
    ]


def test_numbers_are_those_of_the_runs(two_models):
    (table,) = score_tables(two_models)
    losses = [outcome.scored["one-pixel"] for run in two_models.runs for outcome in run.outcomes]
    shown = [row for row in table.rows if row.kind in ("first", "plain")][:6]
    for row, scored in zip(shown, losses, strict=True):
        keys = ("ods", "ois", "ois_mean", "ap", "r50", "crispness")
        assert texts(row)[2:8] == [f"{scored.summary[key]:.3f}" for key in keys]
        assert texts(row)[9] == f"{scored.at.f:.3f}"
    ods = [scored.summary["ods"] for scored in losses]
    assert table.rows[2].cells[2].text == signed_percent(ods[1], ods[0])
    assert [row.cells[2].best for row in shown[:3]] == [value == max(ods[:3]) for value in ods[:3]]
    mean = (ods[0] + ods[3]) / 2
    assert table.rows[10].cells[2].text == f"{mean:.3f}"
    assert table.rows[12].cells[2].text == signed_percent((ods[1] + ods[4]) / 2, mean)


def test_percentages_are_the_papers():
    # HED and HED-BAA-0.7 on UDED and BIPED2, and a tie
    assert signed_percent(0.727, 0.709) == "+2.54 %"
    assert signed_percent(0.629, 0.630) == "\N{MINUS SIGN}0.16 %"
    assert signed_percent(0.5, 0.5) == "+0.00 %"
    assert signed_percent(0.5, 0.001) == "over +1000 %"
    assert signed_percent(0.5, 0.0) == "\N{EN DASH}"


def test_an_adjusted_loss_is_compared_with_its_own_base(tmp_path):
    losses = ("wbce", "ebt", "baa(base=ebt,threshold=0.6)")
    make_protocol(tmp_path / "run", losses=losses, images=1, size=48)
    contents = read_runs([tmp_path])
    (table,) = score_tables(contents)
    ods = [outcome.scored["one-pixel"].summary["ods"] for outcome in contents.runs[0].outcomes]
    improvements = [row for row in table.rows if row.kind == "improvement"]
    assert [row.cells[2].text for row in improvements] == [signed_percent(ods[2], ods[1])]


def test_seeds_are_told_apart(tmp_path):
    for seed in (0, 1):
        make_protocol(tmp_path / str(seed), seed=seed, losses=("wbce",), images=1, size=48)
    (table,) = score_tables(read_runs([tmp_path]))
    assert [texts(row)[0] for row in table.rows] == ["tiny, seed 0", "tiny, seed 1"]


def test_experiment(tmp_path):
    make_experiment(tmp_path / "grid", images=1, size=48, seeds=(0, 1), losses=("wbce",))
    (experiment,) = read_runs([tmp_path / "grid"]).experiments
    (table,) = experiment_tables(experiment)
    first, second, improvement = (texts(row) for row in table.rows[:3])
    minus = "\N{MINUS SIGN}"
    assert first[:4] == ["tiny", "wbce", "2", "0.610 ± 0.011"]
    assert second[3:8] == [
        "0.624 ± 0.011",
        f"+0.014 ({minus}0.003 to +0.031)",
        "0.644 ± 0.011",
        "0.727",
        "0.755",
    ]
    assert table.rows[1].cells[3].best
    assert not table.rows[0].cells[3].best
    assert improvement[3] == signed_percent(0.6242, 0.61)
    assert improvement[6] == "+2.54 %"


def test_only_the_papers_figures_that_exist_have_a_column(tmp_path):
    record = {"format": "knifeedge-experiment-1", "title": "T", "baseline": "wbce"}
    rows = [table_row("m", "wbce", 0.5), table_row("m", "baa-0.7", 0.5, data="other")]
    rows[0]["paper"] = {"threshold": 0.66}
    write_json(tmp_path / "table.json", {**record, "rows": rows})
    (experiment,) = read_runs([tmp_path]).experiments
    one, other = experiment_tables(experiment)
    assert one.head[5:8] == ("OIS", "paper threshold", "fixed threshold")
    assert texts(one.rows[0])[6] == "0.660"
    assert other.head[5:7] == ("OIS", "fixed threshold")
    assert all(len(row.cells) == len(table.head) for table in (one, other) for row in table.rows)


def test_an_experiment_with_strange_rows_is_shown(tmp_path):
    row = table_row("m", "wbce", 0.5)
    strange = {"model": None, "ods": "x", "difference": {"mean": 0.1}, "seeds": 3}
    record = {"format": "knifeedge-experiment-1", "title": "T", "baseline": "wbce"}
    write_json(tmp_path / "table.json", {**record, "rows": [row, strange, 5]})
    (experiment,) = read_runs([tmp_path]).experiments
    assert len([row for t in experiment_tables(experiment) for row in t.rows]) == 2


def test_settings_hold_everything(two_models):
    table = settings_tables(two_models)[1]
    entries = dict(texts(row) for row in table.rows)
    assert entries["model.name"] == "tiny"
    assert entries["seed"] == "1"
    assert entries["torch"] == "2.13.0"
    assert entries["data.options.size"] == "48"
    assert entries["images.test"] == "2"
    assert entries["calibrated with wbce"].startswith("threshold 0.61")
    (protocol,) = protocol_table(two_models).rows
    assert texts(protocol) == ["one-pixel", "1 px", "yes", "no"]
