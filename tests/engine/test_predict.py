"""Prediction: tiles agree with the whole image, for any size, in bounded memory and time."""

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import knifeedge as ke
from forking import fork
from knifeedge.data.synthetic import SyntheticSet, synthetic_scene
from knifeedge.engine.predict import predict, predict_many, predict_set
from knifeedge.engine.tiles import tile_spans
from knifeedge.errors import ConfigError, DataError

# How far tiny looks: from a pixel to the farthest one it depends on; see the test.
REACH = 90


@pytest.fixture(scope="module")
def tiny() -> nn.Module:
    """With batch norms that do something, as after a training."""
    torch.manual_seed(0)
    model = ke.create_model("tiny")
    with torch.no_grad():
        for name, value in model.named_buffers():
            if name.endswith("running_mean"):
                value.normal_(0, 0.1)
            elif name.endswith("running_var"):
                value.uniform_(0.5, 2)
    return model.eval()


def test_tiled_and_whole_agree_away_from_the_borders_of_tiles(tiny):
    image, _ = synthetic_scene(0, 1, (640, 900))
    tiled, whole = predict(tiny, image), predict(tiny, image, whole=True)
    assert np.ptp(whole) > 0.2
    away = np.ones(whole.shape, bool)
    for axis, length in enumerate(whole.shape):
        for span in tile_spans(length):
            for border in {span.start, span.stop} - {0, length}:
                near = slice(max(0, border - REACH), border + REACH)
                away[(near, slice(None)) if axis == 0 else (slice(None), near)] = False
    assert away.mean() > 0.1
    assert np.abs(tiled - whole)[away].max() < 1e-4
    assert np.abs(tiled - whole)[~away].max() > 1e-4  # the borders do matter


@pytest.mark.parametrize("size", [(1, 1), (5, 700), (321, 320), (37, 41), (320, 320), (500, 20)])
def test_any_size(tiny, size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
    prob = predict(tiny, image)
    assert prob.shape == size
    assert prob.dtype == np.float32
    assert 0 <= prob.min() <= prob.max() <= 1


class Saturated(nn.Conv2d):
    """Sure of everything."""

    def forward(self, images):
        return [super().forward(images) * 0 + self.bias]


@pytest.mark.parametrize(("bias", "expected"), [(50.0, 1), (-200.0, 0)])
def test_probabilities_are_in_range_where_tiles_overlap(bias, expected):
    model = Saturated(3, 1, 1)
    nn.init.constant_(model.bias, bias)
    for tile, overlap in ((320, 32), (96, 20), (64, 31)):
        prob = predict(model, np.zeros((700, 663), np.uint8), tile=tile, overlap=overlap)
        assert 0 <= prob.min() <= prob.max() <= 1
        assert np.abs(prob - expected).max() < 1e-5


def test_grey_arrays_and_files(tiny, tmp_path):
    grey = np.random.default_rng(0).integers(0, 256, (40, 50), np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    expected = predict(tiny, np.stack([grey] * 3, axis=2))
    assert np.array_equal(predict(tiny, grey), expected)
    assert np.array_equal(predict(tiny, tmp_path / "grey.png"), expected)


def test_many_images_are_each_as_alone(tiny, tmp_path):
    sizes = [(40, 50), (333, 40), (40, 50), (16, 16), (333, 40), (40, 50)]
    images = [synthetic_scene(0, number, size)[0] for number, size in enumerate(sizes)]
    Image.fromarray(images[2]).save(tmp_path / "2.png")
    given = [*images[:2], tmp_path / "2.png", *images[3:]]
    for batch_size in (1, 2, 8):
        maps = list(predict_many(tiny, iter(given), batch_size=batch_size))
        assert len(maps) == len(images)
        for prob, image in zip(maps, images, strict=True):
            np.testing.assert_allclose(prob, predict(tiny, image), atol=1e-5)


def test_an_image_of_a_set_is_predicted_alone(tiny, monkeypatch):
    """Its map is a matter of its own: bit by bit, and with no other image in its batch."""
    seen, forward = [], tiny.forward
    monkeypatch.setattr(tiny, "forward", lambda x: seen.append(len(x)) or forward(x))
    scenes = SyntheticSet("all", count=3, size=48)
    maps = dict(predict_set(tiny, scenes))
    assert seen == [1, 1, 1]
    for scene in scenes:
        assert np.array_equal(maps[scene.name], predict(tiny, scene.image))


def test_arrays_that_may_not_be_written_to(tiny):
    """As np.asarray of a Pillow image is; torch would warn."""
    image = np.zeros((8, 8, 3), np.uint8)
    image.setflags(write=False)
    assert predict(tiny, image).shape == (8, 8)


def test_bfloat16(tiny):
    image, _ = synthetic_scene(0, 1, (64, 70))
    exact, half = predict(tiny, image), predict(tiny, image, precision="bf16-mixed")
    assert half.dtype == np.float32
    assert len(np.unique(half)) > 1000  # the probabilities have more bits than the network
    assert 0 < np.abs(half - exact).max() < 0.02
    with pytest.raises(ConfigError, match="precision must be one of 32-true, bf16-mixed, got '16'"):
        predict(tiny, image, precision="16")
    with pytest.raises(ConfigError, match="precision must be one of"):
        predict_many(tiny, [image], precision="16")  # at once, not when the first map is taken


@pytest.mark.parametrize("one", ["a.png", Path("a.png"), np.zeros((40, 40, 3), np.uint8)])
def test_a_single_image_is_not_many(tiny, one):
    with pytest.raises(DataError, match=r"images must be several, .*; predict\(\) takes a single"):
        predict_many(tiny, one)
    assert len(list(predict_many(tiny, np.zeros((2, 32, 32, 3), np.uint8)))) == 2


def test_what_load_model_gives_is_no_network_yet():
    with pytest.raises(ConfigError, match=r"torch.nn.Module, got tuple; .* take the first"):
        ke.predict(ke.load_model(), np.zeros((40, 40, 3), np.uint8))


def test_32_true_leaves_an_autocast_around_it_in_force(tiny):
    """So a validation has the precision of its training."""
    image, _ = synthetic_scene(0, 1, (64, 70))
    with torch.autocast("cpu", torch.bfloat16):
        prob = predict(tiny, image)
    assert np.array_equal(prob, predict(tiny, image, precision="bf16-mixed"))


def test_the_mode_of_the_model_is_left_as_it_was(tiny):
    image = np.zeros((40, 40, 3), np.uint8)
    model = ke.create_model("tiny").train()
    running = model.stages[0][0].norm.running_mean.clone()
    predict(model, image)
    assert model.training
    assert torch.equal(model.stages[0][0].norm.running_mean, running)


def test_bad_images_and_bad_weights(tiny):
    with pytest.raises(DataError, match="must be uint8"):
        predict(tiny, np.zeros((8, 8, 3)))
    with pytest.raises(DataError, match=r"must be \(H, W, 3\)"):
        predict(tiny, np.zeros((8, 8, 4), np.uint8))
    with pytest.raises(DataError, match="cannot be read"):
        predict(tiny, "nowhere.png")
    with pytest.raises(ValueError, match="overlap must be"):
        predict(tiny, np.zeros((8, 8, 3), np.uint8), tile=32, overlap=32)
    broken = ke.create_model("tiny")
    nn.init.constant_(broken.sides[0].bias, float("nan"))
    with pytest.raises(DataError, match="weights are broken"):
        predict(broken, np.zeros((8, 8, 3), np.uint8))


def test_too_little_memory_is_an_error_with_a_remedy(tiny, monkeypatch):
    def full(*_):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate ...")

    monkeypatch.setattr(tiny, "forward", full)
    with pytest.raises(ConfigError, match="leave out whole"):
        predict(tiny, np.zeros((8, 8, 3), np.uint8), whole=True)
    with pytest.raises(ConfigError, match="lower batch_size"):
        predict(tiny, np.zeros((8, 8, 3), np.uint8))


class OneLayer(nn.Module):
    """As cheap as a network can be."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 1, 3, padding=1)

    def forward(self, images):
        return [self.layer(images)]


def test_memory_is_bounded_for_a_large_picture():
    """8000 x 6000: the picture, its map, and little more, in a child whose peak is measured."""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes on Linux
    if sys.platform != "linux":
        pytest.skip("the peak of memory is read from /proc")

    def work() -> None:
        torch.set_num_threads(1)
        image = np.zeros((6000, 8000, 3), np.uint8)
        image[:] = 7
        model = OneLayer()
        predict(model, image[:1000, :1000])
        _reset_peak()
        before = _peak()
        prob = predict(model, image)
        map_bytes = prob.nbytes
        grown = _peak() - before
        if grown > 2.5 * map_bytes:
            raise MemoryError(f"{grown / 1e6:.0f} MB for a map of {map_bytes / 1e6:.0f} MB")

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == 0


def test_time_grows_with_the_area_and_no_faster():
    """Seconds a megapixel at 4 and at 16 times the area, the best of three against noise."""
    model = OneLayer()

    def seconds_per_megapixel(side: int) -> float:
        image = np.zeros((side, side, 3), np.uint8)
        times = []
        for _ in range(3):
            start = time.process_time()
            predict(model, image)
            times.append(time.process_time() - start)
        return min(times) / (side * side / 1e6)

    small = seconds_per_megapixel(928)  # 3 x 3 tiles without a remainder
    for side in (1840, 3664):
        assert seconds_per_megapixel(side) < 1.7 * small


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak() -> int:
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
