"""Exported files give what PyTorch gives, at any size, and say what a user must know."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn

from knifeedge import export
from knifeedge.config import ModelConfig
from knifeedge.data.pool import normalise
from knifeedge.engine.checkpoint import WeightsInfo, save_model
from knifeedge.errors import CheckpointError, ConfigError, DataError
from knifeedge.models import EES, HED, create_model, registry, selector
from knifeedge.models.geometry import upsample_centred
from knifeedge.version import VERSION

ROOT = Path(__file__).parents[1]
# None is the traced size: odd and even ones, a batch, one below the smallest side, one pixel.
SHAPES = [(1, 97, 131), (2, 64, 48), (1, 33, 80), (3, 20, 9), (1, 1, 1)]
NAMES = ["bdcn", "dexined", pytest.param("ees3-double", marks=pytest.mark.slow), "hed", "tiny"]
INFO = WeightsInfo(ModelConfig("tiny"), threshold=0.62, trained_on=("a",))


def make(name):
    torch.manual_seed(0)
    return enliven(create_model(name), he=name != "tiny")


def enliven(network, *, he=True):
    """Batch statistics off their start, and He weights where maps start as 0.5 everywhere."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and he:
            nn.init.kaiming_normal_(module.weight)
        elif isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.6, 1.5)
    return network.eval()


def pixels(n, height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, height, width, 3), np.uint8)


def expected(network, image):
    with torch.no_grad():
        return network(normalise(torch.from_numpy(image)))[-1].sigmoid()


def session(content):
    return onnxruntime.InferenceSession(content)


def onnx_runner(content):
    opened = session(content)
    return lambda image: torch.from_numpy(opened.run(["probability"], {"image": image.numpy()})[0])


def assert_same_maps(run, network, shapes=SHAPES):
    for shape in shapes:
        image = pixels(*shape)
        want = expected(network, image)
        got = run(torch.from_numpy(image).permute(0, 3, 1, 2).contiguous() / 255)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got, want, rtol=0, atol=1e-4)
        if shape[1] > 32:
            assert want.std() > 0.01, "a map without contrast shows nothing"


def skip_before_2_9():
    if not export._can_defer_guards():
        pytest.skip("torch.export has free sizes since PyTorch 2.9")


@pytest.fixture(scope="module", params=NAMES)
def named(request):
    return request.param, make(request.param)


@pytest.fixture(scope="module")
def captured(named):
    skip_before_2_9()
    with export._quiet(), torch.no_grad():
        return export.capture(named[1])


class TestEveryModel:
    def test_onnx(self, named, captured, monkeypatch):
        name, network = named
        monkeypatch.setattr(export, "capture", lambda network: captured)
        content = export.serialise(network, WeightsInfo(ModelConfig(name)), "onnx")
        assert_same_maps(onnx_runner(content), network)

    def test_torch(self, named, captured):
        module = captured.module()
        with torch.no_grad():
            assert_same_maps(module, named[1])

    def test_tracer_of_older_versions(self, named, monkeypatch):
        name, network = named
        if name == "ees3-double":
            pytest.skip("takes 8 s; a small one follows")
        monkeypatch.setattr(export, "_can_defer_guards", lambda: False)
        content = export.serialise(network, WeightsInfo(ModelConfig(name)), "onnx")
        assert_same_maps(onnx_runner(content), network)


def test_tracer_with_a_small_ees(monkeypatch):
    monkeypatch.setattr(selector, "CHANNELS", (8, 16, 16, 32, 32))
    monkeypatch.setattr(export, "_can_defer_guards", lambda: False)
    torch.manual_seed(0)
    network = enliven(EES({"hed": HED(side_channels=2)}))
    assert_same_maps(onnx_runner(export.serialise(network, INFO, "onnx")), network)


class Attending(nn.Module):
    """The selector's option, in small."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, stride=4, padding=1)
        self.attention = selector.Attention(16)
        self.last = nn.Conv2d(16, 1, 1)

    def forward(self, images):
        height, width = images.shape[-2:]
        logits = self.last(self.attention(self.first(images)))
        return [upsample_centred(logits, 4)[..., :height, :width]]


@pytest.fixture
def attending(monkeypatch):
    monkeypatch.setattr(selector, "ATTENTION_LAYERS", 2)
    monkeypatch.setitem(
        registry._ENTRIES, "attending", registry.ModelEntry("attending", Attending, "")
    )
    torch.manual_seed(0)
    return enliven(Attending()), WeightsInfo(ModelConfig("attending"))


def test_attention(attending):
    skip_before_2_9()
    network, info = attending
    assert_same_maps(onnx_runner(export.serialise(network, info, "onnx")), network, SHAPES[:3])


def test_attention_is_too_much_for_the_tracer(attending, monkeypatch, tmp_path):
    save_model(tmp_path / "model.safetensors", *attending)
    monkeypatch.setattr(export, "_can_defer_guards", lambda: False)
    with pytest.raises(ConfigError, match="attending cannot be exported as onnx"):
        export.export_model(tmp_path, tmp_path / "a.onnx")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    save_model(folder / "model.safetensors", make("tiny"), INFO)
    return folder


@pytest.fixture(scope="module")
def onnx_file(run_folder):
    return export.export_model(run_folder, run_folder / "new" / "edges.onnx")


@pytest.fixture(scope="module")
def torch_file(run_folder):
    skip_before_2_9()
    return export.export_model(run_folder, run_folder / "edges.pt2", format="torch")


def test_the_onnx_file(onnx_file):
    opened = session(onnx_file)
    for value, channels in ((opened.get_inputs()[0], 3), (opened.get_outputs()[0], 1)):
        assert value.shape == ["batch", channels, "height", "width"]
        assert value.type == "tensor(float)"
    facts = opened.get_modelmeta().custom_metadata_map
    assert facts["knifeedge_version"] == VERSION
    assert (facts["model"], facts["options"]) == ("tiny", "{}")
    assert facts["threshold"] == "0.62"
    assert facts["normalisation"] == "inside"
    assert json.loads(facts["mean"]) == [0.485, 0.456, 0.406]
    assert json.loads(facts["deviation"]) == [0.229, 0.224, 0.225]
    assert (facts["tile"], facts["overlap"]) == ("320", "32")
    onnx.checker.check_model(onnx_file, full_check=True)
    assert [p.name for p in onnx_file.parent.iterdir()] == ["edges.onnx"], "no data beside it"


def test_the_torch_file(torch_file):
    extra = {"knifeedge.json": ""}
    program = torch.export.load(torch_file, extra_files=extra)
    assert json.loads(extra["knifeedge.json"])["threshold"] == "0.62"
    with torch.no_grad():
        assert_same_maps(program.module(), make("tiny"))


@pytest.mark.parametrize("format", export.SUFFIXES)
def test_files_hold_no_paths_of_the_machine(format, request):
    file = request.getfixturevalue(f"{format}_file")
    parts = [file.read_bytes()]
    if format == "torch":
        with zipfile.ZipFile(file) as archive:
            parts += map(archive.read, archive.namelist())
    for part in parts:
        assert str(ROOT).encode() not in part
        assert b"site-packages" not in part


def test_metadata_leaves_out_what_it_does_not_know():
    config = ModelConfig("hed", {"side_channels": 1, "vgg16": "/home/somebody/vgg16.pth"})
    facts = export.metadata(WeightsInfo(config))
    assert "threshold" not in facts
    assert facts["options"] == '{"side_channels": 1}'


def test_the_script(onnx_file, tmp_path):
    image = pixels(1, 70, 90)[0]
    Image.fromarray(image).save(tmp_path / "photo.png")
    command = [sys.executable, "examples/onnx_predict.py", onnx_file, tmp_path / "photo.png"]
    subprocess.run([*command, tmp_path / "map.png"], cwd=ROOT, check=True)
    with Image.open(tmp_path / "map.png") as written:
        got = np.asarray(written, float)
    want = 255 * expected(make("tiny"), image[None])[0, 0].numpy()
    assert np.abs(got - want).max() <= 0.51


def test_the_script_is_the_documented_one():
    script = (ROOT / "examples" / "onnx_predict.py").read_text()
    body = script[script.index("def main") : script.index("\n\n\nif __name__")]
    assert body in (ROOT / "docs" / "export.md").read_text()
    assert len(body.splitlines()) <= 10


# --- the check ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", export.SUFFIXES)
def test_a_file_that_differs_is_not_left(format, run_folder, tmp_path, request, monkeypatch):
    content = request.getfixturevalue(f"{format}_file").read_bytes()
    monkeypatch.setattr(export, "serialise", lambda *_: content)
    network = make("tiny")
    network.sides[0].bias.data += 0.01
    save_model(tmp_path / "model.safetensors", network, INFO)
    out = tmp_path / f"edges{export.SUFFIXES[format]}"
    with pytest.raises(ConfigError, match=rf"tiny as {format} differs from PyTorch by 0\.0"):
        export.export_model(tmp_path, out, format=format)
    assert not out.exists()
    export.export_model(tmp_path, out, format=format, check=False)
    assert out.read_bytes() == content
    lines = []
    export.export_model(run_folder, out, format=format, tell=lines.append)
    assert len(lines) == 1
    assert "largest difference from PyTorch" in lines[0]


def test_nan_is_no_agreement(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "serialise", lambda *_: b"")
    monkeypatch.setattr(export, "_onnx_runner", lambda _: lambda image: image[:, :1] * np.nan)
    with pytest.raises(ConfigError, match="by nan"):
        export.export_model(run_folder, tmp_path / "edges.onnx")


def test_a_damaged_file_is_one_line(run_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "serialise", lambda *_: b"nothing of the kind")
    with pytest.raises(ConfigError, match="tiny cannot be exported as onnx") as caught:
        export.export_model(run_folder, tmp_path / "edges.onnx")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


# --- bad input ------------------------------------------------------------------------------------


def test_bad_arguments(run_folder, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="format must be one of onnx, torch, got 'tflite'"):
        export.export_model(run_folder, tmp_path / "a.onnx", format="tflite")
    with pytest.raises(DataError, match="is a folder"):
        export.export_model(run_folder, tmp_path)
    with pytest.raises(ConfigError, match=r"must end in \.pt2 for this format, got .*a\.onnx"):
        export.export_model(run_folder, tmp_path / "a.onnx", format="torch")
    with pytest.raises(CheckpointError, match="there is no weights file"):
        export.export_model(tmp_path / "nowhere", tmp_path / "a.onnx")
    (tmp_path / "last.ckpt").touch()
    with pytest.raises(CheckpointError, match="is not finished"):
        export.export_model(tmp_path, tmp_path / "a.onnx")
    monkeypatch.setattr(export, "_can_defer_guards", lambda: False)
    with pytest.raises(ConfigError, match=r"torch-export needs PyTorch 2\.9, got"):
        export.export_model(run_folder, tmp_path / "a.pt2", format="torch")


def test_missing_packages(run_folder, tmp_path, monkeypatch):
    find = export.importlib.util.find_spec
    monkeypatch.setattr(
        export.importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "onnxruntime" else find(name, *rest),
    )
    with pytest.raises(ConfigError, match=r"needs onnxruntime: pip install 'knifeedge\[export\]'"):
        export.export_model(run_folder, tmp_path / "a.onnx")


def test_a_network_that_is_too_large_for_onnx():
    network = nn.Linear(2**15, 2**14, device="meta")
    with pytest.raises(ConfigError, match=r"tiny has 2\.1 GB of weights.*torch-export"):
        export.serialise(network, INFO, "onnx")


class Branching(nn.Module):
    """A way that depends on the image, which no graph can hold."""

    def forward(self, images):
        return [images[:, :1] if images.mean() > 0 else images[:, 1:2]]


def test_a_network_that_cannot_be_exported(tmp_path, monkeypatch):
    skip_before_2_9()
    entry = registry.ModelEntry("branching", Branching, "")
    monkeypatch.setitem(registry._ENTRIES, "branching", entry)
    save_model(tmp_path / "model.safetensors", Branching(), WeightsInfo(ModelConfig("branching")))
    with pytest.raises(ConfigError, match="branching cannot be exported as torch: ") as caught:
        export.export_model(tmp_path, tmp_path / "a.pt2", format="torch")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.pt2").exists()


def test_the_programs_own_loader_takes_a_buffer(torch_file):
    """What the check relies on: it runs before anything is written."""
    program = torch.export.load(io.BytesIO(torch_file.read_bytes()))
    assert program.module()(torch.rand(1, 3, 40, 50)).shape == (1, 1, 40, 50)
