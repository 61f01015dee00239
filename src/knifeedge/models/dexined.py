"""DexiNed, dense extreme inception network for edges (Poma et al., 2020), without its dead parts.

The original builds a fifth side block and batch norms on its fusion that never reach an output;
they are left out here.

From scratch, as in the paper: Xavier normal weights, biases 0.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from knifeedge.models.base import SideOutputModel
from knifeedge.models.lowering import ByEights, Score, Transposed, max_pool
from knifeedge.models.registry import register_model


def skip(in_channels: int, out_channels: int, stride: int = 1) -> nn.Sequential:
    """A 1x1 convolution with batch norm.

    >>> skip(4, 8, 2)[0].stride
    (2, 2)
    """
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride), nn.BatchNorm2d(out_channels)
    )


def double_conv(
    in_channels: int,
    channels: int,
    out_channels: int,
    *,
    stride: int = 1,
    paddings: tuple[int, int] = (1, 1),
) -> nn.Sequential:
    """Two 3x3 convolutions with batch norm, the first strided, a ReLU between them.

    >>> len(double_conv(3, 32, 64, stride=2))
    5
    """
    return nn.Sequential(
        ByEights(in_channels, channels, 3, stride=stride, padding=paddings[0]),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(channels, out_channels, 3, padding=paddings[1]),
        nn.BatchNorm2d(out_channels),
    )


class DenseBlock(nn.Module):
    """Double convolutions in a row, each averaged with the same second input."""

    def __init__(self, depth: int, in_channels: int, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for _ in range(depth):
            # Padding 2 and then 0, as in the original: the same size, another border.
            self.layers.append(double_conv(in_channels, channels, channels, paddings=(2, 0)))
            in_channels = channels

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        """(N, in_channels, h, w) and (N, channels, h, w) to (N, channels, h, w)."""
        for layer in self.layers:
            x = 0.5 * (layer(F.relu(x)) + other)
        return x


class UpBlock(nn.Module):
    """Learned upsampling by 2^steps: 1x1 convolution, ReLU, transposed convolution, per step.

    Kernels have 2^steps taps. An even kernel puts feature i at 2i + 1/2 or at 2i - 1/2, while the
    strided convolutions took it from 2i. The original adds 1/2 at every step, together up to 7.5
    pixels; here the first of several steps subtracts it, which leaves half a pixel in all.
    """

    def __init__(self, in_channels: int, steps: int, side_channels: int) -> None:
        super().__init__()
        kernel = 2**steps
        inner = 16 if side_channels == 1 else side_channels
        self.mixes, self.ups = nn.ModuleList(), nn.ModuleList()
        for step in range(steps):
            channels = side_channels if step == steps - 1 else inner
            extra = 1 if step == 0 and steps > 1 else 0
            self.mixes.append(Score(in_channels, channels))
            self.ups.append(
                Transposed(
                    channels,
                    channels,
                    kernel,
                    stride=2,
                    padding=kernel // 2 - 1,
                    output_padding=extra,
                )
            )
            in_channels = channels

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, h, w) to (N, side_channels, 2^steps h, 2^steps w)."""
        for step, (mix, up) in enumerate(zip(self.mixes, self.ups, strict=True)):
            x = up(F.relu(mix(x), inplace=True))
            if step == 0 and len(self.ups) > 1:
                x = x[..., 1:, 1:]
        return x


@register_model("dexined", description="six densely linked blocks, learned upsampling")
class DexiNed(SideOutputModel):
    """Six blocks at strides 2, 2, 4, 8, 16, 16, each with a learned upsampling as side output.

    Args:
        side_channels: channels of each side output; 21 makes it an extractor for EES.
    """

    def __init__(self, *, side_channels: int = 1) -> None:
        super().__init__(6, side_channels)
        self.block1 = double_conv(3, 32, 64, stride=2)
        self.block2 = double_conv(64, 128, 128)
        self.block3 = DenseBlock(2, 128, 256)
        self.block4 = DenseBlock(3, 256, 512)
        self.block5 = DenseBlock(3, 512, 512)
        self.block6 = DenseBlock(3, 512, 256)
        self.side1 = skip(64, 128, 2)
        self.side2 = skip(128, 256, 2)
        self.side3 = skip(256, 512, 2)
        self.side4 = skip(512, 512)
        self.pre2 = skip(128, 256, 2)
        self.pre3 = skip(128, 256)
        self.pre4 = skip(256, 512)
        self.pre5 = skip(512, 512)
        self.pre6 = skip(512, 256)
        self.ups = nn.ModuleList(
            UpBlock(channels, steps, side_channels)
            for channels, steps in ((64, 1), (128, 1), (256, 2), (512, 3), (512, 4), (256, 4))
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                nn.init.xavier_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def maps(self, images: Tensor) -> list[Tensor]:
        """Side maps of the six blocks."""
        x1 = F.relu(self.block1(images), inplace=True)
        x2 = self.block2(x1)
        down2 = _halve(x2)
        sum2 = down2 + self.side1(x1)
        x3 = self.block3(sum2, self.pre3(down2))
        down3 = _halve(x3)
        sum3 = down3 + self.side2(sum2)
        x4 = self.block4(sum3, self.pre4(down3 + self.pre2(down2)))
        down4 = _halve(x4)
        sum4 = down4 + self.side3(sum3)
        x5 = self.block5(sum4, self.pre5(down4))
        x6 = self.block6(x5 + self.side4(sum4), self.pre6(x5))
        return [up(x) for up, x in zip(self.ups, (x1, x2, x3, x4, x5, x6), strict=True)]


def _halve(x: Tensor) -> Tensor:
    return max_pool(x, 3, stride=2, padding=1)
