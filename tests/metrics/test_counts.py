"""Levels and match counts against their naive twins, and what they refuse."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import naive
from knifeedge.metrics.counts import THRESHOLDS, check_map, levels, match_counts
from knifeedge.metrics.matching import match, tolerance_squared
from knifeedge.metrics.thinning import thin

SIDES = st.one_of(st.integers(1, 20), st.sampled_from([1, 63, 64, 65, 127, 128, 129]))


@st.composite
def images(draw, truths=1):
    """A map with few different values, as scipy takes its time, and ground truths."""
    height, width = draw(SIDES), draw(SIDES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.integers(0, 256, draw(st.integers(1, 5))) / 255
    prob = rng.choice(np.append(values, 0.0), (height, width))
    scale = min(1.0, 600 / prob.size)
    prob[rng.random((height, width)) > scale * draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))] = 0
    share = scale * draw(st.sampled_from([0.0, 0.05, 0.2, 1.0]))
    marked = rng.random((truths, height, width)) < share
    return prob.astype(draw(st.sampled_from([np.float32, np.float64]))), list(marked)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    images(),
    st.booleans(),
    st.sampled_from([(0.0075, "diagonal"), (0.1, "diagonal"), (1.0, "pixel"), (4.3, "pixel")]),
)
def test_one_ground_truth_equals_scipy(image, thinned, tolerance) -> None:
    prob, truths = image
    radius_squared = tolerance_squared(prob.shape, *tolerance)
    counts = match_counts(prob, truths[0], max_dist=tolerance[0], unit=tolerance[1], thin=thinned)
    at = _where_the_map_changes(prob)
    expected = naive.match_counts(
        prob, truths, radius_squared, thinned=thinned, thresholds=THRESHOLDS[at]
    )
    np.testing.assert_array_equal(counts[at], expected)
    np.testing.assert_array_equal(counts, counts[at][_last_at_or_before(at)])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(images(truths=3), st.booleans(), st.sampled_from([1.0, 2.9, 9.0]))
def test_several_ground_truths_equal_scipy(image, thinned, max_dist) -> None:
    prob, truths = image
    counts = match_counts(prob, truths, max_dist=max_dist, unit="pixel", thin=thinned)
    for n in _where_the_map_changes(prob):
        pred = prob >= prob.dtype.type(THRESHOLDS[n])
        pred = naive.thin(pred) if thinned else pred
        hits = [naive.match_nearest(pred, truth, max_dist**2)[0] for truth in truths]
        expected = [np.sum(hits), np.sum(truths), np.any(hits, axis=0).sum(), pred.sum()]
        assert counts[n].tolist() == expected


def test_several_ground_truths_equal_match_at_each_threshold() -> None:
    """Carrying the matching from map to map changes nothing."""
    rng = np.random.default_rng(1)
    prob = rng.random((60, 80))
    truths = list(rng.random((3, 60, 80)) < 0.1)
    counts = match_counts(prob, truths, max_dist=3.0, unit="pixel")
    for n in range(0, 99, 7):
        pred = thin(prob >= THRESHOLDS[n])
        hits = [match(pred, truth, radius_squared=9.0)[0] for truth in truths]
        assert counts[n, 2] == np.any(hits, axis=0).sum()


def test_one_ground_truth_twice() -> None:
    rng = np.random.default_rng(2)
    prob, truth = rng.random((40, 70)), rng.random((40, 70)) < 0.1
    once, twice = match_counts(prob, truth), match_counts(prob, [truth, truth])
    np.testing.assert_array_equal(twice, once * [2, 2, 1, 1])


def test_two_runs_are_the_same() -> None:
    rng = np.random.default_rng(3)
    prob, truths = rng.random((90, 90)), rng.random((2, 90, 90)) < 0.1
    np.testing.assert_array_equal(match_counts(prob, truths), match_counts(prob, truths))


def test_an_image_against_itself() -> None:
    edges = thin(np.random.default_rng(4).random((50, 50)) < 0.3)
    counts = match_counts(edges, edges, max_dist=0.003)
    assert (counts == edges.sum()).all()


def test_thresholds() -> None:
    assert THRESHOLDS.tolist() == [k / 100 for k in range(1, 100)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_levels_of_eight_bit_maps(dtype) -> None:
    values = np.arange(256)
    prob = (values.astype(dtype) / dtype(255))[None]
    np.testing.assert_array_equal(levels(prob), naive.levels(prob))
    # 255 * k / 100 is a whole number for every fifth k only; in integers nothing is rounded.
    np.testing.assert_array_equal(levels(prob)[0], np.minimum(values * 100 // 255, 99))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 100), st.integers(-3, 3), st.sampled_from([np.float32, np.float64]))
def test_levels_next_to_a_threshold(k, steps, dtype) -> None:
    value = dtype(k / 100)
    for _ in range(abs(steps)):
        value = np.nextafter(value, dtype(np.sign(steps)))
    prob = np.array([[np.clip(value, 0, 1)]], dtype=dtype)
    np.testing.assert_array_equal(levels(prob), naive.levels(prob))


def test_takes_lists_stacks_and_views() -> None:
    rng = np.random.default_rng(5)
    prob, truths = rng.random((30, 40)), rng.random((2, 30, 40)) < 0.1
    expected = match_counts(prob, list(truths))
    np.testing.assert_array_equal(match_counts(prob, truths), expected)
    np.testing.assert_array_equal(match_counts(prob, truths.astype(np.uint8)), expected)
    np.testing.assert_array_equal(match_counts(np.asfortranarray(prob), truths), expected)
    prob.flags.writeable = False
    np.testing.assert_array_equal(match_counts(prob, truths), expected)
    padded = np.zeros((60, 80))
    padded[::2, ::2] = prob
    np.testing.assert_array_equal(match_counts(padded[::2, ::2], truths), expected)


def test_check_map() -> None:
    prob = np.array([[0.0, 1.0]])
    assert check_map(prob, "map") is prob
    assert check_map(prob > 0.5, "map").dtype == np.float32


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 2), dtype=np.uint8), "got uint8; divide by 255"),
        (np.zeros((2, 2), dtype=np.int64), "got int64; convert it to float32"),
        (np.zeros((2, 2), dtype=np.float16), "got float16; convert it to float32"),
        (np.zeros((2, 2, 3)), r"\(H, W\) with pixels, got shape \(2, 2, 3\)"),
        (np.zeros((0, 4)), "with pixels"),
        (np.array([[0.5, np.nan]]), "1 NaN or infinite"),
        (np.array([[0.5, np.inf]]), "1 NaN or infinite"),
        (np.array([[-0.5, 0.5]]), "values from -0.5 to 0.5"),
        (np.array([[0.5, 7.0]]), "values from 0.5 to 7; apply a sigmoid"),
    ],
)
def test_check_map_refuses(array, message) -> None:
    with pytest.raises(ValueError, match="prob must be .*" + message):
        match_counts(array, np.zeros(array.shape[:2], dtype=bool))


@pytest.mark.parametrize(
    ("truths", "message"),
    [
        ([], "at least one"),
        (np.zeros((3, 4), dtype=bool), r"ground_truths\[0\] must have the map's shape \(4, 4\)"),
        ([np.full((4, 4), 255, dtype=np.uint8)], "truth > 127"),
    ],
)
def test_refuses_ground_truths(truths, message) -> None:
    with pytest.raises(ValueError, match=message):
        match_counts(np.zeros((4, 4)), truths)


def test_says_once_that_it_compiles_and_keeps_what_it_compiled(tmp_path) -> None:
    program = (
        "import numpy as np; from knifeedge.metrics.thinning import thin; "
        "thin(np.ones((3, 3), bool)); thin(np.ones((3, 3), bool))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    said = [
        subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stderr
        for _ in range(2)
    ]
    assert said[0].count("compiling the evaluation kernels") == 1
    assert said[1] == ""


def _where_the_map_changes(prob):
    """Indices of thresholds: the first, and those after which other pixels remain."""
    reached = [np.count_nonzero(prob >= prob.dtype.type(t)) for t in THRESHOLDS]
    return np.flatnonzero(np.diff(reached, prepend=-1))


def _last_at_or_before(at):
    return np.searchsorted(at, np.arange(99), side="right") - 1
