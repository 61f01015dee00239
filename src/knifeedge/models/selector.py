"""The selector "Double" of EES: for each pixel, how much to trust each feature channel.

As it ran in the paper it is convolutional: its transformer layers were computed but never reached
the output. `attention=True` adds them so that they do.

From scratch, as in the paper: Xavier normal convolutions, biases 0, gates 1; the transformer
layers have PyTorch's default.
"""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knifeedge.models.geometry import check_images, crop, double_cornered, grow

CHANNELS = (64, 128, 256, 512, 1024)
# The two deepest levels have attention, where it is asked for.
ATTENTION_LEVELS = (3, 4)
ATTENTION_LAYERS = 6
ATTENTION_HEADS = 8


class Down(nn.Module):
    """Convolution, batch norm, leaky ReLU, average pooling 3/2, convolution."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(N, in, h, w) to (N, out, ceil(h / 2), ceil(w / 2))."""
        x = F.leaky_relu(self.norm(self.conv1(x)), inplace=True)
        x = F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False)
        result: Tensor = self.conv2(x)
        return result


class Up(nn.Module):
    """Convolution, batch norm, leaky ReLU, bicubic x2, convolution, blended with the skip.

    The blend is (up + g skip) / (1 + g) with g learned. The pooling on the way down centres its
    windows on the even pixels, so the upsampling is a cornered one: the paper's code shifts by
    half a pixel here at every level, which adds up to 7.5.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, in_channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(in_channels)
        self.conv2 = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.gate = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """(N, in, ceil(h / 2), ceil(w / 2)) and (N, out, h, w) to (N, out, h, w)."""
        x = F.leaky_relu(self.norm(self.conv1(x)), inplace=True)
        x = self.conv2(double_cornered(x, skip.shape[-2:]))
        return x + self.gate / (1 + self.gate) * (skip - x)


class Attention(nn.Module):
    """Six post-norm transformer layers between all places of a map, without a position code."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                channels,
                ATTENTION_HEADS,
                dim_feedforward=4 * channels,
                dropout=0.0,
                layer_norm_eps=1e-6,
                batch_first=True,
            )
            for _ in range(ATTENTION_LAYERS)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, h, w) to the same."""
        places: Tensor = x.flatten(2).transpose(1, 2)
        for layer in self.layers:
            places = layer(places)
        return places.transpose(1, 2).reshape(x.shape)


class Selector(nn.Module):
    """A U-shaped network from an image to a score per feature channel and pixel.

    Args:
        channels: how many feature channels there are to choose from.
        attention: whether the two deepest levels have transformer layers.
    """

    def __init__(self, channels: int, *, attention: bool = False) -> None:
        super().__init__()
        # No activation between these two, as in the original.
        self.stem = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.Conv2d(32, CHANNELS[0], 3, padding=1),
            nn.BatchNorm2d(CHANNELS[0]),
            nn.LeakyReLU(inplace=True),
        )
        steps = list(itertools.pairwise(CHANNELS))
        self.downs = nn.ModuleList(Down(shallow, deep) for shallow, deep in steps)
        self.ups = nn.ModuleList(Up(deep, shallow) for shallow, deep in reversed(steps))
        self.head = nn.Sequential(
            nn.Conv2d(CHANNELS[0], 128, 3, padding=1),
            nn.BatchNorm2d(128),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(128, 256, 1),
            nn.BatchNorm2d(256),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(256, channels, 1),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.xavier_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.attention = nn.ModuleList(
            Attention(CHANNELS[level]) if attention and level in ATTENTION_LEVELS else nn.Identity()
            for level in range(1, len(CHANNELS))
        )

    def forward(self, images: Tensor) -> Tensor:
        """Scores (N, channels, H, W); their softmax over the channels are the weights."""
        check_images(images)
        return crop(self.maps(grow(images)), images.shape[-2:])

    def maps(self, images: Tensor) -> Tensor:
        """`forward` of images that were continued."""
        x = self.stem(images)
        skips = []
        for down, attention in zip(self.downs, self.attention, strict=True):
            skips.append(x)
            x = attention(down(x))
        for up in self.ups:
            x = up(x, skips.pop())
        scores: Tensor = self.head(x)
        return scores
