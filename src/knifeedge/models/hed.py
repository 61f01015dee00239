"""HED, holistically nested edge detection (Xie and Tu, 2015): a side output per VGG16 stage.

From scratch, as in the paper: PyTorch's default initialisation.
"""

from pathlib import Path

from torch import Tensor, nn

from knifeedge.models.base import SideOutputModel
from knifeedge.models.geometry import upsample_centred
from knifeedge.models.lowering import Score
from knifeedge.models.registry import register_model
from knifeedge.models.vgg import STAGE_CHANNELS, load_vgg16, vgg16_trunk


@register_model("hed", description="VGG16 with a side output per stage, fused")
class HED(SideOutputModel):
    """VGG16 to conv5_3; the last activation of each stage is scored and upsampled bilinearly.

    The upsampling equals the transposed convolutions with crop offsets 1, 2, 4, 8 of the original,
    but for a margin of half a stride, where those fade to a logit of 0 and this does not.

    Args:
        side_channels: channels of each side output; 21 makes it an extractor for EES.
        vgg16: a local file of torchvision's vgg16 weights; from scratch without it.
    """

    def __init__(self, *, side_channels: int = 1, vgg16: str | Path | None = None) -> None:
        super().__init__(len(STAGE_CHANNELS), side_channels)
        self.trunk = vgg16_trunk()
        if vgg16 is not None:
            load_vgg16(self.trunk, vgg16)
        self.scores = nn.ModuleList(Score(c, side_channels) for c in STAGE_CHANNELS)

    def maps(self, images: Tensor) -> list[Tensor]:
        """Side maps of the five stages."""
        maps, x = [], images
        for level, (stage, score) in enumerate(zip(self.trunk, self.scores, strict=True)):
            x = stage(x)[-1]
            maps.append(upsample_centred(score(x), 2**level))
        return maps
