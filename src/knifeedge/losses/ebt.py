"""Edge-Boundary-Texture loss: WBCE with a third class for the pixels beside an edge.

(Shu, "Edge-Boundary-Texture Loss: A Tri-Class Generalization of Weighted Binary Cross-Entropy
for Enhanced Edge Detection", 2025.)
"""

from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from knifeedge.losses.cross_entropy import cross_entropy
from knifeedge.losses.reduction import PixelLoss, Reduction, count, loss_of, sum_over_ranks


def ebt_loss(
    pred: Tensor,
    target: Tensor,
    *,
    radius: int = 7,
    class_weights: Sequence[float] = (1.0, 0.8, 0.5),
    from_logits: bool = True,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross entropy weighted by three classes: edge, boundary (beside an edge), texture.

    `(1 - N_c / N) * class_weight_c * CE`, mixed by how much of a pixel belongs to each class c:
    edge y, boundary (1 - y) within a box of 2 * radius + 1 around any non-zero label, texture the
    rest. Counts are of the whole batch and of all ranks.

    Args:
        pred: logits, or probabilities with `from_logits=False`; (N, H, W) or (N, C, H, W).
        target: labels in [0, 1], of the same shape.
        radius: how far the boundary reaches from an edge, in pixels.
        class_weights: factors on edge, boundary and texture.
        from_logits: whether `pred` holds logits.
        mask: pixels that count; None for all. An empty mask gives 0.
        reduction: "mean", "sum" or "none".

    >>> target = torch.zeros(1, 1, 1, 4)
    >>> target[..., 0] = 1
    >>> ebt_loss(torch.zeros(1, 1, 1, 4), target, radius=1, reduction="none")
    tensor([[[[0.5199, 0.4159, 0.1733, 0.1733]]]])
    """
    _check(radius, class_weights)
    values = partial(_ebt, from_logits=from_logits, radius=radius, class_weights=class_weights)
    return loss_of(values, pred, target, mask, from_logits=from_logits, reduction=reduction)


class EBTLoss(PixelLoss):
    """See `ebt_loss`."""

    fusible = True

    def __init__(
        self,
        *,
        radius: int = 7,
        class_weights: Sequence[float] = (1.0, 0.8, 0.5),
        from_logits: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(from_logits=from_logits, reduction=reduction)
        _check(radius, class_weights)
        self.radius = radius
        self.class_weights = tuple(class_weights)

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        return f"radius={self.radius}, class_weights={self.class_weights}, {super().extra_repr()}"

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element."""
        return _ebt(
            pred,
            target,
            mask,
            from_logits=self.from_logits,
            radius=self.radius,
            class_weights=self.class_weights,
        )


def _ebt(
    pred: Tensor,
    target: Tensor,
    mask: Tensor | None,
    *,
    from_logits: bool,
    radius: int,
    class_weights: Sequence[float],
) -> Tensor:
    if pred.ndim < 3:
        raise ValueError(
            f"pred must be images, (N, H, W) or (N, C, H, W), got {tuple(pred.shape)}; "
            f"without neighbours there is no boundary class: take wbce_loss"
        )
    near = _dilate((target > 0).to(target.dtype), radius)
    # Masked pixels carry label 0; their boundary and texture must leave the counts too.
    seen = torch.ones_like(target) if mask is None else mask.to(target.dtype)
    classes = (target, (near - target) * seen, (1 - near) * seen)
    counts = torch.stack([*(c.sum() for c in classes), count(target, mask)])
    *numbers, total = sum_over_ranks(counts).unbind()
    shares = [n / total.clamp(min=1.0) for n in numbers]
    weight = sum(
        (1 - share) * factor * members
        for share, factor, members in zip(shares, class_weights, classes, strict=True)
    )
    return weight * cross_entropy(pred, target, mask, from_logits=from_logits)


def _dilate(image: Tensor, radius: int) -> Tensor:
    """Maximum over a box of 2 * radius + 1, cut off at the border; one axis at a time."""
    if image.numel() == 0:
        return image
    planes = image.flatten(0, -3).unsqueeze(1)
    size = 2 * radius + 1
    planes = F.max_pool2d(planes, (size, 1), stride=1, padding=(radius, 0))
    planes = F.max_pool2d(planes, (1, size), stride=1, padding=(0, radius))
    return planes.reshape(image.shape)


def _check(radius: int, class_weights: Sequence[float]) -> None:
    if not isinstance(radius, int) or radius < 0:
        raise ValueError(f"radius must be >= 0 and whole, got {radius} pixels; the paper's is 7")
    if len(class_weights) != 3 or any(not w >= 0 for w in class_weights):
        raise ValueError(
            f"class_weights must be three numbers >= 0 (edge, boundary, texture), "
            f"got {tuple(class_weights)}"
        )
