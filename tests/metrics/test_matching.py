"""Matching against scipy: how many pixels, which, and what their distances sum up to."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import naive
from knifeedge.metrics.matching import add_matches, match, tolerance_squared
from knifeedge.metrics.maximum import matching_sizes
from knifeedge.metrics.nearest import pair_costs
from knifeedge.metrics.thinning import pack, unpack
from knifeedge.metrics.tiles import survey

SIDES = st.one_of(st.integers(1, 24), st.sampled_from([1, 63, 64, 65, 127, 128, 129]))
# From none, over those within one to many tiles of 8 x 8 pixels, to more than the image.
RADII_SQUARED = st.sampled_from([0.0, 0.9, 1.0, 2.0, 3.01, 8.0, 18.8, 64.0, 90.0, 300.0, 40000.0])


@st.composite
def scenes(draw):
    """Some maps of one shape, more or less alike, and a ground truth."""
    height, width = draw(SIDES), draw(SIDES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shares = draw(st.lists(st.sampled_from([0, 0.02, 0.1, 0.3, 0.6, 1]), min_size=2, max_size=2))
    scale = min(1.0, 400 / (height * width))  # scipy is slow with many pairs
    truth = rng.random((height, width)) < shares[0] * scale
    maps = [rng.random((height, width)) < shares[1] * scale]
    for _ in range(draw(st.integers(0, 4))):
        maps.append(maps[-1] ^ (rng.random((height, width)) < draw(st.floats(0, 0.3)) * scale))
    return np.stack(maps), truth, draw(RADII_SQUARED)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(scenes())
def test_sizes_equal_scipy(scene) -> None:
    maps, truth, radius_squared = scene
    sizes = matching_sizes(
        np.stack([pack(one) for one in maps]), *survey(pack(truth), radius_squared)
    )
    expected = [naive.match(one, truth, radius_squared).sum() for one in maps]
    assert sizes.tolist() == expected


@settings(max_examples=200, deadline=None, derandomize=True)
@given(scenes())
def test_nearest_pixels_equal_scipy(scene) -> None:
    """The same pixels map for map, so the maps before have no influence either."""
    maps, truth, radius_squared = scene
    packed = np.stack([pack(one) for one in maps])
    hits, truth_hits = np.zeros_like(packed), np.zeros_like(packed[0])
    sizes = add_matches(packed, pack(truth), radius_squared, hits, truth_hits)
    for one, bits, size in zip(maps, hits, sizes, strict=True):
        expected, _ = naive.match_nearest(one, truth, radius_squared)
        np.testing.assert_array_equal(unpack(bits, one.shape[1]), expected)
        assert size == expected.sum()
    _check_nearest(maps[-1], truth, radius_squared, expected, unpack(truth_hits, truth.shape[1]))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(scenes())
def test_matched_sets_are_a_nearest_maximum_matching(scene) -> None:
    maps, truth, radius_squared = scene
    pred_hit, truth_hit = match(maps[-1], truth, radius_squared=radius_squared)
    _check_nearest(maps[-1], truth, radius_squared, pred_hit, truth_hit)


def _check_nearest(pred, truth, radius_squared, pred_hit, truth_hit) -> None:
    assert not (pred_hit & ~pred).any()
    assert not (truth_hit & ~truth).any()
    # Only these pixels among themselves: all of them find a partner, at the same total distance.
    alone, distance = naive.match_nearest(pred_hit, truth_hit, radius_squared)
    assert alone.sum() == pred_hit.sum() == truth_hit.sum()
    assert pred_hit.sum() == naive.match(pred, truth, radius_squared).sum()
    _, least = naive.match_nearest(pred, truth, radius_squared)
    assert distance == pytest.approx(least, abs=1e-4)


def test_nearest_of_equals_is_the_first_in_reading_order() -> None:
    pred, truth = np.zeros((2, 3, 3), dtype=bool)
    pred[[0, 1, 1, 2], [1, 0, 2, 1]] = True  # all one pixel away
    truth[1, 1] = True
    hit, _ = match(pred, truth, radius_squared=1.0)
    assert np.argwhere(hit).tolist() == [[0, 1]]


def test_more_pairs_go_before_nearer_pairs() -> None:
    pred = np.array([[1, 0, 1, 0, 0]], dtype=bool)
    truth = np.array([[0, 0, 1, 0, 1]], dtype=bool)
    hit, truth_hit = match(pred, truth, radius_squared=4.0)
    assert hit.sum() == truth_hit.sum() == 2


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (8, 8), (64, 64)])
def test_full_and_empty(shape) -> None:
    full, empty = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for pred, truth in [(full, full), (full, empty), (empty, full), (empty, empty)]:
        hit, truth_hit = match(pred, truth, radius_squared=2.0)
        np.testing.assert_array_equal(hit, pred & truth)
        np.testing.assert_array_equal(truth_hit, pred & truth)


def test_two_runs_are_the_same() -> None:
    rng = np.random.default_rng(0)
    pred, truth = rng.random((2, 100, 100)) < 0.2
    first = match(pred, truth, radius_squared=20.0)
    again = match(pred, truth, radius_squared=20.0)
    np.testing.assert_array_equal(first, again)


def test_pair_costs_keep_equal_sums_equal() -> None:
    costs = pair_costs(100.0, 10_000, 1000)
    assert costs[8] == 2 * costs[2]
    assert costs[50] == 5 * costs[2]
    assert costs[98] == 7 * costs[2]
    assert (np.diff(costs) > 10_000).all()
    np.testing.assert_allclose(costs / costs[1], np.sqrt(np.arange(101)), atol=1e-5)


def test_pair_costs_leave_room_in_images_of_a_hundred_megapixels() -> None:
    """All pairs of a matching together cost less than one pixel left unmatched."""
    edges = 4_000_000
    assert int(pair_costs(90.0**2, 10**8, edges)[-1]) * edges < 2**60


def test_tolerance() -> None:
    assert tolerance_squared((321, 481), 0.0075) == pytest.approx(18.8, abs=0.02)
    assert tolerance_squared((321, 481), 2, "pixel") == 4.0
    assert tolerance_squared((30, 40), 0.02) == 1.0


@pytest.mark.parametrize(
    ("max_dist", "unit", "message"),
    [
        (-1, "pixel", "max_dist must be a finite number >= 0, got -1"),
        (float("nan"), "pixel", "finite"),
        (0.01, "pixels", 'unit must be "diagonal" or "pixel"'),
        (1.0, "diagonal", '1.0 of the diagonal, 1000; for pixels give unit="pixel"'),
        (600, "pixel", "at most 512 pixels, got 600 pixels$"),
    ],
)
def test_tolerance_refuses(max_dist, unit, message) -> None:
    with pytest.raises(ValueError, match=message):
        tolerance_squared((600, 800), max_dist, unit)


def test_match_refuses() -> None:
    mask = np.ones((4, 4), dtype=bool)
    with pytest.raises(ValueError, match="of one shape"):
        match(mask, mask[:3], radius_squared=1.0)
    with pytest.raises(ValueError, match="bool"):
        match(mask.astype(float), mask, radius_squared=1.0)
    with pytest.raises(ValueError, match="radius_squared"):
        match(mask, mask, radius_squared=-1.0)
