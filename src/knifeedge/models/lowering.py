"""Layers with a second way to compute them, for a compiled training step on a CUDA device.

The second way is the same mathematics in terms that Inductor fuses with their surroundings, for
which cuDNN has fast kernels, and whose way back adds nothing atomically:

    max_pool       comparisons of strided slices; the usual way back scatters by atomic additions
    continue_edges slices side by side; likewise
    pointwise      to a few channels: products and sums, as cuDNN has no good kernels for these
    ByEights       zeros up to a multiple of 8 channels, which 16-byte loads of bfloat16 need
    Transposed     a plain convolution with a channel for each phase, then a pixel shuffle

Everywhere else, on a CPU, without torch.compile and in an export, they are PyTorch's own layers.
Parameters, their names and how they start are PyTorch's in both.
"""

from functools import reduce

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEW_CHANNELS = 4  # up to so many outputs, `pointwise` is products and sums


def lowered(x: Tensor) -> bool:
    """Whether to compute in the second way: in a compiled step on a CUDA device.

    >>> lowered(torch.zeros(1))
    False
    """
    return x.is_cuda and torch.compiler.is_compiling()


def max_pool(
    x: Tensor, kernel: int, *, stride: int, padding: int = 0, ceil_mode: bool = False
) -> Tensor:
    """Max pooling of (N, C, h, w); the gradient goes to the first of equals.

    >>> max_pool(torch.arange(9.0).view(1, 1, 3, 3), 2, stride=2, ceil_mode=True)
    tensor([[[[4., 5.],
              [7., 8.]]]])
    """
    if not lowered(x):
        return F.max_pool2d(x, kernel, stride=stride, padding=padding, ceil_mode=ceil_mode)
    height, width = (_windows(n, kernel, stride, padding, ceil_mode) for n in x.shape[-2:])
    ends = [
        max((count - 1) * stride + kernel - n - padding, 0)
        for count, n in ((width, x.shape[-1]), (height, x.shape[-2]))
    ]
    if padding or any(ends):
        x = F.pad(x, (padding, ends[0], padding, ends[1]), value=-torch.inf)
    down, across = stride * (height - 1) + 1, stride * (width - 1) + 1
    parts = [
        x[..., i : i + down : stride, j : j + across : stride]
        for i in range(kernel)
        for j in range(kernel)
    ]
    return reduce(lambda best, part: torch.where(part > best, part, best), parts)


def continue_edges(x: Tensor) -> Tensor:
    """(N, C, h, w) with its outermost rows and columns repeated once.

    >>> continue_edges(torch.tensor([[[[1.0, 2.0]]]]))[0, 0, 0]
    tensor([1., 1., 2., 2.])
    """
    if not lowered(x):
        return F.pad(x, (1, 1, 1, 1), mode="replicate")
    x = torch.cat([x[..., :1], x, x[..., -1:]], dim=-1)
    return torch.cat([x[..., :1, :], x, x[..., -1:, :]], dim=-2)


def pointwise(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A 1x1 convolution of (N, C, h, w) with a weight (O, C, 1, 1).

    >>> pointwise(torch.ones(1, 2, 1, 1), torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)).item()
    7.0
    """
    if not lowered(x) or weight.shape[0] > FEW_CHANNELS:
        return F.conv2d(x, weight, bias)
    wide = torch.promote_types(x.dtype, torch.float32)
    rows = [(x * row).sum(1, keepdim=True, dtype=wide) for row in weight.to(x.dtype)]
    y = torch.cat(rows, dim=1) if len(rows) > 1 else rows[0]
    if bias is not None:
        y = y + bias[:, None, None]
    return y.to(x.dtype)


class Score(nn.Conv2d):
    """A 1x1 convolution, meant for a few channels; see `pointwise`.

    Args:
        in_channels, out_channels: as in `nn.Conv2d`.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 1)

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, h, w) to (N, O, h, w)."""
        return pointwise(input, self.weight, self.bias)


class ByEights(nn.Conv2d):
    """`nn.Conv2d`, to which zeros are added where the input's channels are no multiple of 8."""

    def forward(self, input: Tensor) -> Tensor:
        """(N, C, h, w) to (N, O, h', w')."""
        missing = -self.in_channels % 8
        if not missing or not lowered(input):
            return super().forward(input)
        x, weight = _with_channels(input, missing), _with_channels(self.weight, missing)
        weight = weight.contiguous(memory_format=torch.channels_last)
        result: Tensor = self._conv_forward(x, weight, self.bias)
        return result


class Transposed(nn.ConvTranspose2d):
    """A transposed convolution whose square kernel is a multiple of its stride.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, output_padding, bias: as in
            `nn.ConvTranspose2d`; output_padding at most padding.

    >>> Transposed(1, 1, 3, stride=2, padding=1)
    Traceback (most recent call last):
    ...
    ValueError: kernel_size must be a multiple of the stride 2, got 3; nn.ConvTranspose2d takes any
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int,
        padding: int = 0,
        output_padding: int = 0,
        bias: bool = True,
    ) -> None:
        if kernel_size % stride:
            raise ValueError(
                f"kernel_size must be a multiple of the stride {stride}, got {kernel_size};"
                f" nn.ConvTranspose2d takes any"
            )
        if output_padding > padding:
            raise ValueError(
                f"output_padding must be at most the padding {padding}, got {output_padding};"
                f" nn.ConvTranspose2d takes more"
            )
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            bias=bias,
        )

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """(N, C, h, w) to (N, O, h', w')."""
        if output_size is not None or not lowered(input):
            return super().forward(input, output_size)
        kernel, stride, padding = self.kernel_size[0], self.stride[0], int(self.padding[0])
        less = kernel + self.output_padding[0] - 2 * padding
        height, width = ((n - 1) * stride + less for n in input.shape[-2:])
        # Two taps of a single channel are a small matrix product; more would be long sums.
        single = self.in_channels == self.out_channels == 1 and kernel == 2 * stride
        whole = self._by_product(input) if single else self._by_convolution(input)
        if self.bias is not None:
            whole = whole + self.bias[:, None, None].to(whole.dtype)
        return whole[..., padding : padding + height, padding : padding + width]

    def _phases(self) -> Tensor:
        """The kernels as (out, phase, phase, in, tap, tap), to be correlated with the input."""
        stride = self.stride[0]
        taps = self.kernel_size[0] // stride
        weight = self.weight.view(self.in_channels, self.out_channels, taps, stride, taps, stride)
        return weight.permute(1, 3, 5, 0, 2, 4).flip(4, 5)

    def _by_product(self, x: Tensor) -> Tensor:
        """Without padding and bias: the four features around a place, times a matrix."""
        stride = self.stride[0]
        x = F.pad(x[:, 0], (1, 1, 1, 1))
        n, height, width = x.shape[0], x.shape[1] - 1, x.shape[2] - 1
        near = [x[:, i : i + height, j : j + width] for i in range(2) for j in range(2)]
        matrix = self._phases().reshape(stride**2, 4).T.to(x.dtype)
        y = (torch.stack(near, dim=-1) @ matrix).view(n, height, width, stride, stride)
        return y.permute(0, 1, 3, 2, 4).reshape(n, 1, height * stride, width * stride)

    def _by_convolution(self, x: Tensor) -> Tensor:
        """Without padding and bias: all phases side by side, in multiples of 8 channels."""
        stride = self.stride[0]
        taps = self.kernel_size[0] // stride
        channels = self.out_channels * stride**2
        kernels = self._phases().reshape(channels, self.in_channels, taps, taps)
        missing, surplus = -self.in_channels % 8, -channels % 8
        kernels = F.pad(kernels, (0, 0, 0, 0, 0, missing, 0, surplus))
        kernels = kernels.contiguous(memory_format=torch.channels_last)
        y = F.conv2d(_with_channels(x, missing), kernels, padding=taps - 1)
        return F.pixel_shuffle(y[:, :channels], stride)


def _windows(n: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    """How many windows max pooling has along an axis of n; none starts behind the input."""
    room = n + 2 * padding - kernel
    if not ceil_mode:
        return room // stride + 1
    count = -(-room // stride) + 1
    return count - 1 if (count - 1) * stride >= n + padding else count


def _with_channels(x: Tensor, more: int) -> Tensor:
    """With so many more channels of zeros."""
    return F.pad(x, (0, 0, 0, 0, 0, more)) if more else x
