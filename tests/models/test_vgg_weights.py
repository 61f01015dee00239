"""ImageNet weights for HED and BDCN from a local file with torchvision's names."""

import io
import pickle
import random
import re

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from knifeedge.errors import CheckpointError
from knifeedge.models import create_model
from knifeedge.models.weights import read_weights

# torchvision.models.vgg16().features, written down once more: channels, "M" for pooling.
VGG16 = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


def torchvision_state() -> dict[str, torch.Tensor]:
    layers, channels = [], 3
    for item in VGG16:
        if item == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, item, 3, padding=1), nn.ReLU()]
            channels = item
    state = {f"features.{k}": v for k, v in nn.Sequential(*layers).state_dict().items()}
    return state | {"classifier.0.weight": torch.zeros(2, 2)}


@pytest.fixture(scope="module")
def state():
    torch.manual_seed(5)
    return torchvision_state()


@pytest.fixture(scope="module")
def files(state, tmp_path_factory):
    folder = tmp_path_factory.mktemp("vgg")
    torch.save(state, folder / "vgg16.pth")
    save_file(state, folder / "vgg16.safetensors")
    return folder


@pytest.mark.parametrize("name", ["hed", "bdcn"])
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_the_trunk_is_torchvisions(name, ending, state, files):
    model = create_model(name, vgg16=files / f"vgg16.{ending}")
    convs = [m for m in model.trunk.modules() if isinstance(m, nn.Conv2d)]
    given = [v for k, v in state.items() if k.startswith("features")]
    own = [p for conv in convs for p in (conv.weight, conv.bias)]
    assert len(own) == 26
    assert all(torch.equal(a, b) for a, b in zip(own, given, strict=True))


def test_hed_with_them_computes_vgg16(state, files):
    """The last activation of the trunk is what torchvision's layers give at conv5_3."""
    x = images = torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(0))
    model = create_model("hed", vgg16=str(files / "vgg16.pth"))
    index = 0
    for item in VGG16[:-1]:
        if item == "M":
            x, index = nn.functional.max_pool2d(x, 2), index + 1
        else:
            weight, bias = state[f"features.{index}.weight"], state[f"features.{index}.bias"]
            x, index = nn.functional.conv2d(x, weight, bias, padding=1).relu(), index + 2
    for stage in model.trunk:
        images = stage(images)[-1]
    torch.testing.assert_close(images, x)


def test_misfits_are_named(state, tmp_path):
    wrong = dict(state)
    del wrong["features.0.weight"]
    wrong["features.28.bias"] = torch.zeros(7)
    torch.save(wrong, tmp_path / "wrong.pth")
    with pytest.raises(CheckpointError) as caught:
        create_model("hed", vgg16=tmp_path / "wrong.pth")
    assert "features.0.weight is missing" in str(caught.value)
    assert "features.28.bias is (7,), not (512,)" in str(caught.value)


class Evil:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.pth", None, "there is no weights file"),
        ("weights.npy", b"x", "must be a .safetensors, .pth or .pt file, got '.npy'"),
        ("noise.pth", b"\x00\x01nothing", "cannot be read as weights only"),
        ("empty.pth", b"", "cannot be read as weights only"),
        ("noise.safetensors", b"\x00\x01nothing", "cannot be read as safetensors"),
        ("evil.pth", pickle.dumps(Evil(), protocol=2), "cannot be read as weights only"),
    ],
)
def test_unreadable_files(name, content, message, tmp_path, capsys):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        create_model("bdcn", vgg16=tmp_path / name)
    assert "executed" not in capsys.readouterr().out


def test_files_that_torch_fails_on_in_its_own_ways(tmp_path):
    """Each message is one sentence of ours: no traceback, no escape codes, no advice of torch's."""
    whole = io.BytesIO()
    torch.save({"a": torch.zeros(3)}, whole, _use_new_zipfile_serialization=False)
    torch.save(nn.Linear(1, 1), tmp_path / "module.pth")
    rng, messages = random.Random(0), []
    contents = [(tmp_path / "module.pth").read_bytes()]
    for _ in range(300):
        content = bytearray(whole.getvalue())
        for _ in range(3):
            content[rng.randrange(len(content))] = rng.randrange(256)
        contents.append(bytes(content))
    for content in contents:
        (tmp_path / "a.pth").write_bytes(content)
        try:
            read_weights(tmp_path / "a.pth")
        except CheckpointError as error:
            messages.append(str(error))
    assert len(messages) > 50
    for message in messages:
        assert re.fullmatch(r"[\x20-\x7e]+", message)
        assert "torch.load" not in message


@pytest.mark.parametrize("content", [[1, 2], {"features.0.weight": "text"}, {"state_dict": {}}])
def test_something_else_in_the_file(content, tmp_path):
    torch.save(content, tmp_path / "other.pt")
    with pytest.raises(CheckpointError, match="must hold a state dict"):
        create_model("hed", vgg16=tmp_path / "other.pt")
