"""The adjuster for decisions with more than two outcomes (the paper's Discussion).

Each loss is `(adjuster + delta) * base`, as for two outcomes, with another distance from the
decision boundary. Two classes, or one threshold, give `AdjustedLoss`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from knifeedge.adjuster import bin_distance, class_margin, weigh_distance
from knifeedge.distance import DistanceWeight, at_least_float32
from knifeedge.losses.adjusted import BaseLoss, base_name, check_adjuster, check_base
from knifeedge.losses.buffers import PreciseBuffers
from knifeedge.losses.inputs import check_per_element, in_shape_of
from knifeedge.losses.reduction import Reduction, check_reduction, reduce


class _ManyValuedLoss(PreciseBuffers):
    """Settings and reduction shared by the two losses; they say the distance."""

    def __init__(
        self,
        base: BaseLoss,
        window: float = 0.2,
        decay: float = 16.0,
        delta: float = 1.0,
        *,
        weight: DistanceWeight | None = None,
        detach_weight: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        check_base(base)
        check_adjuster(window, decay, delta, weight)
        check_reduction(reduction)
        self.base, self.weight, self.detach_weight = base, weight, detach_weight
        self.window, self.decay, self.delta = float(window), float(decay), float(delta)
        self.reduction: Reduction = reduction

    def _adjust(self, distance: Tensor, values: object, mask: Tensor | None) -> Tensor:
        adjuster = weigh_distance(
            distance, window=self.window, decay=self.decay, weight=self.weight
        )
        if self.detach_weight:
            adjuster = adjuster.detach()
        values = check_per_element(values, distance, base_name(self.base))
        return reduce((adjuster + self.delta) * values, mask, self.reduction)

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        settings = f"window={self.window}, decay={self.decay}, delta={self.delta}"
        return f"{settings}, reduction={self.reduction!r}"


class AdjustedClassLoss(_ManyValuedLoss):
    """Adjusted loss for K exclusive classes: see `class_margin` for the distance.

    Args:
        base: a loss with one value per element, such as `CrossEntropyLoss(reduction="none")`. What
            its `ignore_index` marks is left out, as with a mask.
        window, decay, delta, weight, detach_weight, reduction: as in `AdjustedLoss`.

    >>> loss = AdjustedClassLoss(torch.nn.CrossEntropyLoss(reduction="none"))
    >>> loss(torch.tensor([[0.0, 2.0, 0.0]]), torch.tensor([1]))
    tensor(0.2395)
    """

    def forward(self, logits: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The loss of (N, K, ...) logits against (N, ...) class indices."""
        shape = tuple(logits.shape)
        if len(shape) < 2 or shape[1] < 2 or target.shape != shape[:1] + shape[2:]:
            raise ValueError(
                f"target must hold class indices (N, ...) for logits (N, K, ...) of at least two "
                f"classes, got {tuple(target.shape)} for {shape}"
            )
        logits = at_least_float32(logits)
        if mask is not None:
            mask = in_shape_of(target, mask, names=("target", "mask")).bool()
        ignored = getattr(self.base, "ignore_index", None)
        if ignored is not None:
            mask = target != ignored if mask is None else mask & (target != ignored)
        if mask is not None:
            logits = logits.where(mask.unsqueeze(1), 0.0)
            target = target.where(mask, 0)
        distance = class_margin(logits.softmax(dim=1), target)
        return self._adjust(distance, self.base(logits, target.long()), mask)


class AdjustedBinLoss(_ManyValuedLoss):
    """Adjusted loss for a scalar that is read off in ordered bins: see `bin_distance`.

    The right bin is the one the target falls into; a value on a boundary belongs to the bin
    above it, as `prob >= threshold` does.

    Args:
        base: a loss with one value per element, such as `MSELoss(reduction="none")`.
        thresholds: the boundaries, strictly increasing.
        window, decay, delta, weight, detach_weight, reduction: as in `AdjustedLoss`; the window
            is in the scalar's unit.

    >>> loss = AdjustedBinLoss(torch.nn.MSELoss(reduction="none"), thresholds=(1.0, 2.0))
    >>> loss(torch.tensor([1.9, 2.1]), torch.tensor([1.5, 1.5]))
    tensor(0.5066)
    """

    thresholds: Tensor

    def __init__(
        self,
        base: BaseLoss,
        thresholds: Sequence[float] | Tensor,
        window: float = 0.2,
        decay: float = 16.0,
        delta: float = 1.0,
        *,
        weight: DistanceWeight | None = None,
        detach_weight: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(
            base,
            window,
            decay,
            delta,
            weight=weight,
            detach_weight=detach_weight,
            reduction=reduction,
        )
        edges = torch.as_tensor(thresholds, dtype=torch.float32)
        rising = edges.ndim == 1 and len(edges) > 0 and bool((edges.diff() > 0).all())
        if not rising or not bool(edges.isfinite().all()):
            raise ValueError(
                f"thresholds must be a strictly increasing list of finite numbers, got "
                f"{edges.tolist()}"
            )
        self.register_buffer("thresholds", edges, persistent=False)

    def forward(self, value: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The loss of predicted scalars against true ones, of equal shapes."""
        if value.shape != target.shape or not value.is_floating_point():
            raise ValueError(
                f"value and target must be floats of equal shapes, got {tuple(value.shape)} "
                f"{value.dtype} and {tuple(target.shape)}"
            )
        value = at_least_float32(value)
        target = target.to(value.dtype)
        if mask is not None:
            mask = in_shape_of(value, mask, names=("value", "mask")).bool()
            value, target = value.where(mask, 0.0), target.where(mask, 0.0)
        edges = self.thresholds.to(value.dtype)
        bins = torch.bucketize(target, edges, right=True)
        return self._adjust(
            bin_distance(value, bins, thresholds=edges), self.base(value, target), mask
        )
