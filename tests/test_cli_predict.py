"""`knifeedge predict`: its options, and its one-line answers to what cannot be done."""

import inspect
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from command_line import TINY, Result, call, deny_writing, done, refused
from knifeedge import cli
from knifeedge.engine import (
    load_model,
    predict,
    predict as predict_image,
    shipped as shipped_module,
)
from knifeedge.engine.checkpoint import read_info, store_threshold
from knifeedge.engine.files import predict_files
from knifeedge.models import create_model


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    done("train", *TINY, "--out", folder)
    return folder


def pixels(seed: int, size: tuple[int, int] = (40, 50)) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), np.uint8)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate("abc"):
        Image.fromarray(pixels(number)).save(folder / f"{name}.png")
    return folder


def read(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture)


# --- results --------------------------------------------------------------------------------------


def test_probabilities_of_a_folder(weights, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    result = done("predict", photos, "--weights", weights, "--out", out)
    assert result == Result(0, f"{out}: 3 maps, probabilities\n", "")
    network, _ = load_model(weights)
    for number, name in enumerate("abc"):
        expected = np.rint(predict(network, pixels(number)) * 255)
        np.testing.assert_allclose(read(out / f"{name}.png"), expected, atol=1)  # in one batch


def test_every_option_reaches_the_maps(weights, photos: Path, tmp_path: Path) -> None:
    network, _ = load_model(weights)

    def first(*options: object) -> np.ndarray:
        out = tmp_path / "-".join(map(str, options)).replace("/", "")
        arguments = (photos / "a.png", "--weights", weights, "--out", out, "--format", "npy")
        done("predict", *arguments, *options)
        return np.load(out / "a.npy")

    tiled = first("--tile", 32, "--overlap", 16, "--batch-size", 3)
    expected = predict(network, pixels(0), tile=32, overlap=16, batch_size=3)
    np.testing.assert_array_equal(tiled, expected)
    whole = first("--whole", "--tile", 32)
    np.testing.assert_array_equal(whole, predict(network, pixels(0), whole=True))
    assert not np.array_equal(tiled, whole)
    np.testing.assert_array_equal(first("--accelerator", "cpu"), predict(network, pixels(0)))
    half = first("--precision", "bf16-mixed")
    np.testing.assert_array_equal(half, predict(network, pixels(0), precision="bf16-mixed"))
    assert not np.array_equal(half, predict(network, pixels(0)))
    binary = first("--binary", "--threshold", 0.5)
    np.testing.assert_array_equal(binary, predict(network, pixels(0)) >= 0.5)


def test_16_bits_overlay_and_skipping(weights, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    arguments = ("predict", str(photos / "[ab].png"), "--weights", weights, "--out", out)
    done(*arguments, "--format", "png16", "--overlay")
    files = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert sorted(files) == ["a.overlay.png", "a.png", "b.overlay.png", "b.png"]
    assert read(out / "a.png").dtype == np.uint16
    assert read(out / "a.overlay.png").shape == (40, 50, 3)
    (out / "b.png").unlink()
    assert "2 maps" in done(*arguments, "--skip-existing").out
    assert (out / "a.png").stat().st_mtime_ns == files["a.png"]
    assert read(out / "b.png").dtype == np.uint8


def test_pictures_of_a_dot_with_alpha_and_turned(weights, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    Image.fromarray(pixels(0)).save(tmp_path / "turned.png", exif=exif)
    Image.fromarray(pixels(0, (1, 1))).save(tmp_path / "dot.png")
    Image.fromarray(pixels(0)).convert("LA").save(tmp_path / "grey.png")
    done("predict", tmp_path, "--weights", weights, "--out", tmp_path / "maps")
    shapes = {path.stem: read(path).shape for path in (tmp_path / "maps").iterdir()}
    assert shapes == {"turned": (50, 40), "dot": (1, 1), "grey": (40, 50)}


def test_the_stored_threshold_and_another(weights, photos: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.safetensors"
    path.write_bytes((weights / "model.safetensors").read_bytes())
    store_threshold(path, 0.47, {})
    arguments = ("predict", photos, "--weights", path, "--binary", "--out", tmp_path / "maps")
    assert "yes and no at 0.47" in done(*arguments).out
    assert "yes and no at 0.6" in done(*arguments, "--threshold", 0.6).out
    assert set(np.unique(read(tmp_path / "maps" / "a.png"))) <= {0, 255}


def test_a_plain_state_dict(weights, photos: Path, tmp_path: Path) -> None:
    torch.save(load_file(weights / "model.safetensors"), tmp_path / "plain.pth")
    arguments = ("predict", photos, "--out", tmp_path / "maps", "--weights", tmp_path / "plain.pth")
    assert "does not say which network it is of; name it" in refused(*arguments)
    done(*arguments, "--model", "tiny")
    network, _ = load_model(weights)
    expected = np.rint(predict(network, pixels(0)) * 255)
    np.testing.assert_array_equal(read(tmp_path / "maps" / "a.png"), expected)


def test_defaults_are_those_of_the_functions(monkeypatch) -> None:
    command = inspect.signature(cli.predict).parameters
    functions = (inspect.signature(f).parameters for f in (predict_files, predict_image))
    for function in functions:
        for name in set(function) & set(command) - {"out", "model"}:
            assert command[name].default == function[name].default, name
    monkeypatch.setenv("COLUMNS", "200")
    assert "Example: knifeedge predict photo.jpg" in done("predict", "--help").out


# --- what cannot be done --------------------------------------------------------------------------


def test_no_threshold(weights, photos: Path) -> None:
    assert read_info(weights).threshold is None
    message = refused("predict", photos, "--weights", weights, "--binary")
    assert "has no threshold; give --threshold" in message
    assert f"knifeedge calibrate {weights}" in message
    message = refused("predict", photos, "--weights", weights, "--threshold", 0.5)
    assert "--threshold is for --binary" in message
    options = ("--binary", "--threshold", 1.5)
    assert "in (0, 1], got 1.5" in refused("predict", photos, "--weights", weights, *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "jpg"), "format must be one of png, png16, npy, got 'jpg'"),
        (("--overlap", 320), "overlap must be from 0 to half of the tile's 320, got 320"),
        (("--accelerator", "tpu"), "accelerator must be auto, cpu or cuda, got 'tpu'"),
        (("--model", "hed"), "holds weights of tiny, not of hed"),
        (("--precision", "half"), "precision must be one of 32-true, bf16-mixed, got 'half'"),
    ],
)
def test_wrong_values(weights, photos: Path, tmp_path: Path, options, message) -> None:
    out = tmp_path / "maps"
    assert message in refused("predict", photos, "--weights", weights, "--out", out, *options)
    assert not out.exists()


def test_no_weights(weights, photos: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(shipped_module, "SHIPPED", "none.safetensors")
    assert "give a run's folder or a file with --weights" in refused("predict", photos)
    message = refused("predict", photos, "--weights", tmp_path / "nowhere")
    assert "there is no weights file" in message
    assert call("predict", "--weights", weights).code == 2


def test_a_run_that_is_not_finished(photos: Path, weights, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "last.ckpt").write_bytes((weights / "model.safetensors").read_bytes())
    message = refused("predict", photos, "--weights", tmp_path / "run")
    assert f"is not finished; continue it with `knifeedge train --resume {tmp_path / 'run'}`" in (
        message
    )


def test_weights_that_are_damaged_or_of_another_version(weights, photos, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    whole = (weights / "model.safetensors").read_bytes()
    path.write_bytes(whole[:-1000])
    assert "is damaged" in refused("predict", photos, "--weights", path)
    save_file(create_model("tiny").state_dict(), path, {"knifeedge": json.dumps({"format": "7"})})
    assert "has format 7" in refused("predict", photos, "--weights", path)
    about = {"format": "1", "kind": "weights", "info": {"model": {"name": "hed"}}}
    save_file(create_model("tiny").state_dict(), path, {"knifeedge": json.dumps(about)})
    assert "does not fit HED" in refused("predict", photos, "--weights", path)


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.mkdir, (self.path,)


def test_a_malicious_pickle_does_not_explode(photos: Path, tmp_path: Path) -> None:
    target, path = tmp_path / "exploded", tmp_path / "a.pth"
    torch.save({"weight": Bomb(target)}, path)
    message = refused("predict", photos, "--weights", path, "--model", "tiny")
    assert "a.pth cannot be read as weights only" in message
    path.rename(tmp_path / "a.safetensors")
    refused("predict", photos, "--weights", tmp_path / "a.safetensors")
    refused("predict", photos, "--weights", tmp_path / "a.safetensors", "--model", "tiny")
    assert not target.exists()
    pickle.loads(pickle.dumps(Bomb(target)))  # the bomb is a real one
    assert target.exists()


def test_one_bad_picture_among_good_ones(weights, photos: Path, tmp_path: Path) -> None:
    (photos / "b.png").write_bytes((photos / "b.png").read_bytes()[:200])
    out = tmp_path / "maps"
    message = refused("predict", photos, "--weights", weights, "--out", out)
    assert "1 of 3 pictures were left out" in message
    assert "b.png is damaged" in message
    assert sorted(path.name for path in out.iterdir()) == ["a.png", "c.png"]


def test_names_that_clash(weights, photos: Path, tmp_path: Path) -> None:
    message = refused("predict", photos, "--weights", weights, "--out", photos)
    assert "a.png would be written over a picture; name another --out" in message
    Image.fromarray(pixels(0)).save(photos / "a.jpg")
    message = refused("predict", photos, "--weights", weights, "--out", tmp_path / "maps")
    assert "a.jpg and" in message
    assert "would both be written to" in message
    assert "(--out)" in message


def test_places(weights, photos: Path, tmp_path: Path, monkeypatch) -> None:
    arguments = ("predict", photos, "--weights", weights, "--out")
    assert "is a file; name a folder" in refused(*arguments, photos / "a.png")
    assert "cannot be written" in refused(*arguments, photos / "a.png" / "maps")
    deny_writing(monkeypatch)
    assert "no folder that may be written to" in refused(*arguments, tmp_path / "maps")


def test_ctrl_c_leaves_whole_files(weights, photos: Path, tmp_path: Path, monkeypatch) -> None:
    from knifeedge.engine.stream import Stream

    run, count = Stream._run, []

    def interrupted(self: Stream, batch: list) -> None:
        count.extend(batch)
        if len(count) == 3:
            raise KeyboardInterrupt
        run(self, batch)

    monkeypatch.setattr(Stream, "_run", interrupted)
    out = tmp_path / "maps"
    arguments = ("predict", photos, "--weights", weights, "--out", out, "--batch-size", 1)
    assert call(*arguments) == Result(130, "", "knifeedge: interrupted\n")
    assert sorted(path.name for path in out.iterdir()) == ["a.png", "b.png"]
    assert all(read(path).shape == (40, 50) for path in out.iterdir())
    assert "3 maps" in done(*arguments, "--skip-existing").out
    assert len(count) == 4


# --- the package's own weights --------------------------------------------------------------------


@pytest.fixture
def shipped(weights, tmp_path: Path, monkeypatch) -> Path:
    """A package with a weights file in it, threshold included."""
    package = tmp_path / "package"
    package.mkdir()
    path = package / shipped_module.SHIPPED
    path.write_bytes((weights / "model.safetensors").read_bytes())
    store_threshold(path, 0.42, {})
    monkeypatch.setattr(shipped_module, "files", {"knifeedge.engine": package}.__getitem__)
    return path


def test_without_weights_those_of_the_package(shipped, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "maps"
    assert "3 maps, probabilities" in done("predict", photos, "--out", out).out
    network, _ = load_model(shipped)
    expected = np.rint(predict(network, pixels(0)) * 255)
    np.testing.assert_allclose(read(out / "a.png"), expected, atol=1)
    assert "yes and no at 0.42" in done("predict", photos, "--out", out, "--binary").out


def test_a_network_without_its_weights(shipped, photos: Path) -> None:
    message = refused("predict", photos, "--model", "hed")
    assert "--model is for the weights of hed; give these with --weights" in message
