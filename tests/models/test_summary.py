"""The figures of the models: parameters as in the paper, and the tables of docs/models.md."""

import json
import re
from pathlib import Path

import pytest
import torch
import typer
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from knifeedge.cli.models import models
from knifeedge.errors import ConfigError
from knifeedge.models import create_model, model_names, summarise, trace

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text()


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("name", "options", "parameters"),
    [
        ("hed", {}, 14_716_171),
        ("bdcn", {}, 16_302_120),
        ("dexined", {}, 35_083_403),
        ("hed", {"side_channels": 21}, 14_745_921),
        ("bdcn", {"side_channels": 21}, 16_562_800),
        ("dexined", {"side_channels": 21}, 35_672_930),
    ],
)
def test_parameters_are_the_papers_live_ones(name, options, parameters):
    with torch.device("meta"):
        assert count(create_model(name, **options)) == parameters


@pytest.mark.parametrize(("attention", "selector"), [(False, 37_857_795), (True, 132_349_443)])
def test_parameters_of_ees3(attention, selector):
    with torch.device("meta"):
        model = create_model("ees3-double", attention=attention)
    assert count(model.extractors) == 66_981_651
    assert count(model.selector) == selector
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == selector


def test_summary_agrees_with_a_real_run():
    model = create_model("tiny").eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        outputs = model(torch.randn(1, 3, 320, 320))
    summary = summarise("tiny")
    assert summary.gflop == counter.get_total_flops() / 1e9
    assert summary.parameters == summary.trainable == count(model)
    assert summary.outputs == len(outputs)


def test_operations_of_hed_by_hand():
    """Two for each multiplication of the 13 convolutions, the scores and the fusion."""
    sizes = [(3, 64, 320), (64, 64, 320), (64, 128, 160), (128, 128, 160), (128, 256, 80)]
    sizes += [(256, 256, 80)] * 2 + [(256, 512, 40)] + [(512, 512, 40)] * 2 + [(512, 512, 20)] * 3
    total = sum(2 * 9 * a * b * side**2 for a, b, side in sizes)
    scores = [(64, 320), (128, 160), (256, 80), (512, 40), (512, 20), (5, 320)]
    total += sum(2 * channels * side**2 for channels, side in scores)
    assert summarise("hed").gflop == total / 1e9


def table_after(heading: str) -> list[list[str]]:
    """The cells of the first table after a heading in the page, without its two head lines."""
    section = f"\n{PAGE}".split(f"\n{heading}\n", 1)[1]
    lines = section.split("\n| ", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in line.strip("| ").split(" | ")] for line in lines]


@pytest.mark.parametrize("name", ["tiny", "hed", "bdcn", "dexined", "ees3-double"])
def test_shape_traces_in_the_docs(name):
    rows = [row for row in trace(name) if not row.stage.startswith("extractors.")]
    want = [[r.stage, str(r.channels), f"{r.height} x {r.width}", str(r.stride)] for r in rows]
    assert table_after(f"### {name}") == want


def test_figures_in_the_docs():
    documented = {row[0]: row[1:3] for row in table_after("# Models")}
    for name, figures in documented.items():
        summary = summarise(name)
        assert figures == [f"{summary.parameters:,}", f"{summary.gflop:,.1f}"]
    assert set(documented) <= set(model_names())
    assert len(documented) == 5


def run(*arguments: str):
    app = typer.Typer()
    app.command()(models)
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})


def test_the_verb_lists_models():
    result = run()
    assert result.exit_code == 0
    assert re.search(r"hed +│ +14,716,171 │ +62\.7 │ VGG16", result.stdout)
    assert re.search(r"ees3-double +│ +104,839,446 .* 66,981,651 frozen", result.stdout)


def test_the_verb_prints_json():
    listed = {entry["name"]: entry for entry in json.loads(run("--json").stdout)}
    assert listed["dexined"]["parameters"] == 35_083_403
    stages = json.loads(run("hed", "--json").stdout)
    assert stages["options"] == ["side_channels", "vgg16"]
    assert stages["stages"][0] == {
        "stage": "trunk.0",
        "channels": 64,
        "height": 320,
        "width": 320,
        "stride": 1,
    }


def test_the_verb_shows_stages():
    result = run("bdcn")
    assert result.exit_code == 0
    assert re.search(r"trunk\.4 +│ +512 │ +39 x 39 │ +8", result.stdout)


def test_the_verb_refuses_an_unknown_model():
    error = run("heed").exception
    assert isinstance(error, ConfigError)
    assert "the closest is 'hed'" in str(error)
