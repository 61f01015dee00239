"""BDCN, the bi-directional cascade network (He et al., 2019), on a dilated VGG16.

Every convolution's activation passes a scale-enhancement module; their sums give each stage two
scores, one for the cascade from shallow to deep and one for deep to shallow.

From scratch, as in the paper: weights N(0, 0.01), the trunk's too; biases 0; the learned
upsampling bilinear; the fusion 0.08.
"""

import functools
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knifeedge.models.base import SideOutputModel
from knifeedge.models.geometry import bilinear_kernel, crop
from knifeedge.models.lowering import Transposed, continue_edges, pointwise
from knifeedge.models.registry import register_model
from knifeedge.models.vgg import STAGE_CHANNELS, STAGE_DEPTHS, load_vgg16, vgg16_trunk

SCALE_CHANNELS = 32
REDUCED_CHANNELS = 21
STRIDES = (1, 2, 4, 8, 8)


class ScaleEnhancement(nn.Module):
    """A 3x3 convolution to 32 channels, plus three dilated ones of it (4, 8, 12), summed."""

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, SCALE_CHANNELS, 3, padding=1)
        self.dilated = nn.ModuleList(
            nn.Conv2d(SCALE_CHANNELS, SCALE_CHANNELS, 3, padding=d, dilation=d) for d in (4, 8, 12)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, h, w) to (N, 32, h, w)."""
        x = F.relu(self.conv(x))
        total = x
        for conv in self.dilated:
            total = total + F.relu(conv(x))
        return total


class StageScore(nn.Module):
    """One stage's scores: its enhanced activations, reduced, summed, scored and upsampled.

    Args:
        channels, depth: of the VGG16 stage.
        stride: of its features.
        late: whether they are centred half a feature further on, as after the stride-1 pooling.
        side_channels: with 1, two scores (one for each cascade); with more, one map for both.
    """

    def __init__(
        self, channels: int, depth: int, stride: int, *, late: bool, side_channels: int
    ) -> None:
        super().__init__()
        single = side_channels == 1
        width = REDUCED_CHANNELS if single else side_channels
        self.enhance = nn.ModuleList(ScaleEnhancement(channels) for _ in range(depth))
        self.reduce = nn.ModuleList(nn.Conv2d(SCALE_CHANNELS, width, 1) for _ in range(depth))
        self.score = nn.Conv2d(width, 2, 1) if single else None
        # The kernel's centre is stride - 1/2, a feature's (stride - 1) / 2: half a stride is
        # cropped, none where the features are late; and a whole one more for the continued border.
        self.up = (
            Transposed(
                side_channels,
                side_channels,
                2 * stride,
                stride=stride,
                padding=stride if late else stride + stride // 2,
                bias=False,
            )
            if stride > 1
            else None
        )

    def forward(self, activations: list[Tensor]) -> tuple[Tensor, Tensor]:
        """The maps for the two cascades, shallow to deep first."""
        parts = zip(self._linear_maps(), self.enhance, activations, strict=True)
        total = functools.reduce(torch.add, [pointwise(enhance(x), *m) for m, enhance, x in parts])
        if self.score is None:
            both = self._upsample(total)
            return both, both
        # The two scores share the upsampling kernel: they pass it as one batch.
        n = total.shape[0]
        both = self._upsample(torch.cat(total.chunk(2, dim=1)))
        return both[:n], both[n:]

    def _linear_maps(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias for each enhanced activation: its reduction, and the score of that.

        score(sum of reduce(e)) is linear in e, so the two are multiplied first: their product is
        2 x 32 numbers, and there are no maps of 21 channels.
        """
        pairs: list[tuple[Tensor, Tensor]] = [
            (weight, bias) for weight, bias in (r.parameters() for r in self.reduce)
        ]
        if self.score is None:
            return pairs
        score, constant = self.score.parameters()  # (2, 21, 1, 1) and (2,)
        # As products and sums, which autocast leaves in float32.
        weights = [(score * weight.squeeze(-1)).sum(1).unsqueeze(-1) for weight, _ in pairs]
        biases = [(score[:, :, 0, 0] * bias).sum(1) for _, bias in pairs]
        return list(zip(weights, [biases[0] + constant, *biases[1:]], strict=True))

    def _upsample(self, x: Tensor) -> Tensor:
        if self.up is None:
            return x
        # Continued by one feature, so that the logits do not fade to 0 at the border.
        result: Tensor = self.up(continue_edges(x))
        return result


@register_model("bdcn", description="dilated VGG16 with scale enhancement and two cascades")
class BDCN(SideOutputModel):
    """Five stages, two cascades: ten side outputs, five shallow to deep and five deep to shallow.

    In a cascade each output is its stage's own map plus the sum of those before it, which passes
    no gradient.

    Args:
        side_channels: channels of each side output; 21 makes it an extractor for EES.
        vgg16: a local file of torchvision's vgg16 weights; from scratch without it.
    """

    def __init__(self, *, side_channels: int = 1, vgg16: str | Path | None = None) -> None:
        super().__init__(2 * len(STAGE_CHANNELS), side_channels)
        self.trunk = vgg16_trunk(dilated=True)
        last = len(STAGE_CHANNELS) - 1
        self.stages = nn.ModuleList(
            StageScore(channels, depth, stride, late=i == last, side_channels=side_channels)
            for i, (channels, depth, stride) in enumerate(
                zip(STAGE_CHANNELS, STAGE_DEPTHS, STRIDES, strict=True)
            )
        )
        self._initialise()
        if vgg16 is not None:
            load_vgg16(self.trunk, vgg16)

    def maps(self, images: Tensor) -> list[Tensor]:
        """Side maps of the two cascades."""
        pairs, x = [], images
        for stage, scores in zip(self.trunk, self.stages, strict=True):
            activations = stage(x)
            x = activations[-1]
            down, up = (crop(score, images.shape[-2:]) for score in scores(activations))
            pairs.append((down, up))
        deeper = _cascade([down for down, _ in pairs])
        shallower = _cascade([up for _, up in reversed(pairs)])
        return [*deeper, *reversed(shallower)]

    @torch.no_grad()
    def _initialise(self) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.ConvTranspose2d):
                kernel = bilinear_kernel(module.stride[0]).to(module.weight)
                eye = torch.eye(module.in_channels).to(module.weight)
                module.weight.copy_(eye[:, :, None, None] * kernel)
        for module in (self.fuse, *self.heads):
            if isinstance(module, nn.Conv2d):
                nn.init.constant_(module.weight, 0.08)


def _cascade(maps: list[Tensor]) -> list[Tensor]:
    """Each map plus the detached sum of those before it, which is the detached output before."""
    outputs = maps[:1]
    for own in maps[1:]:
        outputs.append(own + outputs[-1].detach())
    return outputs
