import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from knifeedge.data.augment import Box, cut, enlarged, halve, noiseless, variant
from knifeedge.data.samples import Sample


@given(height=st.integers(1, 3000), width=st.integers(1, 3000), limit=st.integers(150, 700))
@settings(deadline=None, derandomize=True)
def test_halving_covers_every_pixel_once_and_stops_below_the_limit(height, width, limit):
    boxes = halve(height, width, limit=limit)
    assert all(box.height < limit and box.width < limit for box in boxes)
    assert sum(box.height * box.width for box in boxes) == height * width
    cover = {(top, left) for top in (0, height - 1) for left in (0, width - 1)}
    for top, left in cover:
        inside = [
            box
            for box in boxes
            if box.top <= top < box.top + box.height and box.left <= left < box.left + box.width
        ]
        assert len(inside) == 1


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        ((639, 639), [(639, 639)]),
        ((480, 640), [(480, 320)] * 2),
        ((720, 720), [(360, 360)] * 4),
        ((720, 1280), [(360, 320)] * 8),
        ((320, 641), [(320, 320), (320, 321)]),
    ],
)
def test_halving_as_the_paper_does(size, pieces):
    assert [(box.height, box.width) for box in halve(*size)] == pieces


def test_halves_are_cut_not_resized():
    image = np.arange(4 * 7 * 3, dtype=np.uint8).reshape(4, 7, 3)
    sample = Sample("a", image, image[..., 0])
    left, right = (cut(sample, box, crop=2).image for box in halve(4, 7, limit=5))
    np.testing.assert_array_equal(np.concatenate([left, right], axis=1), image)


def test_the_eight_variants_are_the_symmetries_of_a_square():
    image = np.arange(9).reshape(3, 3)
    made = [variant(image, number) for number in range(8)]
    assert len({array.tobytes() for array in made}) == 8
    for number in range(4):
        np.testing.assert_array_equal(made[number], np.rot90(image, number))
        np.testing.assert_array_equal(made[number + 4], np.rot90(image, number)[:, ::-1])
    wide = np.zeros((2, 5, 3))
    assert [variant(wide, number).shape for number in range(8)] == [(2, 5, 3), (5, 2, 3)] * 4


@pytest.mark.parametrize("number", [-1, 8])
def test_there_are_no_other_variants(number):
    with pytest.raises(ValueError, match=r"number must be in 0 \.\. 7"):
        variant(np.zeros((2, 2)), number)


def test_noiseless_data():
    label = np.array([[0, 1, 128, 255]], np.uint8)
    np.testing.assert_array_equal(noiseless(label), [[0, 255, 255, 255]])


@given(height=st.integers(1, 900), width=st.integers(1, 900), crop=st.integers(1, 400))
@settings(deadline=None, derandomize=True)
def test_enlarging_reaches_the_crop_and_keeps_the_aspect(height, width, crop):
    tall, wide = enlarged(height, width, crop=crop)
    if min(height, width) >= crop:
        assert (tall, wide) == (height, width)
    else:
        assert min(tall, wide) == crop
        scale = crop / min(height, width)
        assert abs(tall - height * scale) <= 0.5
        assert abs(wide - width * scale) <= 0.5


def test_small_pieces_are_enlarged_bilinearly_and_their_mask_by_the_nearest():
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (10, 15, 3), np.uint8)
    label = rng.integers(0, 2, (10, 15), np.uint8) * np.uint8(100)
    mask = rng.random((10, 15)) < 0.8
    piece = cut(Sample("a", image, label, mask), Box(2, 3, 8, 12), crop=16)
    for made, source in (
        (piece.image, image),
        (piece.label, label),
        (piece.edges, noiseless(label)),
    ):
        part = Image.fromarray(source[2:, 3:])
        expected = np.asarray(part.resize((24, 16), Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(piece.mask, np.repeat(np.repeat(mask[2:, 3:], 2, 0), 2, 1))


def test_a_limit_below_two_would_never_end():
    with pytest.raises(ValueError, match="limit must be at least 2, got 1"):
        halve(4, 4, limit=1)
