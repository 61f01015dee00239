"""The explorer's pictures are the benchmark's own decisions."""

import numpy as np
import pytest

from knifeedge.metrics import PROTOCOLS, THRESHOLDS, score_image
from knifeedge.metrics.pictures import BACKGROUND, FALSE_ALARM, HIT, MISS, match_picture
from knifeedge.report.classes import pack_classes, pixel_classes, unpack_classes

COLOURS = np.array([BACKGROUND, HIT, FALSE_ALARM, MISS], dtype=np.uint8)


def scene(seed, shape=(37, 50)):
    rng = np.random.default_rng(seed)
    prob = np.round(rng.random(shape) ** 2 * 255).astype(np.float32) / np.float32(255)
    return prob, rng.random(shape) < 0.15


@pytest.mark.parametrize("protocol", ["one-pixel", "paper-strict", "bsds"])
def test_counts_are_those_of_the_scores(protocol):
    prob, truth = scene(1)
    classes, counts = pixel_classes(prob, truth, PROTOCOLS[protocol])
    expected, _ = score_image(prob, [truth], protocol=protocol)
    np.testing.assert_array_equal(counts, expected)
    # and the picture itself holds them: hits, and hits with false alarms
    np.testing.assert_array_equal((classes == 1).sum(axis=(1, 2)), expected[:, 2])
    np.testing.assert_array_equal(np.isin(classes, (1, 2)).sum(axis=(1, 2)), expected[:, 3])


@pytest.mark.parametrize("protocol", ["one-pixel", "bsds"])
def test_pictures_are_the_match_pictures(protocol):
    prob, truth = scene(2)
    classes, _ = pixel_classes(prob, truth, PROTOCOLS[protocol])
    for index in (0, 24, 61, 98):
        at = float(THRESHOLDS[index])
        expected = match_picture(prob, truth, threshold=at, protocol=protocol)
        np.testing.assert_array_equal(COLOURS[classes[index]], expected)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 4), (7, 9)])
def test_packing_loses_nothing(shape):
    classes = np.random.default_rng(3).integers(0, 4, (99, *shape)).astype(np.uint8)
    np.testing.assert_array_equal(unpack_classes(pack_classes(classes), shape), classes)


def test_packing_is_small():
    prob, truth = scene(4, (96, 96))
    classes, _ = pixel_classes(prob, truth, PROTOCOLS["one-pixel"])
    assert len(pack_classes(classes)) < classes.size / 5  # of noise, the worst there is
