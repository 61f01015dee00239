"""`knifeedge export`: the files it writes, what it prints, and its one-line errors."""

import pytest
import torch
import typer
from safetensors.torch import save_file
from typer.testing import CliRunner

from knifeedge.cli.export import export
from knifeedge.config import ModelConfig
from knifeedge.engine.checkpoint import WeightsInfo, save_model
from knifeedge.errors import CheckpointError, ConfigError, DataError
from knifeedge.export import _can_defer_guards
from knifeedge.models import create_model

app = typer.Typer(rich_markup_mode="rich")
app.command()(export)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    folder = tmp_path / "run"
    info = WeightsInfo(ModelConfig("tiny"), threshold=0.6)
    save_model(folder / "model.safetensors", create_model("tiny"), info)
    return folder


def test_onnx(folder, tmp_path, capfd):
    import onnxruntime

    out = tmp_path / "edges.onnx"
    first, last = run(folder, "--out", out).splitlines()
    assert first.startswith("largest difference from PyTorch: ")
    assert last == f"{out}: {out.stat().st_size / 1e6:.1f} MB"
    facts = onnxruntime.InferenceSession(out).get_modelmeta().custom_metadata_map
    assert facts["threshold"] == "0.6"
    assert capfd.readouterr().err == "", "the exporters' remarks are theirs"


@pytest.mark.skipif(not _can_defer_guards(), reason="needs PyTorch 2.9")
def test_torch_export_of_a_plain_state_dict(tmp_path):
    save_file(create_model("tiny").state_dict(), tmp_path / "plain.safetensors")
    out = tmp_path / "edges.pt2"
    with pytest.raises(CheckpointError, match="does not say which network"):
        run(tmp_path / "plain.safetensors", "--out", out, "--format", "torch-export")
    assert not out.exists()
    chosen = ("--format", "torch-export", "--model", "tiny", "--no-check")
    (line,) = run(tmp_path / "plain.safetensors", "--out", out, *chosen).splitlines()
    assert line.startswith(str(out))
    module = torch.export.load(out).module()
    assert module(torch.rand(1, 3, 40, 50)).shape == (1, 1, 40, 50)


def test_bad_input(folder, tmp_path):
    out = tmp_path / "edges.onnx"
    with pytest.raises(ConfigError, match="--format must be one of onnx, torch-export, got 'tf'"):
        run(folder, "--out", out, "--format", "tf")
    with pytest.raises(DataError, match="is a folder"):
        run(folder, "--out", tmp_path)
    with pytest.raises(CheckpointError, match="there is no weights file"):
        run(tmp_path / "nothing", "--out", out)
    (tmp_path / "text.safetensors").write_text("no weights")
    with pytest.raises(CheckpointError, match="damaged or no safetensors file"):
        run(tmp_path / "text.safetensors", "--out", out)
    with pytest.raises(CheckpointError, match="holds weights of tiny, not of hed"):
        run(folder, "--out", out, "--model", "hed")
    (folder / "last.ckpt").touch()
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="is not finished"):
        run(folder, "--out", out)
    assert not out.exists()


def test_out_is_required(folder):
    assert "--out" in run(folder, code=2)


def test_help_has_an_example():
    assert "knifeedge export runs/first" in run("--help")
