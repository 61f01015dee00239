"""The verb `report`, as its own application; `cli` only hangs it in."""

import json

import pytest
import typer
from typer.testing import CliRunner

from knifeedge.cli.report import report
from knifeedge.errors import ConfigError, DataError
from report.fake_runs import make_protocol

app = typer.Typer()
app.command()(report)


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def folder(tmp_path):
    return make_protocol(tmp_path / "run", images=1, size=48, losses=("wbce", "baa-0.7"))


def test_the_page_goes_into_the_run(folder):
    output = run(folder).stdout
    assert output.startswith(f"{folder}/report.html (0.")
    first = (folder / "report.html").read_bytes()
    run(folder)  # the page itself is no part of the next
    assert (folder / "report.html").read_bytes() == first


def test_markdown_and_plots(folder, tmp_path):
    output = run(folder, "--format", "md", "--plots", tmp_path / "plots").stdout
    assert "report.md" in output
    assert f"10 plots in {tmp_path / 'plots'}" in output
    assert (folder / "report.md").exists()
    assert len(list((tmp_path / "plots").iterdir())) == 10


def test_paper_figures_need_no_run(tmp_path):
    output = run("--paper-figures", tmp_path / "figures").stdout
    assert "ablation.svg" in output
    assert len(list((tmp_path / "figures").iterdir())) == 4


def test_json(folder, tmp_path):
    (folder / "wbce" / "model.safetensors").unlink()
    record = json.loads(run(folder, "--out", tmp_path / "a.html", "--json").stdout)
    assert record["report"] == str(tmp_path / "a.html")
    assert record["bytes"] == (tmp_path / "a.html").stat().st_size
    assert record["faults"] == [
        {
            "where": "run/wbce",
            "kind": "unfinished",
            "reason": "model.safetensors, written last, is not there",
        }
    ]


def test_faults_go_to_stderr(folder):
    (folder / "wbce" / "log.csv").unlink()
    assert "damaged: run/wbce: log.csv is missing" in run(folder).stderr


def test_the_page_goes_into_the_first_run_that_is_there(folder, tmp_path):
    result = run(tmp_path / "typo", folder)
    assert result.stdout.startswith(f"{folder}/report.html")
    assert "damaged: typo: it does not exist" in result.stderr
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize("option", ["--plots", "--out"])
def test_what_needs_a_run_is_refused_without_one(tmp_path, option):
    with pytest.raises(ConfigError, match=f"{option} needs the folder of a run, such as"):
        run("--paper-figures", tmp_path / "figures", option, tmp_path / "other")
    assert not list(tmp_path.iterdir())


def test_mistakes(folder, tmp_path):
    with pytest.raises(ConfigError, match="needs the folder of a run"):
        run()
    with pytest.raises(ConfigError, match="--format must be one of html, md, got 'pdf'"):
        run(folder, "--format", "pdf")
    with pytest.raises(DataError, match="nothing to report on"):
        run(tmp_path / "nowhere")
    with pytest.raises(DataError, match="is a folder"):
        run(folder, "--out", tmp_path)
    with pytest.raises(DataError, match="is a file; name a folder"):
        run(folder, "--plots", folder / "result.json")


def test_help_has_an_example():
    assert "knifeedge report runs/demo" in run("--help").stdout
