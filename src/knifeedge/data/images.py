"""Pictures from files: RGB bytes for images, grey bytes for labels, whatever was saved.

| file | image, (H, W, 3) | label, (H, W) |
| --- | --- | --- |
| grey, 1 bit, palette, CMYK | as RGB | as grey |
| 16 bit | the high byte | the high byte; as it is where no value is above 255 |
| alpha | laid over white | laid over black: what is not drawn is no edge |
| EXIF rotation | applied | applied |
| colour | as it is | its luma; `knifeedge data check` reports it |
| all values 0 or 1 | as they are | 0 and 255, also where all other pixels are ignored |
| several frames | the first | the first |

PNG, JPEG, BMP, TIFF, WebP and PPM are read. Whatever is wrong with a file becomes a DataError that
names it; a header that claims more than MAX_PIXELS is refused before anything is decoded.
"""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from knifeedge.errors import DataError

IMAGE_ENDINGS = (
    ".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm",
)  # fmt: skip
# 8192 x 8192: 200 MB as RGB. A small file can claim any size (a decompression bomb).
MAX_PIXELS = 2**26
MAX_BYTES = 2**29

_FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP", "PPM")
_EXIF_ORIENTATION = 0x0112
_Bytes = npt.NDArray[np.uint8]


def read_image(path: str | Path) -> _Bytes:
    """Read a picture as RGB.

    Args:
        path: A picture file of any mode.

    Returns:
        (H, W, 3) uint8, contiguous.

    Raises:
        DataError: The file cannot be read, is damaged, is no picture, or is enormous.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "grey.png"
    >>> Image.new("L", (4, 3), 7).save(path)
    >>> read_image(path).shape
    (3, 4, 3)
    """
    image = _load(Path(path))
    if _is_deep(image):
        return np.repeat(_high_byte(Path(path), image)[..., None], 3, axis=2)
    return np.array(_over(image, "white").convert("RGB"))


def read_label(path: str | Path) -> _Bytes:
    """Read a label picture as grey: 255 is an edge, values between are soft.

    Args:
        path: A picture file of any mode.

    Returns:
        (H, W) uint8, contiguous.

    Raises:
        DataError: As `read_image`.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ones.png"
    >>> Image.new("L", (2, 1), 1).save(path)
    >>> read_label(path)
    array([[255, 255]], dtype=uint8)
    """
    return ones_to_white(read_grey(path))


def read_grey(path: str | Path) -> _Bytes:
    """Read a label picture as `read_label` does, but 0 and 1 as they are saved.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ones.png"
    >>> Image.new("L", (2, 1), 1).save(path)
    >>> read_grey(path)
    array([[1, 1]], dtype=uint8)
    """
    image = _load(Path(path))
    if not _is_deep(image):
        return np.array(_over(image, "black").convert("L"))
    deep = np.asarray(image)
    # 8 bits, saved with 16: by its high byte a label of 0 and 255 would have no edge.
    shallow = deep.dtype.kind in "iu" and deep.min() >= 0 and deep.max() <= 255
    if shallow or np.isin(deep, (0, 1)).all():
        return deep.astype(np.uint8)
    return _high_byte(Path(path), image)


def ones_to_white(label: _Bytes, mask: npt.NDArray[np.bool_] | None = None) -> _Bytes:
    """A label of 0 and 1 as one of 0 and 255; any other as it is.

    Args:
        label: Grey values.
        mask: Which pixels are to be looked at; all if none is given.

    >>> ones_to_white(np.array([0, 1], np.uint8)), ones_to_white(np.array([1, 2], np.uint8))
    (array([  0, 255], dtype=uint8), array([1, 2], dtype=uint8))
    """
    judged = label if mask is None else label[mask]
    return np.where(label == 1, np.uint8(255), label) if judged.max(initial=0) == 1 else label


def image_size(path: str | Path) -> tuple[int, int]:
    """Height and width of a picture as it will be read, from its header alone.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.png"
    >>> Image.new("RGB", (4, 3)).save(path)
    >>> image_size(path)
    (3, 4)
    """
    path = Path(path)
    _check_file(path)
    try:
        with _quiet(), Image.open(path, formats=_FORMATS) as image:
            width, height = image.size
            turned = image.getexif().get(_EXIF_ORIENTATION) in (5, 6, 7, 8)
    except Exception as error:  # Pillow: SyntaxError, OSError, ValueError, struct.error, ...
        raise _damaged(path, error) from error
    return (width, height) if turned else (height, width)


def picture_mode(path: str | Path) -> str:
    """Pillow's name for how the pixels of a picture are saved: L, RGB, P, I;16, ...

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.png"
    >>> Image.new("RGBA", (4, 3)).save(path)
    >>> picture_mode(path)
    'RGBA'
    """
    path = Path(path)
    _check_file(path)
    try:
        with _quiet(), Image.open(path, formats=_FORMATS) as image:
            return str(image.mode)
    except Exception as error:
        raise _damaged(path, error) from error


def _load(path: Path) -> Image.Image:
    """The decoded picture, turned as its EXIF says."""
    _check_file(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    try:
        with _quiet():
            image = Image.open(io.BytesIO(data), formats=_FORMATS)
            width, height = image.size
            if width * height > MAX_PIXELS:
                raise DataError(
                    f"{path} claims {width} x {height} pixels, more than {MAX_PIXELS};"
                    " if that is right, cut it into parts"
                )
            if image.format == "PNG":
                image.verify()  # decoding alone does not look at the checksums
                image = Image.open(io.BytesIO(data), formats=_FORMATS)
            image.load()
            return ImageOps.exif_transpose(image)
    except DataError:
        raise
    except Exception as error:  # Pillow: SyntaxError, OSError, ValueError, struct.error, ...
        raise _damaged(path, error) from error


def _check_file(path: Path) -> None:
    """Refuse what is no plain file (reading a pipe would never end), is empty or is enormous."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if not path.is_file():
        raise DataError(f"{path} is not a file; give a picture")
    if size == 0:
        raise DataError(f"{path} is empty; copy or download it again")
    if size > MAX_BYTES:
        raise DataError(f"{path} has {size} bytes, more than {MAX_BYTES}; cut it into parts")


def _quiet() -> "warnings.catch_warnings[Any]":
    """Pillow warns of damaged metadata and of large sizes; the pixels are judged here."""
    return warnings.catch_warnings(action="ignore")


def _is_deep(image: Image.Image) -> bool:
    return image.mode[0] in "IF"


def _high_byte(path: Path, image: Image.Image) -> _Bytes:
    """16-bit grey, which Pillow also hands out as 32 bits, to 8 bits."""
    deep = np.asarray(image)
    if deep.dtype.kind not in "iu" or deep.min() < 0 or deep.max() > 65535:
        raise DataError(
            f"{path} holds {image.mode} pixels from {deep.min():g} to {deep.max():g}, whose scale"
            " is not known; save it with 8 or 16 bits"
        )
    return np.ascontiguousarray(deep >> 8).astype(np.uint8)


def _over(image: Image.Image, colour: str) -> Image.Image:
    """The picture laid over a colour, where it is transparent."""
    if not image.has_transparency_data:
        return image
    return Image.alpha_composite(Image.new("RGBA", image.size, colour), image.convert("RGBA"))


def _damaged(path: Path, error: Exception) -> DataError:
    if isinstance(error, UnidentifiedImageError):
        known = ", ".join(_FORMATS)
        return DataError(f"{path} is no picture that can be read; {known} can")
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return DataError(f"{path} is damaged or no picture ({reason}); copy or download it again")
