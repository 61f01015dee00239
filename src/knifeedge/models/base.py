"""What the paper's networks have in common: side maps at the image's size, and their fusion."""

import torch
from torch import Tensor, nn

from knifeedge.errors import ConfigError
from knifeedge.models.geometry import check_images, crop, grow
from knifeedge.models.lowering import Score


class SideOutputModel(nn.Module):
    """Base of networks with side outputs; subclasses say `maps` and build their layers.

    With one channel per side, the side maps are the side logits. With more, as in the extractors
    of EES, a 1x1 convolution turns each side into one logit. The final logit is a 1x1 convolution
    of all side maps.

    Args:
        sides: how many side outputs.
        side_channels: channels of each; 21 makes the model an extractor for EES.
    """

    def __init__(self, sides: int, side_channels: int) -> None:
        super().__init__()
        if side_channels < 1:
            raise ConfigError(f"side_channels must be >= 1, got {side_channels}; the usual is 1")
        self.side_channels = side_channels
        self.heads = nn.ModuleList(
            Score(side_channels, 1) if side_channels > 1 else nn.Identity() for _ in range(sides)
        )
        self.fuse = Score(sides * side_channels, 1)

    def maps(self, images: Tensor) -> list[Tensor]:
        """Side maps of images that were continued, at least as large as they are."""
        raise TypeError(f"{type(self).__name__} must define maps(images)")

    def side_maps(self, images: Tensor) -> list[Tensor]:
        """Side maps of any images, each (N, side_channels, H, W), before any sigmoid."""
        check_images(images)
        return [crop(side, images.shape[-2:]) for side in self.maps(grow(images))]

    def forward(self, images: Tensor) -> list[Tensor]:
        """Logits (N, 1, H, W) of the side outputs, and last of the fused one."""
        sides = self.side_maps(images)
        final = self.fuse(torch.cat(sides, dim=1))
        return [*(head(side) for head, side in zip(self.heads, sides, strict=True)), final]
