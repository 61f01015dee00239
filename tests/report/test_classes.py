"""The explorer's pictures are the benchmark's own decisions."""

import tracemalloc

import numpy as np
import pytest

from knifeedge.metrics import PROTOCOLS, THRESHOLDS, score_image
from knifeedge.metrics.pictures import match_classes
from knifeedge.report.classes import judge, pack_classes, unpack_classes


def scene(seed, shape=(37, 50)):
    rng = np.random.default_rng(seed)
    prob = np.round(rng.random(shape) ** 2 * 255).astype(np.float32) / np.float32(255)
    return prob, rng.random(shape) < 0.15


@pytest.mark.parametrize("protocol", ["one-pixel", "paper-strict", "bsds"])
def test_counts_are_those_of_the_scores(protocol):
    prob, truth = scene(1)
    packed, counts = judge(prob, truth, PROTOCOLS[protocol])
    classes = unpack_classes(packed, truth.shape)
    expected, _ = score_image(prob, [truth], protocol=protocol)
    np.testing.assert_array_equal(counts, expected)
    # and the picture itself holds them: hits, and hits with false alarms
    np.testing.assert_array_equal((classes == 1).sum(axis=(1, 2)), expected[:, 2])
    np.testing.assert_array_equal(np.isin(classes, (1, 2)).sum(axis=(1, 2)), expected[:, 3])


@pytest.mark.parametrize("protocol", ["one-pixel", "bsds"])
def test_pictures_are_the_match_pictures(protocol):
    prob, truth = scene(2)
    packed, _ = judge(prob, truth, PROTOCOLS[protocol])
    classes = unpack_classes(packed, truth.shape)
    for index in (0, 24, 61, 98):
        at = float(THRESHOLDS[index])
        expected = match_classes(prob, truth, threshold=at, protocol=protocol)
        np.testing.assert_array_equal(classes[index], expected)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 4), (7, 9)])
def test_packing_loses_nothing(shape):
    classes = np.random.default_rng(3).integers(0, 4, (99, *shape)).astype(np.uint8)
    np.testing.assert_array_equal(unpack_classes(pack_classes(classes), shape), classes)


def test_packing_is_small():
    prob, truth = scene(4, (96, 96))
    packed, _ = judge(prob, truth, PROTOCOLS["one-pixel"])
    assert len(packed) < 99 * truth.size / 5  # of noise, the worst there is


def test_all_thresholds_need_little_memory():
    prob, truth = scene(5, (200, 200))
    truth &= truth < 0  # matching has a memory of its own
    judge(prob, truth, PROTOCOLS["one-pixel"])
    tracemalloc.start()
    judge(prob, truth, PROTOCOLS["one-pixel"])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 60 * truth.size  # 25 bytes a pixel, and what they are compressed to
