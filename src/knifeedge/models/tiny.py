"""tiny: a model of ours below 100,000 parameters, for a CPU.

In the spirit of LDC and TEED: few channels and little depth. A full-resolution stage keeps the
edges crisp, three strided stages with ever larger depthwise kernels see the surroundings, and a
narrow way back up gives a side output at each scale. The final logit is chosen among them pixel by
pixel, with softmax weights from the full-resolution features: the idea of EES in small.

From scratch: He normal weights before a batch norm, PyTorch's default elsewhere.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knifeedge.models.geometry import check_images, crop, grow, upsample_cornered
from knifeedge.models.lowering import ByEights, Score
from knifeedge.models.registry import register_model

CHANNELS = (16, 32, 48, 48)
DEPTHS = (0, 1, 2, 1)
KERNELS = (3, 3, 5, 7)
DECODER_CHANNELS = 16


class ConvNorm(nn.Module):
    """A convolution with batch norm, which is folded into it in evaluation mode."""

    def __init__(
        self, in_channels: int, channels: int, kernel: int, *, stride: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        self.conv = ByEights(
            in_channels,
            channels,
            kernel,
            stride=stride,
            padding=kernel // 2,
            groups=groups,
            bias=False,
        )
        self.norm = nn.BatchNorm2d(channels)
        nn.init.kaiming_normal_(self.conv.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_channels, h, w) to (N, channels, ceil(h / stride), ceil(w / stride))."""
        conv, norm = self.conv, self.norm
        if self.training or norm.running_mean is None or norm.running_var is None:
            normed: Tensor = norm(conv(x))
            return normed
        scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
        weight = conv.weight * scale[:, None, None, None]
        bias = norm.bias - norm.running_mean * scale
        return F.conv2d(x, weight, bias, conv.stride, conv.padding, groups=conv.groups)


class Block(nn.Module):
    """A residual block: a depthwise convolution, then two 1x1 ones through twice the channels."""

    def __init__(self, channels: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = ConvNorm(channels, channels, kernel, groups=channels)
        self.expand = nn.Conv2d(channels, 2 * channels, 1)
        self.project = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, channels, h, w) to the same."""
        change: Tensor = self.project(F.relu(self.expand(self.depthwise(x)), inplace=True))
        return x + change


@register_model("tiny", description="ours, below 100,000 parameters, for a CPU")
class Tiny(nn.Module):
    """Four stages at strides 1, 2, 4 and 8, four side outputs, and a choice among them."""

    def __init__(self) -> None:
        super().__init__()
        self.stages, in_channels = nn.ModuleList(), 3
        for level, (channels, depth, kernel) in enumerate(
            zip(CHANNELS, DEPTHS, KERNELS, strict=True)
        ):
            self.stages.append(
                nn.Sequential(
                    ConvNorm(in_channels, channels, 3, stride=2 if level else 1),
                    nn.ReLU(inplace=True),
                    *(Block(channels, kernel) for _ in range(depth)),
                )
            )
            in_channels = channels
        width = DECODER_CHANNELS
        self.laterals = nn.ModuleList(
            nn.Conv2d(c, width, 1) if c != width else nn.Identity() for c in CHANNELS
        )
        self.refines = nn.ModuleList(ConvNorm(width, width, 3) for _ in CHANNELS)
        self.sides = nn.ModuleList(Score(width, 1) for _ in CHANNELS)
        self.choose = Score(width, len(CHANNELS))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Logits (N, 1, H, W) of the side outputs, fine to coarse, and last of the chosen one."""
        check_images(images)
        return [crop(logit, images.shape[-2:]) for logit in self.maps(grow(images))]

    def maps(self, images: Tensor) -> list[Tensor]:
        """`forward` of images that were continued."""
        size = images.shape[-2:]
        # Channels-last: twice as fast on a CPU with so few channels.
        x = images.contiguous(memory_format=torch.channels_last)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        y, sides = None, []
        for level in reversed(range(len(features))):
            y = self._descend(level, features[level], y)
            side = self.sides[level](y)
            sides.append(upsample_cornered(side, 2**level) if level else side)
        sides = [crop(side, size) for side in reversed(sides)]
        share = self.choose(y).softmax(dim=1)
        return [*sides, (torch.cat(sides, dim=1) * share).sum(dim=1, keepdim=True)]

    def _descend(self, level: int, feature: Tensor, coarser: Tensor | None) -> Tensor:
        """One step of the way back up: the stage's own features with what came from below."""
        x = self.laterals[level](feature)
        if coarser is not None:
            x = x + crop(upsample_cornered(coarser, 2), x.shape[-2:])
        return F.relu(self.refines[level](x), inplace=True)
