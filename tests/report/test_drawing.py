"""Plots as files, the report as Markdown, and the paper's figures."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from knifeedge.report import read_runs, write_report
from knifeedge.report.drawing import draw, named_plots, write_plots
from knifeedge.report.paper import DECAYS, PAPER, WINDOWS, ablation_grid, write_paper_figures
from knifeedge.report.plots import protocol_plots
from knifeedge.report.svg import ticks
from report.fake_runs import make_ablation, make_experiment


@pytest.fixture(scope="module")
def contents(run):
    return read_runs([run])


def test_every_plot_is_written_twice(contents, tmp_path):
    names = [name for name, _ in named_plots(contents)]
    assert [name.rpartition("bold-")[2] for name in names] == [
        "precision-recall-one-pixel",
        "threshold-one-pixel",
        "loss",
        "validation",
        "weight",
    ]
    assert write_plots(contents, tmp_path) == 10
    for name in names:
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size == (832, 672)
        ElementTree.parse(tmp_path / f"{name}.svg")


def test_the_same_plots_give_the_same_bytes(contents, tmp_path):
    for part in "ab":
        write_plots(contents, tmp_path / part)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_the_curves_are_the_scores(contents):
    curve, by_threshold = protocol_plots(contents.runs[0])[:2]
    scores = contents.runs[0].outcomes[1].scored["one-pixel"].scores
    seen = scores.counts.sum(axis=0)[:, 3] > 0
    np.testing.assert_array_equal(curve.series[1].x, scores.curves.recall[seen])
    np.testing.assert_array_equal(by_threshold.series[1].y, scores.curves.f)
    marks = {(mark.kind, mark.colour): (mark.x, mark.y) for mark in by_threshold.marks}
    assert marks["best", 1] == (scores.threshold, scores.ods)
    assert marks["fixed", 1] == (0.7, scores.at(0.7).f)
    assert marks["fixed", None][0] == 0.61  # the calibrated one, on validation images
    axes = draw(by_threshold).axes[0]
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), scores.curves.f)


def test_weights_are_the_adjusters(contents):
    weight = protocol_plots(contents.runs[0])[-1]
    edge, no_edge = weight.series[:2]
    at = {round(float(x), 4): n for n, x in enumerate(edge.x)}
    assert edge.y[at[0.7]] == no_edge.y[at[0.7]] == 1
    assert edge.y[at[0.9]] == pytest.approx(0, abs=1e-12)
    assert edge.y[at[0.8]] == pytest.approx(0.832, abs=1e-3)
    assert no_edge.y[at[0.6]] == pytest.approx(0.832, abs=1e-3)


def test_ticks_are_round():
    assert ticks(1.0, 200.0).tolist() == [50.0, 100.0, 150.0, 200.0]
    assert ticks(0.0, 0.15).tolist() == [0.0, 0.05, 0.1, 0.15]


def test_markdown(run, tmp_path):
    out = write_report([run], tmp_path / "my report.md", format="md")
    text = out.read_text()
    assert re.search(r"\| wbce \| 0\.\d{3} \|", text) or "| wbce | **0." in text
    assert "<script" not in text
    assert "<img" not in text
    links = re.findall(r"\]\((.*?)\)", text)
    assert len(links) == 5
    for link in links:
        assert (tmp_path / link.replace("%20", " ")).is_file()
    again = write_report([run], tmp_path / "again" / "my report.md", format="md")
    assert again.read_text() == text


def test_the_papers_table():
    assert set(PAPER) == set(DECAYS)
    assert all(len(curve) == len(WINDOWS) for curves in PAPER.values() for curve in curves)
    assert PAPER[16.0][0][1] == 0.690  # the default: window 0.2, decay 16
    assert PAPER[8.0][1][0] == 0.695
    assert PAPER[32.0][0][-1] == 0.687


def test_paper_figures(tmp_path):
    files = write_paper_figures(tmp_path / "paper")
    assert [path.name for path in files] == [
        "weight-function.png",
        "weight-function.svg",
        "ablation.png",
        "ablation.svg",
    ]
    make_ablation(tmp_path / "ours")
    contents = read_runs([tmp_path / "ours"])
    (grid,) = ablation_grid(contents.experiments[0]).values()
    assert sorted(grid) == [8.0, 16.0, 32.0]
    assert sorted(grid[8.0][0]) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    with_ours = write_paper_figures(tmp_path / "both", contents)
    assert "Ours: tiny on synthetic" in with_ours[3].read_text()
    assert "Ours" not in files[3].read_text()
    with Image.open(files[2]) as one, Image.open(with_ours[2]) as two:
        assert two.height == 2 * one.height


def test_an_experiment_without_that_grid_is_not_drawn(tmp_path):
    make_experiment(tmp_path / "grid", images=1, size=48, seeds=(0,))
    assert ablation_grid(read_runs([tmp_path / "grid"]).experiments[0]) == {}
