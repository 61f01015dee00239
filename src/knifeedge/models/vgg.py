"""The VGG16 trunk of HED and BDCN: 13 convolutions in five stages, to conv5_3."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knifeedge.errors import CheckpointError
from knifeedge.models.lowering import ByEights, max_pool
from knifeedge.models.weights import first_few, misfits, read_weights

STAGE_CHANNELS = (64, 128, 256, 512, 512)
STAGE_DEPTHS = (2, 2, 3, 3, 3)

# Where torchvision's vgg16 keeps these 13 convolutions: "features.N.weight" and ".bias".
TORCHVISION_INDICES = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)


class VGGStage(nn.Module):
    """Max pooling (but for the first stage), then 3x3 convolutions, each with ReLU.

    Args:
        in_channels, channels, depth: the convolutions.
        pool_stride: stride of the 2x2 pooling before them; 0 for none.
        dilation: of the convolutions.
    """

    def __init__(
        self, in_channels: int, channels: int, depth: int, *, pool_stride: int, dilation: int = 1
    ) -> None:
        super().__init__()
        self.pool_stride = pool_stride
        self.convs = nn.ModuleList(
            ByEights(  # of all their channels only the image's 3 are no multiple of 8
                channels if i else in_channels, channels, 3, padding=dilation, dilation=dilation
            )
            for i in range(depth)
        )

    def forward(self, x: Tensor) -> list[Tensor]:
        """The activations after each convolution."""
        if self.pool_stride:
            x = max_pool(x, 2, stride=self.pool_stride, ceil_mode=True)
        activations = []
        for conv in self.convs:
            x = F.relu(conv(x), inplace=True)
            activations.append(x)
        return activations


def vgg16_trunk(*, dilated: bool = False) -> nn.ModuleList:
    """The five stages, with strides 1, 2, 4, 8 and 16.

    Args:
        dilated: BDCN's variant: pool4 has stride 1 and stage 5 dilation 2, so that it stays at
            stride 8. It is one feature smaller, and centred half a feature further on.

    >>> [len(stage.convs) for stage in vgg16_trunk()]
    [2, 2, 3, 3, 3]
    """
    trunk = nn.ModuleList()
    in_channels = 3
    for index, (channels, depth) in enumerate(zip(STAGE_CHANNELS, STAGE_DEPTHS, strict=True)):
        widened = dilated and index == 4
        stride = 0 if index == 0 else 1 if widened else 2
        dilation = 2 if widened else 1
        stage = VGGStage(in_channels, channels, depth, pool_stride=stride, dilation=dilation)
        trunk.append(stage)
        in_channels = channels
    return trunk


@torch.no_grad()
def load_vgg16(trunk: nn.ModuleList, path: str | Path) -> None:
    """Copy torchvision's vgg16 convolutions from a local file; its classifier is passed over.

    Raises:
        CheckpointError: naming what is missing or has another shape.

    >>> load_vgg16(vgg16_trunk(), "nowhere.pth")
    Traceback (most recent call last):
    ...
    knifeedge.errors.CheckpointError: there is no weights file nowhere.pth
    """
    state = read_weights(path)
    convs = [module for module in trunk.modules() if isinstance(module, nn.Conv2d)]
    wanted = {
        f"features.{index}.{kind}": own
        for conv, index in zip(convs, TORCHVISION_INDICES, strict=True)
        for kind, own in conv.named_parameters()
    }
    problems = misfits(state, wanted)
    if problems:
        raise CheckpointError(
            f"{path} does not hold torchvision's vgg16 weights: {first_few(problems)}"
        )
    for name, own in wanted.items():
        own.copy_(state[name])
