"""The page on which loss to take is what the records give, and says what follows from them."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOSSES = {"wbce": 0.0, "dice": -0.1, "baa-sa": 0.05, "baa(base=swbce,threshold=online)": 0.0}


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("comparison")


def tasks_record() -> dict:
    """Two seeds; each loss is a fixed difference from WBCE, give or take 0.001."""
    rows = {
        loss: [
            {
                "f": 0.6 + 0.1 * seed + apart + 0.001 * seed * bool(apart),
                "half": 0.5,
                "best": 0.7,
                "threshold": 0.4,
                "seconds": 2.0,
            }
            for seed in range(3)
        ]
        for loss, apart in LOSSES.items()
    }
    return {"tasks": {"digits": rows}}


def test_the_page_is_what_the_results_give(script):
    script.main(["--check"])


def test_another_page_is_told(script, tmp_path):
    with pytest.raises(SystemExit, match="is not what the results give"):
        script.main(["--check", "--results", str(tmp_path)])


def test_without_records(script, tmp_path):
    text = script.make_page(tmp_path)
    assert "4 of 4 tasks were not run yet" in text
    assert "--losses baa-online --name online" in text


def test_what_the_page_says_follows(script, tmp_path):
    (tmp_path / "tasks.json").write_text(json.dumps(tasks_record()))
    text = script.make_page(tmp_path)
    # By hand: means 0.751, 0.7, 0.7 and 0.601; the pairs of BAA-SA differ by 0.05, 0.051, 0.052,
    # whose interval is 4.303 * 0.001 / sqrt(3) = 0.0025 to each side.
    rows = [line for line in text.splitlines() if line.startswith("| ") and "0.40 |" in line]
    assert [row.split(" | ")[0] for row in rows] == [
        "| BAA-SA",
        "| `baa(base=swbce,threshold=online)`",  # of equals the first by name
        "| WBCE",
        "| `dice`",
    ]
    assert "0.751 (0.101) | +0.0510 ± 0.0025" in rows[0]
    assert rows[0].endswith("| 0.40 | 2.00 |")  # with the training that finds its threshold
    assert rows[3].endswith("| 0.40 | 1.00 |")
    assert "Better than WBCE: BAA-SA. Worse: `dice`." in text
    assert "| BAA-SA | 1 | 1 better | none told apart | none told apart | +0.0510 |" in text
    assert "| `dice` | 1 | 1 worse | none told apart | none told apart | -0.0990 |" in text
    assert "| BAA-SA | WBCE | F, calibrated | +0.0510 ± 0.0025 |" in text
    # Its base was not run.
    assert "| `baa(base=swbce,threshold=online)` | `swbce` | F, calibrated |  |" in text


def test_runs_are_collected(script, tmp_path):
    record = json.loads((ROOT / "results" / "uded-hed-0.json").read_text())
    record["config"]["data"]["root"] = "somewhere"
    for entry in record["losses"]:
        for scores in entry["scores"].values():
            scores["at_half"] = scores["at"]
    run = tmp_path / "runs" / "hed-UDED-0"
    run.mkdir(parents=True)
    (run / "result.json").write_text(json.dumps(record))
    script.main(
        ["--collect", str(tmp_path), "--results", str(tmp_path), "--out", str(tmp_path / "p.md")]
    )
    kept = json.loads((tmp_path / "comparison-uded-0.json").read_text())
    assert kept["config"]["data"]["root"] is None
    text = (tmp_path / "p.md").read_text()
    assert "## Edges of UDED" in text
    assert "One seed shows nothing." in text
    with pytest.raises(SystemExit, match="no finished run"):
        script.main(["--collect", str(tmp_path / "nowhere")])


def test_online_against_self_adaptive(script, tmp_path):
    """Paired by seed, with the thresholds beside each other."""
    for seed in range(3):
        record = json.loads((ROOT / "results" / f"uded-hed-{seed}.json").read_text())
        (tmp_path / f"uded-hed-{seed}.json").write_text(json.dumps(record))
        entry = record["losses"][2] | {"loss": "baa-online", "threshold": 0.7}
        entry["scores"]["paper-strict"]["ods"] += 0.01 + 0.001 * seed
        record["losses"] = [entry]
        (tmp_path / f"uded-hed-online-{seed}.json").write_text(json.dumps(record))
    text = script.make_page(tmp_path)
    assert "+0.0110 ± 0.0025" in text
    assert "it is higher with BAA-Online than with BAA-SA" in text
    assert "0.70 (0.72), 0.70 (0.80) and 0.70 (0.73); at most 0.10 apart" in text
