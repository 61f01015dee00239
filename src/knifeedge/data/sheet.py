"""A contact sheet: images over their labels, to look at what a network will see."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from knifeedge.data.samples import Sample
from knifeedge.errors import DataError

CELL, GAP, CAPTION = 160, 4, 12
_PAPER, _INK = (255, 255, 255), (60, 60, 60)
_IGNORED = (200, 60, 60)


def contact_sheet(samples: Iterable[Sample], *, columns: int = 6, cell: int = CELL) -> Image.Image:
    """Draw samples in a grid, each image above its label; ignored pixels are red.

    Args:
        samples: At least one.
        columns: Samples in a row.
        cell: Side of the square each picture is fitted into, in pixels.

    Returns:
        An RGB picture.

    >>> from knifeedge.data.synthetic import SyntheticSet
    >>> contact_sheet(SyntheticSet(count=2, size=32), columns=2, cell=32).size
    (76, 88)
    """
    if columns < 1 or cell < 8:
        raise ValueError(f"columns must be >= 1 and cell >= 8, got {columns} and {cell}")
    chosen = list(samples)
    if not chosen:
        raise DataError("there is nothing to show: the set has no samples")
    columns = min(columns, len(chosen))
    rows = -(-len(chosen) // columns)
    wide, tall = cell + GAP, 2 * cell + 2 * GAP + CAPTION
    sheet = Image.new("RGB", (columns * wide + GAP, rows * tall + GAP), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, sample in enumerate(chosen):
        row, column = divmod(number, columns)
        left, top = GAP + column * wide, GAP + row * tall
        picture = _fit(sample.image, cell)
        sheet.paste(picture, (left, top))
        sheet.paste(_fit(_label_picture(sample), cell), (left, top + picture.height + GAP))
        pen.text((left, top + 2 * cell + GAP), _shorten(sample.name, cell), _INK)
    return sheet


def write_sheet(sheet: Image.Image, path: str | Path) -> None:
    """Save a sheet as PNG; a path that cannot be written is a DataError.

    >>> write_sheet(Image.new("RGB", (8, 8)), "nowhere/sheet.png")
    Traceback (most recent call last):
    knifeedge.errors.DataError: nowhere/sheet.png cannot be written: No such file or directory
    """
    try:
        sheet.save(Path(path), format="PNG", optimize=True)
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error


def _label_picture(sample: Sample) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
    picture = np.repeat(sample.label[..., None], 3, axis=2)
    if sample.mask is not None:
        picture[~sample.mask] = _IGNORED
    return picture


def _fit(array: np.ndarray[tuple[int, int, int], np.dtype[np.uint8]], cell: int) -> Image.Image:
    picture = Image.fromarray(array)
    scale = cell / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    return picture.resize(size, Image.Resampling.LANCZOS)


def _shorten(name: str, cell: int) -> str:
    room = max(1, cell // 6)  # Pillow's own font is 6 pixels wide
    return name if len(name) <= room else name[: room - 2] + ".."
