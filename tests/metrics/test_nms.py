import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import ndimage

from knifeedge.metrics.nms import crispness, suppress


def naive_suppress(prob):
    """The description, step by step, with scipy; and where the decision hangs on rounding."""
    prob = np.asarray(prob, dtype=np.float64)
    weights = np.convolve(np.ones(5), np.ones(5)) / 25
    smooth = prob
    for axis in (0, 1):
        smooth = ndimage.correlate1d(smooth, weights, axis=axis, mode="reflect")
    d_y, d_x = slope(smooth, 0), slope(smooth, 1)
    d_xx, d_xy, d_yy = slope(d_x, 1), slope(d_y, 1), slope(d_y, 0)
    sign = np.where(d_xy > 0, -1.0, 1.0)
    angle = np.mod(np.arctan2(d_yy * sign, d_xx + 1e-5), np.pi)
    # A mixed derivative of nearly 0 has no sign to speak of.
    unsure = np.abs(d_xy) < 1e-12
    kept = np.ones(prob.shape, dtype=bool)
    rows, columns = np.indices(prob.shape)
    for step in (-1, 1):
        where = [rows + step * np.sin(angle), columns + step * np.cos(angle)]
        neighbour = ndimage.map_coordinates(prob, where, order=1, mode="nearest")
        kept &= 1.01 * prob >= neighbour
        unsure |= np.abs(1.01 * prob - neighbour) < 1e-9
    result = np.where(kept, prob, 0)
    width = min(5, prob.shape[0] // 2, prob.shape[1] // 2)
    for axis, side in enumerate(prob.shape):
        from_border = np.minimum(np.arange(side), np.arange(side)[::-1])
        share = np.minimum(from_border / max(width, 1), 1) if width else np.ones(side)
        result = result * np.expand_dims(share, 1 - axis)
    return result, unsure


def slope(array, axis):
    return np.gradient(array, axis=axis) if array.shape[axis] > 1 else np.zeros_like(array)


def ridge(angle_degrees, size=65, width=1.5, offset=0.0):
    """A straight soft ridge whose normal has the given angle, and the distance from its crest."""
    rows, columns = np.indices((size, size)) - (size - 1) / 2
    angle = np.deg2rad(angle_degrees)
    distance = columns * np.cos(angle) + rows * np.sin(angle) - offset
    return 0.9 * np.exp(-0.5 * (distance / width) ** 2), distance


@settings(max_examples=60, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=2, max_dims=2, max_side=24),
        elements=st.integers(0, 255).map(lambda v: v / 255),
    )
)
def test_equals_the_naive_twin(prob) -> None:
    expected, unsure = naive_suppress(prob)
    np.testing.assert_allclose(np.where(unsure, 0, suppress(prob)), np.where(unsure, 0, expected))


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (2, 30), (61, 47)])
def test_equals_the_naive_twin_on_smooth_maps(shape) -> None:
    noise = np.random.default_rng(0).random(shape)
    prob = ndimage.gaussian_filter(noise, 1.5)
    prob /= prob.max()
    expected, unsure = naive_suppress(prob)
    assert unsure.mean() < 0.01 or 1 in shape
    np.testing.assert_allclose(np.where(unsure, 0, suppress(prob)), np.where(unsure, 0, expected))


@pytest.mark.parametrize("angle", range(0, 180, 5))
@pytest.mark.parametrize("offset", [0.0, 0.3])
def test_a_ridge_survives_one_pixel_wide_on_its_crest(angle, offset) -> None:
    prob, distance = ridge(angle, offset=offset)
    inner = slice(10, -10)
    kept = (suppress(prob) > 1e-3)[inner, inner]
    assert np.abs(distance[inner, inner][kept]).max() <= 1.0
    # Each line across the ridge keeps one pixel, or two that are within the multiplier of 1.01.
    per_line = kept.sum(axis=0 if 45 <= angle <= 135 else 1)
    assert per_line.min() >= 1
    assert per_line.max() <= 2
    if angle in (0, 90):
        assert per_line.max() == 1


def test_an_exactly_horizontal_ridge_is_suppressed_like_a_vertical_one() -> None:
    vertical = np.tile(np.pad([0.2, 0.6, 0.9, 0.6, 0.2], 6), (17, 1))
    assert np.flatnonzero(suppress(vertical)[8]).tolist() == [8]
    np.testing.assert_array_equal(suppress(vertical.T.copy()), suppress(vertical).T)


def test_equal_neighbours_survive() -> None:
    flat = np.full((20, 20), 0.5)
    assert (suppress(flat)[5:-5, 5:-5] == 0.5).all()


def test_the_multiplier_spares_the_nearly_equal() -> None:
    profile = np.zeros(31)
    profile[15:17] = 0.500, 0.504
    kept = suppress(np.tile(profile, (31, 1)))
    assert (kept[10:20, 15:17] > 0).all()
    profile[16] = 0.506
    assert (suppress(np.tile(profile, (31, 1)))[10:20, 15] == 0).all()


def test_the_border_fades() -> None:
    flat = np.ones((30, 40), dtype=np.float32)
    faded = suppress(flat)
    np.testing.assert_allclose(faded[15, :6], [0, 0.2, 0.4, 0.6, 0.8, 1], rtol=1e-6)
    np.testing.assert_array_equal(faded, faded[::-1, ::-1])
    np.testing.assert_allclose(faded[1, 2], 0.2 * 0.4, rtol=1e-6)


def test_a_small_image_fades_over_half_its_shorter_side() -> None:
    np.testing.assert_allclose(suppress(np.ones((4, 20)))[:, 10], [0, 0.5, 0.5, 0])
    np.testing.assert_array_equal(suppress(np.ones((1, 20))), np.ones((1, 20)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_values_precision_and_the_input(dtype) -> None:
    prob = ridge(30)[0].astype(dtype)
    before = prob.copy()
    kept = suppress(prob)
    assert kept.dtype == dtype
    np.testing.assert_array_equal(prob, before)
    inside = (kept > 0) & (ndimage.distance_transform_cdt(np.pad(np.ones((63, 63)), 1)) > 5)
    np.testing.assert_array_equal(kept[inside], prob[inside])


def test_memory_order_does_not_matter() -> None:
    prob = ridge(30)[0]
    np.testing.assert_array_equal(suppress(np.asfortranarray(prob)), suppress(prob))
    np.testing.assert_array_equal(suppress(np.repeat(prob, 2, axis=1)[:, ::2]), suppress(prob))


def test_a_bad_map_is_refused() -> None:
    with pytest.raises(ValueError, match="prob"):
        suppress(np.full((4, 4), np.nan))


def test_crispness_is_the_surviving_share() -> None:
    prob = ridge(20)[0]
    assert crispness(prob) == pytest.approx(suppress(prob).sum() / prob.sum())
    crisp = np.zeros((40, 40))
    crisp[5:-5, 20] = 0.7
    assert crispness(crisp) == 1.0
    assert crispness(ridge(0, width=1.0)[0]) > crispness(ridge(0, width=4.0)[0])


def test_a_map_without_mass_has_crispness_0() -> None:
    assert crispness(np.zeros((8, 8))) == 0.0


def test_a_benchmark_image_takes_milliseconds() -> None:
    prob = np.random.default_rng(0).random((321, 481), dtype=np.float32)
    suppress(prob)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        suppress(prob)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.05  # about 0.004 s: only a fall back to slow code fails here
