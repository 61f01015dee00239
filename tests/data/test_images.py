import contextlib
import io
import os

import numpy as np
import pytest
from PIL import Image

from knifeedge.data.datasets import LabelRule
from knifeedge.data.images import (
    MAX_PIXELS,
    image_size,
    picture_mode,
    read_grey,
    read_image,
    read_label,
)
from knifeedge.errors import DataError

RGB = np.random.default_rng(0).integers(0, 256, (23, 31, 3), np.uint8)
GREY = RGB[..., 0]


def save(path, image, *args, **options):
    image.save(path, *args, **options)
    return path


@pytest.mark.parametrize("ending", ["png", "bmp", "tif", "ppm"])
def test_lossless_files_are_read_to_the_byte(tmp_path, ending):
    path = save(tmp_path / f"a.{ending}", Image.fromarray(RGB))
    np.testing.assert_array_equal(read_image(path), RGB)
    assert read_image(path).flags.c_contiguous
    assert image_size(path) == (23, 31)


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGBA", "CMYK", "YCbCr"])
def test_any_mode_becomes_rgb_and_grey(tmp_path, mode):
    image = Image.fromarray(RGB).convert(mode)
    ending = "png" if mode in ("L", "1", "P", "LA", "RGBA") else "tif"
    path = save(tmp_path / f"a.{ending}", image)
    np.testing.assert_array_equal(read_image(path), np.asarray(image.convert("RGB")))
    assert read_label(path).shape == (23, 31)
    assert picture_mode(path) == mode


def test_sixteen_bits_keep_the_high_byte(tmp_path):
    deep = (GREY.astype(np.uint16) << 8) + np.arange(GREY.size, dtype=np.uint16).reshape(
        GREY.shape
    ) % 256
    for ending in ("png", "tif"):
        path = save(tmp_path / f"a.{ending}", Image.fromarray(deep))
        np.testing.assert_array_equal(read_image(path), np.repeat(GREY[..., None], 3, 2))
        np.testing.assert_array_equal(read_label(path), GREY)


def test_what_is_transparent_is_white_in_an_image_and_no_edge_in_a_label(tmp_path):
    pixels = np.array([[[10, 20, 30, 255], [255, 255, 255, 0], [200, 200, 200, 128]]], np.uint8)
    path = save(tmp_path / "a.png", Image.fromarray(pixels))
    image, label = read_image(path)[0], read_label(path)[0]
    np.testing.assert_array_equal(image[0], [10, 20, 30])
    np.testing.assert_array_equal(image[1], [255, 255, 255])
    assert 225 <= image[2, 0] <= 230
    assert label[1] == 0
    assert 98 <= label[2] <= 102


def test_a_palette_with_transparency(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.putpixel((1, 0), 1)
    path = save(tmp_path / "a.png", image, transparency=1)
    np.testing.assert_array_equal(read_image(path)[0], [[255, 0, 0], [255, 255, 255]])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.png", Image.fromarray(RGB), exif=exif)
    turns = {
        1: RGB,
        2: RGB[:, ::-1],
        3: RGB[::-1, ::-1],
        4: RGB[::-1],
        5: RGB.transpose(1, 0, 2),
        6: np.rot90(RGB, -1),
        7: np.rot90(RGB.transpose(1, 0, 2), 2),
        8: np.rot90(RGB),
    }
    np.testing.assert_array_equal(read_image(path), turns[orientation])
    assert image_size(path) == turns[orientation].shape[:2]
    assert read_label(path).shape == turns[orientation].shape[:2]


def test_labels_of_ones_are_labels(tmp_path):
    for dtype in (np.uint8, np.uint16):
        path = save(tmp_path / "a.png", Image.fromarray(np.array([[0, 1]], dtype)))
        np.testing.assert_array_equal(read_label(path), [[0, 255]])
    soft = save(tmp_path / "b.png", Image.fromarray(np.array([[0, 2]], np.uint8)))
    np.testing.assert_array_equal(read_label(soft), [[0, 2]])


def test_eight_bits_saved_with_sixteen_are_eight(tmp_path):
    """By their high byte such labels would be empty; and ones beside pixels to ignore are ones."""
    for values in ([0, 255, 128], [0, 1, 255]):
        path = save(tmp_path / "a.png", Image.fromarray(np.array([values], np.uint16)))
        np.testing.assert_array_equal(read_label(path), [values])
    label, mask = LabelRule(ignore=255).apply(read_grey(path))
    np.testing.assert_array_equal(label, [[0, 255, 0]])
    np.testing.assert_array_equal(mask, [[True, True, False]])
    deep = save(tmp_path / "b.png", Image.fromarray(np.array([[0, 255, 512]], np.uint16)))
    np.testing.assert_array_equal(read_label(deep), [[0, 0, 2]])


@pytest.mark.parametrize("values", [np.float32([0, 0.5, 0.9, 1]), np.int32([-1, 0, 1])])
def test_deep_labels_are_ones_only_if_all_are(tmp_path, values):
    path = save(tmp_path / "a.tif", Image.fromarray(values[None]))
    with pytest.raises(DataError, match=r"a\.tif holds .* whose scale is not known"):
        read_label(path)
    path = save(tmp_path / "b.tif", Image.fromarray(np.clip(np.rint(values[None]), 0, 1)))
    np.testing.assert_array_equal(read_label(path)[0], 255 * np.clip(np.rint(values), 0, 1))


def test_floats_have_no_scale(tmp_path):
    path = save(tmp_path / "a.tif", Image.fromarray(np.full((3, 4), 0.5, np.float32)))
    with pytest.raises(DataError, match=r"a\.tif holds F pixels .* save it with 8 or 16 bits"):
        read_image(path)


def png_that_claims(width, height):
    data = io.BytesIO()
    Image.new("1", (8, 8)).save(data, "PNG")
    content = bytearray(data.getvalue())
    content[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize("side", [int(MAX_PIXELS**0.5) + 1, 20_000, 2**31 - 1])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(tmp_path, side):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_that_claims(side, side))
    with pytest.raises(DataError, match=r"bomb\.png"):
        read_image(path)


def test_a_real_picture_over_the_limit(tmp_path):
    path = save(tmp_path / "a.png", Image.new("1", (9000, 9000)))
    with pytest.raises(
        DataError, match=r"claims 9000 x 9000 pixels, more than 67108864; .* cut it"
    ):
        read_image(path)


def test_what_is_no_file(tmp_path):
    (tmp_path / "empty.png").touch()
    os.mkfifo(tmp_path / "pipe.png")
    for name, reason in (
        ("missing.png", "No such file"),
        ("empty.png", "is empty"),
        (".", "is not a file"),
        ("pipe.png", "is not a file"),
    ):
        for read in (read_image, read_label, image_size):
            with pytest.raises(DataError, match=reason):
                read(tmp_path / name)


def test_a_flipped_bit_in_a_png_is_seen_or_changes_nothing(tmp_path):
    label = np.zeros((80, 60), np.uint8)
    label[::7] = 255
    path = save(tmp_path / "a.png", Image.fromarray(label))
    content = path.read_bytes()
    for at in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
        with contextlib.suppress(DataError):
            np.testing.assert_array_equal(read_label(path), label)


KINDS = {
    "png": (RGB, "PNG", {}),
    "palette": (Image.fromarray(RGB).convert("P"), "PNG", {}),
    "deep": (GREY.astype(np.uint16) * 257, "PNG", {}),
    "jpeg": (RGB, "JPEG", {}),
    "tiff": (RGB, "TIFF", {"compression": "tiff_lzw"}),
    "webp": (RGB, "WEBP", {}),
    "bmp": (RGB, "BMP", {}),
    "ppm": (RGB, "PPM", {}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("read", [read_image, read_label], ids=["image", "label"])
def test_malformed_files_are_refused_or_read_in_their_size(tmp_path, malformed, kind, read):
    picture, form, options = KINDS[kind]
    data = io.BytesIO()
    picture = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    picture.save(data, form, **options)
    path = tmp_path / "a.png"
    messages = []
    for content in malformed(data.getvalue(), count=220):
        path.write_bytes(content)
        try:
            array = read(path)
        except DataError as error:
            messages.append(str(error))
        else:
            assert array.dtype == np.uint8
            assert array.shape[:2] == image_size(path)
            assert array.shape[2:] == ((3,) if read is read_image else ())
    assert len(messages) > 10
    assert all("a.png" in message for message in messages)
