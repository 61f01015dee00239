"""Focal loss (Lin et al., "Focal Loss for Dense Object Detection", 2017)."""

from functools import partial

from torch import Tensor

from knifeedge.losses.cross_entropy import cross_entropy, probability
from knifeedge.losses.reduction import PixelLoss, Reduction, loss_of

# With gamma < 1 the slope of the focusing factor is infinite where the prediction is perfect;
# below this distance from it the factor is held constant instead.
FOCUS_EPS = 1e-12


def focal_loss(
    pred: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    from_logits: bool = True,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross entropy that fades where the prediction is already right: `a (1 - q)^gamma CE`.

    q = y p + (1-y)(1-p) is the probability of being right, a = alpha y + (1-alpha)(1-y).

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape.
        gamma: how strongly easy elements fade; 0 for not at all.
        alpha: weight of the positive class, or None for no class weights.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.
        reduction: "mean", "sum" or "none".

    >>> import torch
    >>> focal_loss(torch.tensor([0.0]), torch.tensor([1.0]))
    tensor(0.0433)
    """
    _check(gamma, alpha)
    values = partial(_focal, from_logits=from_logits, gamma=gamma, alpha=alpha)
    return loss_of(values, pred, target, mask, from_logits=from_logits, reduction=reduction)


class FocalLoss(PixelLoss):
    """See `focal_loss`."""

    fusible = True

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        alpha: float | None = 0.25,
        from_logits: bool = True,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(from_logits=from_logits, reduction=reduction)
        _check(gamma, alpha)
        self.gamma, self.alpha = gamma, alpha

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        return f"gamma={self.gamma}, alpha={self.alpha}, {super().extra_repr()}"

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element."""
        return _focal(
            pred, target, mask, from_logits=self.from_logits, gamma=self.gamma, alpha=self.alpha
        )


def _focal(
    pred: Tensor,
    target: Tensor,
    mask: Tensor | None,
    *,
    from_logits: bool,
    gamma: float,
    alpha: float | None,
) -> Tensor:
    prob = probability(pred, from_logits)
    wrong = (target + prob - 2 * target * prob).clamp(min=FOCUS_EPS)
    values = wrong**gamma * cross_entropy(pred, target, mask, from_logits=from_logits)
    return values if alpha is None else (alpha * target + (1 - alpha) * (1 - target)) * values


def _check(gamma: float, alpha: float | None) -> None:
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"gamma must be >= 0 and finite, got {gamma}; 0 is plain cross entropy")
    if alpha is not None and not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie in [0, 1], got {alpha}; None is no class weights")
