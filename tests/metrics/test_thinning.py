"""Thinning against scikit-image."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.ndimage import gaussian_filter
from skimage import morphology

from knifeedge.metrics.thinning import LANES, level_maps, pack, thin, thin_maps, unpack

# Widths around the 64 pixels of a word, single rows, columns and pixels.
SIDES = st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 62, 63, 64, 65, 127, 128, 129, 192]))


def random_mask(seed, height, width, kind, share):
    rng = np.random.default_rng(seed)
    noise = rng.random((height, width))
    if kind == "noise":
        return noise < share
    smooth = gaussian_filter(noise, 2 if kind == "blobs" else 5, mode="wrap")
    return smooth <= np.quantile(smooth, share)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32),
    height=SIDES,
    width=SIDES,
    kind=st.sampled_from(["noise", "blobs", "regions"]),
    share=st.floats(0, 1),
)
def test_equals_skimage(seed, height, width, kind, share) -> None:
    mask = random_mask(seed, height, width, kind, share)
    np.testing.assert_array_equal(thin(mask), morphology.thin(mask))


@pytest.mark.parametrize(
    "shape", [(1, 1), (1, 64), (1, 200), (65, 1), (7, 129), (64, 64), (90, 70)]
)
def test_full_and_empty_maps(shape) -> None:
    full = np.ones(shape, dtype=bool)
    np.testing.assert_array_equal(thin(full), morphology.thin(full))
    assert not thin(~full).any()


def test_every_neighbourhood() -> None:
    """All 512 patterns of 3 x 3 pixels, apart from each other and across word borders."""
    mask = np.zeros((16 * 5, 32 * 5), dtype=bool)
    for pattern in range(512):
        y, x = 5 * (pattern // 32), 5 * (pattern % 32)
        mask[y : y + 3, x : x + 3] = [
            [pattern >> (3 * i + j) & 1 for j in range(3)] for i in range(3)
        ]
    np.testing.assert_array_equal(thin(mask), morphology.thin(mask))


def test_long_thinning_reaches_every_word() -> None:
    """A disc of many sub-iterations: words come back to the list until the very end."""
    y, x = np.ogrid[:300, :300]
    mask = (y - 150) ** 2 + (x - 140) ** 2 < 130**2
    np.testing.assert_array_equal(thin(mask), morphology.thin(mask))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 17])
def test_many_maps_at_once(count) -> None:
    rng = np.random.default_rng(count)
    levels = rng.integers(0, 100, (31, 130), dtype=np.uint8)
    at = np.sort(rng.choice(np.arange(1, 100), count, replace=False))[::-1].copy()
    maps = level_maps(levels, at)
    for k, bits in zip(at, maps, strict=True):
        np.testing.assert_array_equal(unpack(bits, 130), levels >= k)
    thin_maps(maps, LANES)
    for k, bits in zip(at, maps, strict=True):
        np.testing.assert_array_equal(unpack(bits, 130), morphology.thin(levels >= k))


@pytest.mark.parametrize("width", [1, 8, 63, 64, 65, 128, 129])
def test_pack_and_unpack(width) -> None:
    mask = np.random.default_rng(width).random((5, width)) < 0.5
    bits = pack(mask)
    assert bits.shape == (5, -(-width // 64))
    np.testing.assert_array_equal(unpack(bits, width), mask)


@pytest.mark.parametrize("mask", [np.ones((2, 2)), np.ones(3, dtype=bool)])
def test_refuses_other_arrays(mask) -> None:
    with pytest.raises(ValueError, match="mask must be a bool array"):
        thin(mask)


def test_no_pixels() -> None:
    assert thin(np.zeros((0, 5), dtype=bool)).shape == (0, 5)
