"""The adjusted loss: any per-element loss times (adjuster + delta) (the paper's equation LAdj)."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from knifeedge.adjuster import adjuster_weight
from knifeedge.distance import (
    DistanceWeight,
    check_decay,
    check_distance_weight,
    check_tensors,
    check_window,
)
from knifeedge.losses.counts import RegionLoss
from knifeedge.losses.cross_entropy import probability
from knifeedge.losses.inputs import check_per_element, prepare
from knifeedge.losses.online import OnlineThreshold
from knifeedge.losses.reduction import PixelLoss, Reduction, Terms

BaseLoss = Callable[[Tensor, Tensor], Tensor]


class AdjustedLoss(PixelLoss):
    """Binarization-aware version of any loss: the mean of `(adjuster + delta) * base`.

    The base is one of the losses here, or any callable `base(pred, target)` that returns one
    value per element (torch's with `reduction="none"`, and others of that kind; such a one does
    not see the mask, only its zeroed-out pixels). Its own reduction is not used.

    The gradient flows through the adjuster as in the paper; see `detach_weight`.

    Args:
        base: the loss to adjust.
        threshold: the decision threshold, in (0, 1), or one per column (dimension 1); "online", or
            an `OnlineThreshold` with settings of one's own, finds it while training.
        window: distance from the threshold at which a right decision stops counting.
        decay: how long the weight stays near 1 inside the window (the paper's b).
        delta: constant added to the adjuster; 0 leaves confidently right elements without loss.
        weight: another distance weight function in place of the exponential one; checked.
        detach_weight: make the adjuster a pure reweighting, without a gradient of its own.
        from_logits: whether predictions are logits; by default what the base takes, and logits
            for a callable.
        reduction: "mean", "sum" or "none".

    >>> loss = AdjustedLoss(nn.BCEWithLogitsLoss(reduction="none"), threshold=0.5)
    >>> loss(torch.tensor([4.0, -4.0]), torch.tensor([1.0, 1.0]))
    tensor(4.0272)
    """

    threshold: float | Tensor | OnlineThreshold

    def __init__(
        self,
        base: BaseLoss,
        threshold: float | Sequence[float] | Tensor | Literal["online"] | OnlineThreshold = 0.7,
        window: float = 0.2,
        decay: float = 16.0,
        delta: float = 1.0,
        *,
        weight: DistanceWeight | None = None,
        detach_weight: bool = False,
        from_logits: bool | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(from_logits=_agreed(base, from_logits), reduction=reduction)
        check_base(base)
        check_adjuster(window, decay, delta, weight)
        self.base = base
        if isinstance(threshold, str):
            if threshold != "online":
                raise ValueError(f"threshold must be a number or 'online', got {threshold!r}")
            threshold = OnlineThreshold()
        if isinstance(threshold, OnlineThreshold):
            self.threshold = threshold
        elif isinstance(threshold, float | int):
            self.threshold = _check_threshold(threshold)
        else:
            # Not in the state dict: a threshold is a setting, not a weight.
            self.register_buffer("threshold", _check_column(threshold), persistent=False)
        self.window, self.decay, self.delta = float(window), float(decay), float(delta)
        self.weight, self.detach_weight = weight, detach_weight
        # A foreign base or weight may hold parameters of its own.
        self.fusible = isinstance(base, PixelLoss) and base.fusible and weight is None

    def forward(self, pred: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The loss of a prediction. An online threshold learns from it while gradients are on."""
        online = self.threshold if isinstance(self.threshold, OnlineThreshold) else None
        if online is not None and self.training and torch.is_grad_enabled():
            check_tensors(pred=pred)
            seen = prepare(pred.detach(), target, mask, from_logits=self.from_logits)
            online.update(probability(seen[0], self.from_logits), *seen[1:])
        return self.judge(pred, target, mask=mask)

    def judge(self, pred: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The loss of a prediction from which an online threshold learns nothing."""
        return super().forward(pred, target, mask=mask)

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element."""
        threshold = self.threshold
        if isinstance(threshold, OnlineThreshold):
            threshold = threshold.value.clone()  # it may move again before the backward pass
        adjuster = adjuster_weight(
            probability(pred, self.from_logits),
            target,
            threshold=threshold,
            window=self.window,
            decay=self.decay,
            weight=self.weight,
        )
        if self.detach_weight:
            adjuster = adjuster.detach()
        if isinstance(self.base, PixelLoss):
            values = self.base.values(pred, target, mask)
        else:
            values = self.base(pred, target)
        return (adjuster + self.delta) * check_per_element(values, pred, base_name(self.base))

    def terms(self) -> Terms | None:
        """Those of the base, with the adjuster's."""
        base, threshold = self.base, self.threshold
        terms = base.terms() if isinstance(base, PixelLoss) else None
        if terms is None or terms.threshold is not None or self.weight is not None:
            return None
        if type(self).values is not AdjustedLoss.values:
            return None
        if isinstance(threshold, OnlineThreshold):
            threshold = threshold.value
        return Terms(
            terms.balance, threshold, self.window, self.decay, self.delta, self.detach_weight
        )

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        threshold = self.threshold
        shown: object = threshold.tolist() if isinstance(threshold, Tensor) else threshold
        if isinstance(threshold, OnlineThreshold):
            shown = "online"
        settings = f"threshold={shown}, window={self.window}, decay={self.decay}"
        return f"{settings}, delta={self.delta}, {super().extra_repr()}"


def check_base(base: BaseLoss) -> None:
    """Refuse, at construction, a base that can be seen to reduce or not to be a loss."""
    if not callable(base):
        raise TypeError(f"base must be a loss or a callable, got {type(base).__name__}")
    if isinstance(base, type):
        raise TypeError(f"base must be a loss, got the class {base.__name__}; write its brackets")
    if isinstance(base, AdjustedLoss) and isinstance(base.threshold, OnlineThreshold):
        raise ValueError(
            "base must not find a threshold itself; give the outer loss threshold='online'"
        )
    if isinstance(base, RegionLoss):
        raise ValueError(
            f"{base_name(base)} must return one value per element, but is one of the losses of "
            f"whole regions; adjust a pixel loss such as WBCELoss"
        )
    reduction = getattr(base, "reduction", "none")
    if not isinstance(base, PixelLoss) and reduction in ("mean", "sum"):
        raise ValueError(
            f"{base_name(base)} must return one value per element, but has "
            f'reduction={reduction!r}; construct it with reduction="none"'
        )


def base_name(base: BaseLoss) -> str:
    """What an error calls a base."""
    return f"base {type(base).__name__}"


def check_adjuster(
    window: float, decay: float, delta: float, weight: DistanceWeight | None
) -> None:
    """Refuse settings that do not make an adjuster."""
    check_window(window)
    check_decay(decay)
    if not 0 <= delta < float("inf"):
        raise ValueError(f"delta must be >= 0 and finite, got {delta}; the paper's is 1")
    if weight is not None:
        check_distance_weight(weight, window=window)


def _check_column(threshold: Sequence[float] | Tensor) -> Tensor:
    """Thresholds of several columns, as a tensor of its own."""
    if isinstance(threshold, Tensor) and threshold.requires_grad:
        raise ValueError(
            "threshold must not require a gradient: it is a setting, and would not learn; "
            "'online' finds it"
        )
    try:
        column = torch.as_tensor(threshold, dtype=torch.float32).clone()
    except (TypeError, ValueError, RuntimeError):
        column = torch.zeros(0)
    if column.numel() == 0:
        raise ValueError(
            f"threshold must be a number, one for each column, or 'online', got {threshold!r}"
        )
    for value in column.flatten().tolist():
        _check_threshold(value)
    return column


def _check_threshold(threshold: float) -> float:
    if not 0 < threshold < 1:
        raise ValueError(
            f"threshold must lie in (0, 1), got {threshold}; it is a probability, not a logit"
        )
    return float(threshold)


def _agreed(base: BaseLoss, from_logits: bool | None) -> bool:
    takes = True
    if isinstance(base, PixelLoss):
        takes = base.from_logits
    elif isinstance(base, nn.BCELoss):
        takes = False
    elif from_logits is not None:
        takes = from_logits
    if from_logits not in (None, takes):
        raise ValueError(
            f"from_logits={from_logits} does not fit: {base_name(base)} takes "
            f"{'logits' if takes else 'probabilities'}; that is said where it is constructed"
        )
    return takes
