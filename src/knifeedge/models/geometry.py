"""Where a feature sits in the image: input checks, and upsampling that does not shift.

Two kinds of downsampling are in use, and each needs its own way back up by a factor s:

    centred    2x2 pooling: feature i covers pixels s i .. s i + s - 1, its centre is s i + (s-1)/2
    cornered   3x3 windows with stride 2, padding 1: feature i sits on pixel s i

An image of any size is first continued to whole cells of the coarsest grid with `grow`. In half a
cell the last window of a pooling or a strided convolution would lie half outside. No network sees
that in training, as crops are whole, and it then reports an edge along the border: a last column
twice as bright as the first. The maps are cut back with `crop`. Scaling them to the image's size
instead would stretch, that is shift them.

Upsampling is linear along each axis: two products with a small matrix. On a GPU that is many times
faster than the interpolation of PyTorch, whose backward pass adds atomically, and it gives the same
bits every time. The taps are exact in bfloat16.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

STRIDE = 16  # of the deepest features of all networks
# Of two cells: enough for every pooling, and for the batch statistics of a single image.
SMALLEST_SIDE = 2 * STRIDE


def check_images(images: Tensor) -> None:
    """Refuse anything but a non-empty float batch (N, 3, H, W).

    >>> check_images(torch.zeros(1, 3, 8, 8))
    >>> check_images(torch.zeros(8, 8, 3))
    Traceback (most recent call last):
    ...
    ValueError: images must be (N, 3, H, W), got (8, 8, 3); one image is images.unsqueeze(0)
    """
    shape = tuple(images.shape)
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(
            f"images must be (N, 3, H, W), got {shape}; one image is images.unsqueeze(0)"
        )
    if 0 in shape:
        raise ValueError(f"images must not be empty, got {shape}")
    if not images.is_floating_point():
        raise ValueError(
            f"images must be floating point, got {images.dtype}; scale to [0,1] and normalise first"
        )


def grow(images: Tensor) -> Tensor:
    """Continue images on the right and below by their mirror image, to multiples of `STRIDE`.

    Two cells are the least. What is so small that its mirror image does not fill them goes on with
    its first row or column.

    >>> grow(torch.zeros(1, 3, 481, 5)).shape
    torch.Size([1, 3, 496, 32])
    """
    sizes = images.shape[-2:]
    if not all(isinstance(size, int) for size in sizes):
        return _grow_by_places(images)
    down, across = (_whole(size) - size for size in sizes)
    if down == across == 0:
        return images
    if down >= sizes[0] or across >= sizes[1]:
        return _grow_by_places(images)
    return F.pad(images, (0, across, 0, down), mode="reflect")


def crop(x: Tensor, size: Sequence[int]) -> Tensor:
    """The first rows and columns of (N, C, h, w), as many as `size` says: height and width.

    >>> crop(torch.arange(12.0).view(1, 1, 3, 4), (1, 2))
    tensor([[[[0., 1.]]]])
    """
    # A slice has a size of its own in an export, of which PyTorch 2.11 cannot say that it is not 0.
    return x.narrow(-2, 0, size[0]).narrow(-1, 0, size[1])


def upsample_centred(x: Tensor, factor: int) -> Tensor:
    """Bilinear upsampling of centred features: (h, w) to (factor h, factor w).

    >>> x = torch.tensor([0.5, 2.5, 4.5]).expand(1, 1, 3, 3)      # centres of 2-pixel windows
    >>> upsample_centred(x, 2)[0, 0, 0]
    tensor([0.5000, 1.0000, 2.0000, 3.0000, 4.0000, 4.5000])
    """
    if factor == 1:
        return x
    if x.is_cuda:
        matrices = (_bilinear(n, factor * n, factor, (factor - 1) / 2, x) for n in x.shape[-2:])
        return _resample(x, *matrices)
    return F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=False)


def upsample_cornered(x: Tensor, factor: int) -> Tensor:
    """Bilinear upsampling of cornered features: (h, w) to (factor h + 1, factor w + 1).

    >>> x = torch.tensor([0.0, 2.0, 4.0]).expand(1, 1, 3, 3)
    >>> upsample_cornered(x, 2)[0, 0, 0]
    tensor([0., 1., 2., 3., 4., 4., 4.])
    """
    if x.is_cuda:
        return _resample(x, *(_bilinear(n, factor * n + 1, factor, 0, x) for n in x.shape[-2:]))
    # Between the corner features of (h, w) lie exactly factor (h - 1) steps, so with the last row
    # and column repeated once align_corners=True has the exact scale.
    x = F.pad(x, (0, 1, 0, 1), mode="replicate")
    size = [factor * (n - 1) + 1 for n in x.shape[-2:]]
    return F.interpolate(x, size=size, mode="bilinear", align_corners=True)


def double_cornered(x: Tensor, size: Sequence[int]) -> Tensor:
    """Bicubic upsampling of cornered features by two, to (N, C, *size).

    Args:
        x: (N, C, h, w).
        size: height and width, each twice that of `x` or one less.

    Returns:
        In channels-last layout.

    >>> x = torch.tensor([0.0, 2.0, 4.0, 6.0]).expand(1, 1, 4, 4)
    >>> double_cornered(x, (8, 8))[0, 0, 0]
    tensor([0.0000, 0.8125, 2.0000, 3.0000, 4.0000, 5.1875, 6.0000, 6.1875])
    """
    up, across = (_doubling(n, m, x) for n, m in zip(x.shape[-2:], size, strict=True))
    return _resample(x, up, across)


def bilinear_kernel(factor: int) -> Tensor:
    """The (2 factor, 2 factor) kernel with which a transposed convolution upsamples bilinearly.

    >>> bilinear_kernel(1)
    tensor([[0.2500, 0.2500],
            [0.2500, 0.2500]])
    """
    line = 1 - (torch.arange(2 * factor) - (factor - 0.5)).abs() / factor
    return torch.outer(line, line)


def _whole(size: Any) -> Any:
    """The least size of whole cells that holds this one: a number, or an exporter's symbol."""
    whole = (size + STRIDE - 1) // STRIDE * STRIDE
    # torch.export has symbols for sizes, the older tracer tensors.
    if isinstance(whole, Tensor):
        return whole.clamp(min=SMALLEST_SIDE)
    return torch.sym_max(whole, SMALLEST_SIDE)  # type: ignore[no-untyped-call]


def _grow_by_places(images: Tensor) -> Tensor:
    """`grow` for any size, and for those left free in an export: a graph has no `if`."""
    for axis in (2, 3):
        last: Any = images.shape[axis] - 1
        places = torch.arange(_whole(images.shape[axis]), device=images.device)
        images = images.index_select(axis, (last - (places - last).abs()).clamp(min=0))
    return images


def _resample(x: Tensor, up: Tensor, across: Tensor) -> Tensor:
    """(N, C, h, w) with a matrix for each axis, (H, h) and (W, w): (N, C, H, W), channels-last."""
    if x.shape[1] == 1:
        return up @ x @ across.T
    x = across @ x.movedim(1, -1)
    n, h, width, channels = x.shape
    x = up @ x.reshape(n, h, width * channels)
    return x.reshape(n, up.shape[0], width, channels).permute(0, 3, 1, 2)


def _bilinear(n: int, size: int, factor: int, shift: float, like: Tensor) -> Tensor:
    """The (size, n) matrix of bilinear upsampling, continued at the ends; 0 sits on `shift`."""
    place = (torch.arange(size, device=like.device) - shift) / factor
    place = place.clamp(0, n - 1)[:, None]
    near = 1 - (place - torch.arange(n, device=like.device)).abs()
    return near.clamp(min=0).to(like.dtype)


def _doubling(n: int, size: int, like: Tensor) -> Tensor:
    """The (size, n) matrix of bicubic upsampling by two, continued at the ends."""
    # Written on the device from ranges alone: a copy from the host would make a GPU wait.
    place = torch.arange(size, device=like.device)[:, None]
    offset = torch.arange(-1, 3, device=like.device)
    between = torch.where((offset == 0) | (offset == 1), 19 / 32, -3 / 32)
    taps = torch.where(place % 2 == 1, between, (offset == 0).to(between.dtype))
    sources = (place // 2 + offset).clamp(0, n - 1)
    hits = sources[..., None] == torch.arange(n, device=like.device)
    return (taps[..., None] * hits).sum(dim=1).to(like.dtype)
