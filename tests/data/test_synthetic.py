import time

import numpy as np
import pytest
from scipy import ndimage

import knifeedge as ke
from knifeedge.data.synthetic import Difficulty, SyntheticSet, synthetic_scene
from knifeedge.errors import ConfigError


@pytest.mark.parametrize("size", [16, 64, (40, 90), (333, 60)])
def test_any_size(size):
    image, label = synthetic_scene(0, 1, size)
    shape = (size, size) if isinstance(size, int) else size
    assert image.shape == (*shape, 3)
    assert label.shape == shape
    assert image.dtype == label.dtype == np.uint8
    assert set(np.unique(label)) == {0, 255}
    assert image.flags.c_contiguous


def test_a_scene_is_a_function_of_seed_index_and_size():
    first = synthetic_scene(4, 9, 48)
    synthetic_scene(4, 8, 48)
    for one, again in zip(first, synthetic_scene(4, 9, 48), strict=True):
        np.testing.assert_array_equal(one, again)
    others = [
        synthetic_scene(5, 9, 48),
        synthetic_scene(4, 10, 48),
        synthetic_scene(4, 9, (48, 49)),
    ]
    for image, _ in others:
        assert image.shape != first[0].shape or not np.array_equal(image, first[0])


def test_scenes_vary_and_have_thin_edges():
    shares, brightness = [], []
    for index in range(30):
        image, label = synthetic_scene(0, index, 96)
        shares.append(np.mean(label > 0))
        brightness.append(image.mean())
    assert min(shares) > 0.01
    assert max(shares) < 0.15
    assert np.std(brightness) > 15


def sobel(image):
    grey = image.mean(axis=2) / 255
    return np.hypot(ndimage.sobel(grey, 0), ndimage.sobel(grey, 1)).astype(np.float32)


def test_a_gradient_filter_does_not_come_far_and_not_nowhere():
    scenes = list(SyntheticSet("test", count=80))
    maps = [sobel(scene.image) for scene in scenes]
    top = np.percentile(np.stack(maps), 99.8)
    scores = ke.evaluate(
        [np.clip(m / top, 0, 1) for m in maps],
        [scene.label > 0 for scene in scenes],
        protocol="one-pixel",
        jobs=1,
    )
    assert 0.4 < scores.ods < 0.65


def test_without_what_makes_it_hard_the_filter_finds_the_edges():
    easy = Difficulty(faint=0, textured=0, blur=(0.5, 0.6), noise=(0, 0.005))
    scenes = [synthetic_scene(0, index, 96, easy) for index in range(6)]
    scores = ke.evaluate(
        [np.clip(sobel(image) / 1.5, 0, 1) for image, _ in scenes],
        [label > 0 for _, label in scenes],
        protocol="bsds",
        jobs=1,
    )
    assert scores.ods > 0.8


def test_a_scene_takes_milliseconds():
    synthetic_scene(0, 0)
    spent = []
    for index in range(12):
        start = time.process_time()
        synthetic_scene(0, index)
        spent.append(time.process_time() - start)
    assert min(spent) < 0.02  # 8 to 9 ms; the margin is for a busy machine


def test_splits():
    options = {"count": 20, "size": 16, "seed": 3}
    lists = {
        s: SyntheticSet(s, **options).names for s in ("train", "pretrain", "validation", "test")
    }
    assert [len(names) for names in lists.values()] == [20, 15, 5, 5]
    assert lists["pretrain"] + lists["validation"] == lists["train"]
    assert not set(lists["train"]) & set(lists["test"])
    scenes = SyntheticSet("test", **options)
    assert scenes.size(0) == (16, 16)
    image, _ = synthetic_scene(3, scenes.indices[2], 16)
    np.testing.assert_array_equal(scenes[2].image, image)


def test_wrong_arguments():
    with pytest.raises(ConfigError, match="synthetic has no split 'val'; it has train, "):
        SyntheticSet("val")
    for wrong, name in (({"count": 0}, "count"), ({"size": 15}, "size")):
        with pytest.raises(ValueError, match=name):
            SyntheticSet(**wrong)
    with pytest.raises(ValueError, match="seed and index"):
        synthetic_scene(-1, 0)
