"""EES3: three frozen extractors, and a selector that mixes their features pixel by pixel.

The features are the sigmoids of the extractors' side maps, each extractor's between a plane of 0
and a plane of 1: 128 of DexiNed, 212 of BDCN and 107 of HED, 447 in all. The prediction is their
mean under the selector's softmax weights, a probability. The model returns its logit, so that
losses and predictions treat it like any other model; `PROBABILITY_MARGIN` keeps it finite.

Each extractor is trained alone (`create_model("hed", side_channels=21)` and so on), then given to
`ees3-double`, whose selector is trained.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from knifeedge.models.base import SideOutputModel
from knifeedge.models.bdcn import BDCN
from knifeedge.models.dexined import DexiNed
from knifeedge.models.hed import HED
from knifeedge.models.registry import register_model
from knifeedge.models.selector import Selector
from knifeedge.models.weights import load_into

EXTRACTOR_CHANNELS = 21

# The probability p becomes the logit of margin + (1 - 2 margin) p. The gradient stays below
# 1 / margin and, unlike with a clamp, does not vanish at the ends; float32 resolves 1 - 1e-6.
PROBABILITY_MARGIN = 1e-6


class EES(nn.Module):
    """Extractors and a selector; only the selector is trained.

    Args:
        extractors: models by name, in the order of their features. They are frozen: no gradient,
            and evaluation mode whatever the mode of the whole.
        attention: see `Selector`.
    """

    def __init__(
        self, extractors: Mapping[str, SideOutputModel], *, attention: bool = False
    ) -> None:
        super().__init__()
        self.extractors = nn.ModuleDict(extractors).requires_grad_(False)
        # A side map's channels each; two constant planes an extractor.
        channels = sum(len(e.heads) * e.side_channels + 2 for e in extractors.values())
        self.selector = Selector(channels, attention=attention)
        self.train()

    def train(self, mode: bool = True) -> "EES":
        """Set the selector's mode; the extractors stay in evaluation mode."""
        super().train(mode)
        self.extractors.eval()
        return self

    def features(self, images: Tensor) -> list[Tensor]:
        """Each extractor's features (N, C, H, W) without the constant planes, in [0, 1]."""
        with torch.no_grad():
            return [
                torch.cat(extractor.side_maps(images), dim=1).sigmoid_()  # type: ignore[operator]
                for extractor in self.extractors.values()
            ]

    def forward(self, images: Tensor) -> list[Tensor]:
        """The logit (N, 1, H, W) of the prediction, alone in its list."""
        # The features come first: what the extractors need meanwhile is gone before the selector
        # keeps its activations for the backward pass.
        features = self.features(images)
        prob = mix(self.selector(images), features).clamp(0, 1)
        return [torch.logit(PROBABILITY_MARGIN + (1 - 2 * PROBABILITY_MARGIN) * prob)]


def mix(scores: Tensor, features: list[Tensor]) -> Tensor:
    """Mean of features under softmax weights, each block between a plane of 0 and a plane of 1.

    Besides its inputs this holds the weights for the backward pass, and there one tensor of the
    gradient; a product of features and weights exists for one block at a time.

    Args:
        scores: (N, C, H, W), where C counts the features and two planes for each block.
        features: (N, c, H, W) blocks in [0, 1]; no gradient flows to them.

    Returns:
        (N, 1, H, W), float32 or wider.

    >>> block = torch.full((1, 2, 1, 1), 0.5)
    >>> mix(torch.zeros(1, 4, 1, 1), [block]).item()              # of 0, 0.5, 0.5 and 1
    0.5
    """
    result: Tensor = _Mix.apply(scores, *features)  # type: ignore[no-untyped-call]
    return result


class _Mix(torch.autograd.Function):
    """`mix`; its derivative by a score is weight * (feature - mean)."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, *features: Tensor) -> Tensor:
        weights = _softmax(scores)
        # Not in place: PyTorch 2.11 compiles a Function whose result was changed in place to one
        # without a gradient.
        mean = torch.zeros_like(weights[:, :1])
        for start, block in _blocks(features):
            stop = start + block.shape[1]
            mean = mean + (weights[:, start:stop] * block).sum(dim=1, keepdim=True)
            mean = mean + weights[:, stop : stop + 1]
        ctx.save_for_backward(weights, mean, *features)
        ctx.dtype = scores.dtype
        return mean

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weights, mean, *features = ctx.saved_tensors
        result = weights * grad
        for start, block in _blocks(features):
            stop = start + block.shape[1]
            result[:, start - 1 : start] *= -mean
            result[:, start:stop] *= block - mean
            result[:, stop : stop + 1] *= 1 - mean
        return result.to(ctx.dtype), *(None for _ in features)


def _blocks(features: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Each block with the channel where it starts; a plane of 0 precedes it, one of 1 follows."""
    starts = itertools.accumulate((block.shape[1] + 2 for block in features[:-1]), initial=1)
    return list(zip(starts, features, strict=True))


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the channels in float32 or wider, in the memory layout of the scores."""
    dtype = torch.promote_types(scores.dtype, torch.float32)
    if scores.is_contiguous(memory_format=torch.channels_last):
        # softmax(dim=1) would first copy these into the other layout.
        return scores.permute(0, 2, 3, 1).softmax(-1, dtype=dtype).permute(0, 3, 1, 2)
    return scores.softmax(1, dtype=dtype)


@register_model("ees3-double", description="frozen DexiNed, BDCN and HED with a learned selector")
def ees3_double(
    *,
    attention: bool = False,
    dexined: str | Path | None = None,
    bdcn: str | Path | None = None,
    hed: str | Path | None = None,
) -> EES:
    """EES3 with the selector "Double".

    Args:
        attention: add the selector's transformer layers, which never reached the output in the
            paper's runs.
        dexined, bdcn, hed: weights of the trained extractors, models of these names with
            `side_channels=21`; random without them.

    >>> with torch.device("meta"):                                # 105 million parameters
    ...     model = ees3_double()
    >>> model.selector.head[-1].out_channels
    447
    """
    extractors: dict[str, SideOutputModel] = {
        "dexined": DexiNed(side_channels=EXTRACTOR_CHANNELS),
        "bdcn": BDCN(side_channels=EXTRACTOR_CHANNELS),
        "hed": HED(side_channels=EXTRACTOR_CHANNELS),
    }
    for name, path in {"dexined": dexined, "bdcn": bdcn, "hed": hed}.items():
        if path is not None:
            load_into(extractors[name], path)
    return EES(extractors, attention=attention)
