"""The paper's augmentation (section 4.1.2), exact to the pixel: only enlarging resamples.

An image is cut in two along its width while that is 640 or more, then along its height. Each piece
is seen at 0, 90, 180 and 270 degrees, each with and without a flip. Each of these comes a second
time as noiseless data: its label, non-zero set to 255, is both image and target. From each, a
square is cut out at random; a piece with a shorter side is first enlarged to it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from knifeedge.data.samples import Sample

HALVE_AT = 640
VARIANTS = 8

_Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Box:
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


@dataclass(frozen=True)
class Piece:
    """A part of a sample, with `edges`, its label with all that is not 0 set to 255."""

    image: _Bytes
    label: _Bytes
    edges: _Bytes
    mask: npt.NDArray[np.bool_] | None


def halve(height: int, width: int, *, limit: int = HALVE_AT) -> list[Box]:
    """Cut an image in two, width first, until both sides are below a limit.

    Args:
        height: Of the image.
        width: Of the image.
        limit: A side of this many pixels or more is cut; at least 2.

    Returns:
        Boxes that cover every pixel once; of an odd side the second half is one longer.

    >>> [(box.height, box.width) for box in halve(480, 640)]
    [(480, 320), (480, 320)]
    """
    if limit < 2:
        raise ValueError(f"limit must be at least 2, got {limit}")
    return [
        Box(top, left, tall, wide)
        for left, wide in _halve_side(0, width, limit)
        for top, tall in _halve_side(0, height, limit)
    ]


def variant(array: npt.NDArray[Any], number: int) -> npt.NDArray[Any]:
    """One of the eight rotations and flips of an array (H, W, ...), as a view.

    Args:
        array: Its first two axes are turned.
        number: 0 to 3: counterclockwise by that many quarters; 4 to 7: flipped after that.

    Returns:
        (H, W, ...) or (W, H, ...).

    >>> variant(np.array([[1, 2]]), 5)
    array([[2],
           [1]])
    """
    if not 0 <= number < VARIANTS:
        raise ValueError(f"number must be in 0 .. {VARIANTS - 1}, got {number}")
    turned = np.rot90(array, number % 4)
    return np.fliplr(turned) if number >= 4 else turned


def noiseless(label: _Bytes) -> _Bytes:
    """The label as noiseless data has it: 255 where it is not 0.

    >>> noiseless(np.array([[0, 3, 255]], np.uint8))
    array([[  0, 255, 255]], dtype=uint8)
    """
    return np.where(label != 0, np.uint8(255), np.uint8(0))


def enlarged(height: int, width: int, *, crop: int) -> tuple[int, int]:
    """The size of a piece whose sides are at least `crop`, its aspect kept to the pixel.

    >>> enlarged(160, 400, crop=320)
    (320, 800)
    """
    if min(height, width) >= crop:
        return height, width
    short = min(height, width)
    return max(crop, round(height * crop / short)), max(crop, round(width * crop / short))


def cut(sample: Sample, box: Box, *, crop: int) -> Piece:
    """Cut a piece out of a sample; one with a side shorter than the crop is enlarged.

    Image and label are enlarged bilinearly, as the paper's were, so that the label becomes soft;
    the mask keeps the nearest pixel.

    Args:
        sample: With (H, W) pixels.
        box: Inside it.
        crop: Side of the square that will be cut out.

    Returns:
        Arrays of `enlarged(box.height, box.width)`.

    >>> sample = Sample("a", np.zeros((4, 6, 3), np.uint8), np.zeros((4, 6), np.uint8))
    >>> cut(sample, Box(0, 0, 4, 6), crop=8).image.shape
    (8, 12, 3)
    """
    part = np.s_[box.top : box.top + box.height, box.left : box.left + box.width]
    image, label = sample.image[part], sample.label[part]
    mask = None if sample.mask is None else sample.mask[part]
    edges = noiseless(label)
    size = enlarged(box.height, box.width, crop=crop)
    if size != label.shape:
        image, label, edges = (
            _resize(a, size, Image.Resampling.BILINEAR) for a in (image, label, edges)
        )
        mask = None if mask is None else _resize(mask, size, Image.Resampling.NEAREST)
    return Piece(image, label, edges, mask)


def _halve_side(start: int, length: int, limit: int) -> list[tuple[int, int]]:
    """Starts and lengths."""
    if length < limit:
        return [(start, length)]
    half = length // 2
    return [
        *_halve_side(start, half, limit),
        *_halve_side(start + half, length - half, limit),
    ]


def _resize(
    array: npt.NDArray[Any], size: tuple[int, int], method: Image.Resampling
) -> npt.NDArray[Any]:
    return np.array(Image.fromarray(array).resize((size[1], size[0]), method))
