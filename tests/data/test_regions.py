import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy import ndimage
from skimage.draw import ellipse
from skimage.measure import label as components
from skimage.morphology import thin

from knifeedge.data.regions import ellipse_mask, polygon_mask, region_edges
from knifeedge.data.synthetic import synthetic_scene

maps = arrays(
    np.int32,
    array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=14),
    elements=st.integers(0, 2),
)


def marked(regions):
    """Pixels whose right or lower neighbour is another region, one by one."""
    height, width = regions.shape
    edges = np.zeros(regions.shape, bool)
    for row in range(height):
        for column in range(width):
            here = regions[row, column]
            edges[row, column] = (column + 1 < width and regions[row, column + 1] != here) or (
                row + 1 < height and regions[row + 1, column] != here
            )
    return edges


@given(maps)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_edges_are_where_regions_change_and_stay_connected(regions):
    edges, before = region_edges(regions), marked(regions)
    assert not np.any(edges & ~before)
    # As many lines (8-connected) and as many areas between them (4-connected) as before.
    assert components(edges, connectivity=2).max() == components(before, connectivity=2).max()
    outside = [np.pad(~mask, 1, constant_values=True) for mask in (edges, before)]
    counts = [components(mask, connectivity=1).max() for mask in outside]
    assert counts[0] == counts[1]


@given(maps)
@settings(deadline=None, derandomize=True)
def test_nothing_is_left_to_thin(regions):
    edges = region_edges(regions)
    np.testing.assert_array_equal(thin(edges), edges)


def test_scenes_are_one_pixel_wide():
    for index in range(10):
        edges = synthetic_scene(3, index, 128)[1] > 0
        np.testing.assert_array_equal(thin(edges), edges)


def test_a_smooth_border_is_followed_to_the_pixel():
    y, x = axes(60, 60)
    regions = ellipse_mask(y - 30, x - 28, radii=(25, 14), angle=0.6).astype(int)
    edges, before = region_edges(regions), marked(regions)
    taken = before & ~edges
    assert taken.any()
    assert not np.any(taken & ~ndimage.binary_dilation(edges))  # a kept pixel beside each


def test_a_straight_border_is_a_straight_line():
    regions = np.zeros((6, 8), int)
    regions[:, 3:] = 1
    edges = region_edges(regions)
    assert edges[:, 2].all()
    assert edges.sum() == 6
    assert not region_edges(np.zeros((5, 5), int)).any()


def axes(height, width):
    return np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None]


@given(st.lists(st.tuples(st.floats(-3, 23), st.floats(-3, 23)), min_size=3, max_size=8))
@settings(deadline=None, derandomize=True)
def test_polygons_against_a_ray_from_each_pixel(corners):
    corners = np.array(corners)
    y, x = axes(20, 21)
    mask = polygon_mask(y, x, corners)
    for row, column in np.random.default_rng(0).integers(0, 20, (40, 2)):
        crossings, near = 0, np.inf
        for (y0, x0), (y1, x1) in zip(corners, np.roll(corners, -1, 0), strict=True):
            if (y0 <= row) != (y1 <= row):
                cross = x0 + (row - y0) * (x1 - x0) / (y1 - y0)
                near = min(near, abs(cross - column))
                crossings += cross > column
        if near > 1e-3:  # float32 may put a point on a side on either
            assert mask[row, column] == bool(crossings % 2)


@pytest.mark.parametrize("angle", [0.0, 0.7, 2.0])
def test_ellipses_against_scikit_image(angle):
    y, x = axes(40, 50)
    mask = ellipse_mask(y - 20.3, x - 24.6, radii=(17.2, 9.4), angle=angle)
    expected = np.zeros((40, 50), bool)
    rows, columns = ellipse(20.3, 24.6, 9.4, 17.2, shape=(40, 50), rotation=-angle)
    expected[rows, columns] = True
    assert np.count_nonzero(mask ^ expected) <= 4
