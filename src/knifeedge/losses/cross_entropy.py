"""Cross entropies, plain and class-balanced: the baselines the adjuster goes around.

Functions and Modules take logits by default, labels in [0, 1], and an optional mask of the
elements that count. `y` is the label, `p` the probability, `CE` their cross entropy.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from knifeedge.losses.reduction import (
    PixelLoss,
    Reduction,
    Terms,
    count,
    loss_of,
    sum_over_ranks,
)

# Probabilities are kept this far from 0 and 1 in a logarithm: the spacing of float32 below 1.
PROB_EPS = 1e-7


def bce_loss(
    pred: Tensor,
    target: Tensor,
    *,
    from_logits: bool = True,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Binary cross entropy, `CE = -y log p - (1 - y) log(1 - p)`.

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.
        reduction: "mean", "sum" or "none".

    >>> bce_loss(torch.tensor([0.0]), torch.tensor([1.0]))
    tensor(0.6931)
    """
    values = partial(cross_entropy, from_logits=from_logits)
    return loss_of(
        values, pred, target, mask, from_logits=from_logits, reduction=reduction, terms=Terms()
    )


def wbce_loss(
    pred: Tensor,
    target: Tensor,
    *,
    balance: float = 1.1,
    from_logits: bool = True,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Class-balanced cross entropy, the paper's baseline: `(y N-/N + balance (1-y) N+/N) CE`.

    N+ and N- count the labels of the whole batch, soft ones fractionally, and of all ranks.

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape.
        balance: factor on the negative class.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.
        reduction: "mean", "sum" or "none".

    >>> wbce_loss(torch.zeros(4), torch.tensor([1.0, 0.0, 0.0, 0.0]), reduction="none")
    tensor([0.5199, 0.1906, 0.1906, 0.1906])
    """
    _check_balance(balance)
    values, terms = partial(_wbce, from_logits=from_logits, balance=balance), Terms(balance)
    return loss_of(
        values, pred, target, mask, from_logits=from_logits, reduction=reduction, terms=terms
    )


def swbce_loss(
    pred: Tensor,
    target: Tensor,
    *,
    balance: float = 1.1,
    from_logits: bool = True,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Symmetrised WBCE: the mean of WBCE weighted by the label and by the prediction itself.

    The second weight takes p in the place of y, also in the counts, so that false alarms weigh
    like edges; the gradient flows through it. (Shu, "Rethinking Edge Detection through
    Perceptual Asymmetry: The SWBCE Loss", 2025.)

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape.
        balance: factor on the negative class.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.
        reduction: "mean", "sum" or "none".

    >>> swbce_loss(torch.zeros(2), torch.tensor([1.0, 0.0]), reduction="none")
    tensor([0.3552, 0.3726])
    """
    _check_balance(balance)
    values = partial(_swbce, from_logits=from_logits, balance=balance)
    return loss_of(values, pred, target, mask, from_logits=from_logits, reduction=reduction)


class BCELoss(PixelLoss):
    """See `bce_loss`."""

    fusible = True

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element."""
        return cross_entropy(pred, target, mask, from_logits=self.from_logits)

    def terms(self) -> Terms | None:
        """A plain cross entropy; a subclass with other values has none."""
        return Terms() if type(self).values is BCELoss.values else None


class WBCELoss(PixelLoss):
    """See `wbce_loss`."""

    fusible = True

    def __init__(
        self, *, balance: float = 1.1, from_logits: bool = True, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(from_logits=from_logits, reduction=reduction)
        _check_balance(balance)
        self.balance = balance

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        return f"balance={self.balance}, {super().extra_repr()}"

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element."""
        return _wbce(pred, target, mask, from_logits=self.from_logits, balance=self.balance)

    def terms(self) -> Terms | None:
        """A balanced cross entropy; a subclass with other values has none."""
        return Terms(self.balance) if type(self).values is WBCELoss.values else None


class SWBCELoss(WBCELoss):
    """See `swbce_loss`."""

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element."""
        return _swbce(pred, target, mask, from_logits=self.from_logits, balance=self.balance)


def cross_entropy(
    pred: Tensor, target: Tensor, mask: Tensor | None = None, *, from_logits: bool
) -> Tensor:
    """Cross entropy of each element; stable from logits, bounded from probabilities.

    At a probability of 0 or 1 the value is that at PROB_EPS from it, and the gradient is kept:
    a prediction stuck at the wrong end is still pushed back.
    """
    if from_logits:
        return F.binary_cross_entropy_with_logits(pred, target, reduction="none")
    inside = pred + (pred.clamp(PROB_EPS, 1 - PROB_EPS) - pred).detach()
    return -target * inside.log() - (1 - target) * (1 - inside).log()


def probability(pred: Tensor, from_logits: bool) -> Tensor:
    """The probability behind a prediction."""
    return pred.sigmoid() if from_logits else pred


def _wbce(
    pred: Tensor, target: Tensor, mask: Tensor | None, *, from_logits: bool, balance: float
) -> Tensor:
    return _class_balance(target, mask, balance) * cross_entropy(
        pred, target, mask, from_logits=from_logits
    )


def _swbce(
    pred: Tensor, target: Tensor, mask: Tensor | None, *, from_logits: bool, balance: float
) -> Tensor:
    by_label = _class_balance(target, mask, balance)
    by_prediction = _class_balance(probability(pred, from_logits), mask, balance)
    return (
        (by_label + by_prediction) / 2 * cross_entropy(pred, target, mask, from_logits=from_logits)
    )


def _class_balance(label: Tensor, mask: Tensor | None, balance: float) -> Tensor:
    """`y N-/N + balance (1-y) N+/N` for each element."""
    positives = label.sum() if mask is None else label.where(mask, 0.0).sum()
    positives, total = sum_over_ranks(torch.stack([positives, count(label, mask)])).unbind()
    share = positives / total.clamp(min=1.0)
    negative = balance * share
    return (label * (1 - share - negative)).add_(negative)


def _check_balance(balance: float) -> None:
    if not 0 < balance < float("inf"):
        raise ValueError(f"balance must be > 0 and finite, got {balance}; the paper's is 1.1")
