"""What the losses of a whole region share: their Module, and the soft counts of decisions.

A region loss has one value for all the elements that count, and none per element: it has no
`reduction`, and cannot be the base of an `AdjustedLoss`. Most of them are one formula of the
soft counts of right and wrong decisions, with another soft decision q in the place of `p > t`:

    tp = sum(q y),  fp = sum(q (1 - y)),  fn = sum((1 - q) y)

Labels between 0 and 1 count as a fraction of each class. The counts are of the whole batch and,
while gradients are recorded, of all ranks.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from knifeedge.losses.cross_entropy import PROB_EPS
from knifeedge.losses.inputs import prepare
from knifeedge.losses.reduction import sum_over_ranks

# A soft decision for each element, from a prediction that `prepare` has seen.
Decide = Callable[[Tensor], Tensor]

# Fewer elements than this are none: the square of their inverse, in the gradient of a ratio,
# must not overflow float32.
COUNT_EPS = 1e-12


class RegionLoss(nn.Module):
    """Base of the losses of a whole region: keeps the settings of a function and calls it.

    Args:
        from_logits: whether predictions are logits; otherwise they are probabilities.
        settings: the function's other options.
    """

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, *, from_logits: bool = True, **settings: Any) -> None:
        super().__init__()
        self.from_logits = from_logits
        self.settings = settings

    def forward(self, pred: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The loss of a prediction; see the function of the same name."""
        loss = type(self).function
        return loss(pred, target, from_logits=self.from_logits, mask=mask, **self.settings)

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        settings = {**self.settings, "from_logits": self.from_logits}
        return ", ".join(f"{key}={value!r}" for key, value in settings.items())


def loss_of_counts(
    decide: Decide,
    pred: Tensor,
    target: Tensor,
    mask: Tensor | None,
    *,
    from_logits: bool,
    smooth: float,
    alpha: float = 0.5,
    beta: float = 0.5,
) -> Tensor:
    """`1 - (2 tp + smooth) / (2 tp + 2 alpha fp + 2 beta fn + smooth)`, written without the 1.

    With alpha = beta = 1/2 this is 1 - F1. Where nothing is there to count, with an empty mask or
    with no positive, no decision and no `smooth`, it is 0 with zero gradient.
    """
    check_smooth(smooth)
    pred, target, mask = prepare(pred, target, mask, from_logits=from_logits)
    tp, fp, fn = sum_over_ranks(soft_counts(decide(pred), target, mask)).unbind()
    wrong = 2 * (alpha * fp + beta * fn)
    total = 2 * tp + wrong + smooth
    counts = total > COUNT_EPS
    return (wrong / total.where(counts, 1.0)).where(counts, 0.0)


def soft_counts(decision: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
    """True positives, false positives and false negatives of soft decisions, as one tensor.

    >>> soft_counts(torch.tensor([0.9, 0.2, 0.5]), torch.tensor([1.0, 1.0, 0.0]), None)
    tensor([1.1000, 0.5000, 0.9000])
    """
    if mask is not None:
        decision = decision.where(mask, 0.0)  # where the label is 0 already
    right = decision * target
    return torch.stack([right.sum(), (decision - right).sum(), (target - right).sum()])


def logit(pred: Tensor, from_logits: bool) -> Tensor:
    """The logit behind a prediction; a probability of 0 or 1 is taken at PROB_EPS from it.

    The gradient is kept there: a prediction stuck at the wrong end is still pushed back, by a
    slope of 1 / PROB_EPS, which float16 does not hold: in half precision logits are better.
    """
    if from_logits:
        return pred
    inside = pred + (pred.clamp(PROB_EPS, 1 - PROB_EPS) - pred).detach()
    return inside.log() - (1 - inside).log()


def check_smooth(smooth: float) -> None:
    """Refuse a negative count."""
    if not 0 <= smooth < float("inf"):
        raise ValueError(f"smooth must be >= 0 and finite, got {smooth}; it counts elements")
