"""Weights and checkpoints: what is written comes back, and nothing else is believed."""

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from knifeedge.config import DataConfig, ModelConfig, TrainConfig, to_mapping
from knifeedge.engine import checkpoint
from knifeedge.engine.checkpoint import (
    Progress,
    WeightsInfo,
    load_checkpoint,
    load_model,
    read_info,
    save_checkpoint,
    save_model,
    store_threshold,
)
from knifeedge.errors import CheckpointError, ConfigError
from knifeedge.models import create_model, register_model, registry

TINY = ModelConfig("tiny")
CONFIG = TrainConfig(DataConfig("synthetic"), TINY, epochs=3)


class Small(nn.Module):
    """One convolution, shared with itself if asked."""

    def __init__(self, kernel: int = 1, tied: bool = False, start: Path | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 1, kernel, padding=kernel // 2)
        if tied:
            self.again = self.conv
        self.start = start

    def forward(self, images):
        return [self.conv(images)]


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    register_model("small", Small)


def same(one: nn.Module, other: nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return first.keys() == second.keys() and all(
        torch.equal(value, second[name]) for name, value in first.items()
    )


def trained(model: ModelConfig = TINY) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A network and its optimiser after two steps."""
    torch.manual_seed(0)
    network = create_model(model.name, **model.options)
    optimiser = torch.optim.Adam(network.parameters())
    for _ in range(2):
        network(torch.randn(2, 3, 32, 32))[-1].square().mean().backward()
        optimiser.step()
        optimiser.zero_grad()
    return network, optimiser


def rewrite(path: Path, **changes: object) -> None:
    """Write a file again with other words about itself."""
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["knifeedge"]) | changes
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = {key: value for key, value in about.items() if value is not None}
    save_file(tensors, path, {"knifeedge": json.dumps(about)})


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_model(path, trained()[0], WeightsInfo(TINY))
    return path


# --- weights --------------------------------------------------------------------------------------


def test_weights_and_all_that_is_known_of_them(tmp_path: Path) -> None:
    network, _ = trained()
    info = WeightsInfo(TINY, 0.62, {"score": 0.7}, to_mapping(CONFIG), ("a", "b"))
    save_model(tmp_path / "model.safetensors", network, info)
    for path in (tmp_path, tmp_path / "model.safetensors", str(tmp_path)):
        loaded, found = load_model(path)
        assert same(loaded, network)
        assert not loaded.training
        assert found == info == read_info(path)
    assert load_model(tmp_path, model="tiny")[1] == info
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_options_of_a_network_are_kept_but_not_the_files_it_started_from(tmp_path) -> None:
    model = ModelConfig("small", {"kernel": 3, "start": str(tmp_path / "gone.pth")})
    save_model(tmp_path / "model.safetensors", trained(model)[0], WeightsInfo(model))
    loaded, info = load_model(tmp_path)
    assert loaded.conv.kernel_size == (3, 3)
    assert loaded.start is None
    assert info.model == model


def test_tied_weights_are_written_and_read(tmp_path: Path) -> None:
    model = ModelConfig("small", {"tied": True})
    network, optimiser = trained(model)
    save_model(tmp_path / "model.safetensors", network, WeightsInfo(model))
    assert same(load_model(tmp_path)[0], network)
    save_checkpoint(tmp_path / "last.ckpt", network, optimiser, CONFIG, Progress())
    fresh = create_model("small", tied=True)
    load_checkpoint(tmp_path / "last.ckpt", fresh, torch.optim.Adam(fresh.parameters()), CONFIG)
    assert same(fresh, network)
    assert fresh.again is fresh.conv


def test_a_threshold_is_stored_and_the_weights_stay(weights: Path) -> None:
    before, _ = load_model(weights)
    store_threshold(weights.parent, 0.43, {"score": np.float64(0.5).item(), "from": "validation"})
    store_threshold(weights, 0.44, {"from": "elsewhere"})
    after, info = load_model(weights)
    assert same(before, after)
    assert (info.threshold, info.calibration) == (0.44, {"from": "elsewhere"})


# --- wrong weights --------------------------------------------------------------------------------


def test_weights_of_another_network(weights: Path) -> None:
    with pytest.raises(CheckpointError, match="holds weights of tiny, not of hed"):
        load_model(weights, model="hed")
    rewrite(weights, info=to_mapping(WeightsInfo(ModelConfig("hed"))))
    with pytest.raises(CheckpointError, match=r"does not fit HED: .* and \d+ more; was it trained"):
        load_model(weights)
    rewrite(weights, info=to_mapping(WeightsInfo(ModelConfig("teeny"))))
    with pytest.raises(ConfigError, match=r"no model 'teeny' \(the closest is 'tiny'\)"):
        load_model(weights)


def test_weights_of_another_version(weights: Path) -> None:
    rewrite(weights, format="2", version="9.1")
    with pytest.raises(CheckpointError, match=r"format 2, written by knifeedge 9\.1; .* format 1"):
        load_model(weights)
    rewrite(weights, format=None, version=None)
    with pytest.raises(CheckpointError, match=r"format None, written by knifeedge \?"):
        read_info(weights)


@pytest.mark.parametrize(
    "info",
    [None, 3, {}, {"model": "tiny"}, {"model": {"name": "tiny"}, "threshold": "high"}, {"x": 1}],
)
def test_weights_that_describe_themselves_wrongly(weights: Path, info) -> None:
    rewrite(weights, info=info)
    with pytest.raises(CheckpointError, match=r"model\.safetensors describes its network wrongly"):
        load_model(weights)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.999])
def test_truncated_weights(weights: Path, share: float) -> None:
    whole = weights.read_bytes()
    weights.write_bytes(whole[: int(len(whole) * share)])
    for read in (load_model, read_info, lambda path: store_threshold(path, 0.5, {})):
        with pytest.raises(CheckpointError, match=r"is damaged or no safetensors file .*; copy it"):
            read(weights)
    assert weights.read_bytes() == whole[: int(len(whole) * share)]


@pytest.mark.parametrize("text", [None, "no JSON", "[]", '"text"'])
def test_safetensors_without_a_word_of_ours(tmp_path: Path, text) -> None:
    path = tmp_path / "a.safetensors"
    save_file(create_model("tiny").state_dict(), path, text and {"knifeedge": text})
    with pytest.raises(CheckpointError, match=r"is damaged|does not say which network it is of"):
        load_model(path)
    if text is None:
        assert load_model(path, model="tiny")[1] == WeightsInfo(TINY)


def test_places_without_weights(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.safetensors"):
        with pytest.raises(CheckpointError, match=r"there is no weights file .*; name a run's"):
            load_model(path)
    network, optimiser = trained()
    save_checkpoint(tmp_path / "last.ckpt", network, optimiser, CONFIG, Progress())
    with pytest.raises(CheckpointError, match=r"not finished; .*knifeedge train --resume"):
        load_model(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"checkpoint to resume from; name model\.safetensors"
    ):
        load_model(tmp_path / "last.ckpt")


# --- pickles --------------------------------------------------------------------------------------


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def bombs(path: Path, ending: str, target: Path) -> None:
    """Pickles by torch.save, as old and new files have them, and by pickle alone."""
    name = path / f"new{ending}"
    torch.save({"weight": torch.zeros(1), "bomb": Bomb(target)}, name)
    torch.save(Bomb(target), path / f"old{ending}", _use_new_zipfile_serialization=False)
    (path / f"plain{ending}").write_bytes(pickle.dumps(Bomb(target), protocol=2))


@pytest.mark.parametrize("ending", [".pth", ".pt", ".safetensors", ".ckpt", ""])
@pytest.mark.parametrize("model", ["tiny", None])
def test_nothing_is_unpickled(tmp_path: Path, ending: str, model) -> None:
    target = tmp_path / "exploded"
    bombs(tmp_path, ending, target)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(CheckpointError) as caught:
            load_model(path, model=model)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        network, optimiser = trained()
        with pytest.raises(CheckpointError, match="is damaged"):
            load_checkpoint(path, network, optimiser, CONFIG)
    assert not target.exists()
    pickle.loads((tmp_path / f"plain{ending}").read_bytes())  # the bomb is a real one
    assert target.exists()


def test_a_plain_state_dict_needs_the_name_of_its_network(tmp_path: Path) -> None:
    network, _ = trained()
    torch.save(network.state_dict(), tmp_path / "a.pth")
    loaded, info = load_model(tmp_path / "a.pth", model="tiny")
    assert same(loaded, network)
    assert info == WeightsInfo(TINY)
    with pytest.raises(CheckpointError, match=r"does not say which network .* \(--model hed\)"):
        load_model(tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="does not fit HED"):
        load_model(tmp_path / "a.pth", model="hed")


# --- checkpoints ----------------------------------------------------------------------------------


def test_a_training_comes_back_to_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    network, optimiser = trained()
    progress = Progress(7, 1.5, (0.1, 1 / 3))
    save_checkpoint(path, network, optimiser, CONFIG, progress)
    torch.manual_seed(1)
    fresh = create_model("tiny")
    again = torch.optim.Adam(fresh.parameters())
    assert load_checkpoint(path, fresh, again, CONFIG) == progress
    assert same(fresh, network)
    before, after = optimiser.state_dict()["state"], again.state_dict()["state"]
    assert before.keys() == after.keys() == set(range(len(list(network.parameters()))))
    for index, entries in before.items():
        assert entries.keys() == after[index].keys()
        for name, value in entries.items():
            assert torch.equal(value, after[index][name])


def test_a_checkpoint_before_the_first_step(tmp_path: Path) -> None:
    network = create_model("tiny")
    optimiser = torch.optim.Adam(network.parameters())
    save_checkpoint(tmp_path / "last.ckpt", network, optimiser, CONFIG, Progress())
    assert load_checkpoint(tmp_path / "last.ckpt", network, optimiser, CONFIG) == Progress()


def test_wrong_checkpoints(tmp_path: Path, weights: Path) -> None:
    path = tmp_path / "last.ckpt"
    network, optimiser = trained()
    save_checkpoint(path, network, optimiser, CONFIG, Progress(1, 1.0, (0.5,)))

    def refuse(message: str, config: TrainConfig = CONFIG) -> None:
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(path, network, optimiser, config)

    refuse("belongs to another training: its seed is 0, not 1", replace(CONFIG, seed=1))
    for part in ("config", "step", "seconds"):
        whole = path.read_bytes()
        rewrite(path, **{part: None})
        refuse("holds no checkpoint of a training")
        path.write_bytes(whole)
    rewrite(path, format="0")
    refuse("has format 0")
    path.write_bytes(path.read_bytes()[:-100])
    refuse("is damaged")
    path.write_bytes(weights.read_bytes())
    refuse("holds no checkpoint of a training")


def test_a_checkpoint_of_another_network(tmp_path: Path) -> None:
    network, optimiser = trained(ModelConfig("small"))
    save_checkpoint(tmp_path / "last.ckpt", network, optimiser, CONFIG, Progress())
    other = create_model("tiny")
    with pytest.raises(CheckpointError, match="does not fit Tiny"):
        load_checkpoint(tmp_path / "last.ckpt", other, torch.optim.Adam(other.parameters()), CONFIG)


@pytest.mark.parametrize(
    "changes",
    [{"config": None}, {"config": []}, {"config": {"x": 1}}, {"step": "1"}, {"seconds": [1]}],
)
def test_checkpoints_that_describe_themselves_wrongly(tmp_path: Path, changes) -> None:
    path = tmp_path / "last.ckpt"
    network, optimiser = trained()
    save_checkpoint(path, network, optimiser, CONFIG, Progress(1, 1.0, (0.5,)))
    rewrite(path, **changes)
    with pytest.raises(CheckpointError, match="holds no checkpoint of a training: "):
        load_checkpoint(path, network, optimiser, CONFIG)


def test_metadata_that_are_nested_deeply(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.zeros(1)}, path, {"knifeedge": "[" * 200_000})
    with pytest.raises(CheckpointError, match=r"is damaged or no safetensors file \(.*; copy it"):
        load_model(path)


def test_a_failed_write_leaves_the_file_before_it(weights: Path, monkeypatch) -> None:
    before = weights.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("knifeedge.disk.os.fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left on device$"):
        store_threshold(weights, 0.5, {})
    with pytest.raises(CheckpointError, match=r"No space left on device; .* intact: make room"):
        save_checkpoint(weights.parent / "last.ckpt", *trained(), CONFIG, Progress())
    assert weights.read_bytes() == before
    assert list(weights.parent.iterdir()) == [weights]


def test_the_first_difference_of_two_configurations() -> None:
    saved = to_mapping(CONFIG)
    assert checkpoint.difference(saved, CONFIG) == ""
    assert checkpoint.difference(saved | {"crop": 9}, CONFIG) == "its crop is 9, not 320"
    for wrong in (saved | {"more": 1}, {}, [], None):
        with pytest.raises(ConfigError):
            checkpoint.difference(wrong, CONFIG)
    # A setting that did not exist then had what is its default now.
    del saved["refresh"]
    assert checkpoint.difference(saved, CONFIG) == ""
    assert checkpoint.difference(saved, replace(CONFIG, refresh=5)) == "its refresh is 1, not 5"


def test_where_the_first_weights_lie_is_no_difference() -> None:
    def model(start: object) -> TrainConfig:
        return replace(CONFIG, model=ModelConfig("small", {"kernel": 3, "start": start}))

    saved = to_mapping(model("here/a.pth"))
    assert checkpoint.difference(saved, model(Path("/there/a.pth"))) == ""
    assert checkpoint.difference(saved, model("here/b.pth")).startswith("its model is {")
    assert checkpoint.difference(saved, replace(CONFIG, model=ModelConfig("small", {"kernel": 3})))


def test_the_optimisers_state_comes_back_in_the_layout_of_the_weights(tmp_path: Path) -> None:
    """A fused optimiser refuses, on CUDA, moments that lie in memory otherwise than the weights."""

    def setup() -> tuple[nn.Module, torch.optim.Adam]:
        torch.manual_seed(0)
        network = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        return network, torch.optim.Adam(network.parameters(), fused=True)

    network, optimiser = setup()
    network(torch.randn(1, 3, 8, 8)).sum().backward()
    optimiser.step()
    config = TrainConfig(DataConfig("synthetic"), ModelConfig("tiny"))
    save_checkpoint(tmp_path / "last.ckpt", network, optimiser, config, Progress(1))
    other, resumed = setup()
    load_checkpoint(tmp_path / "last.ckpt", other, resumed, config)
    for parameter, state in resumed.state.items():
        assert state["exp_avg"].stride() == parameter.stride()
    moments = zip(optimiser.state.values(), resumed.state.values(), strict=True)
    for before, after in moments:
        assert torch.equal(before["exp_avg_sq"], after["exp_avg_sq"])
        assert before["step"] == after["step"]
