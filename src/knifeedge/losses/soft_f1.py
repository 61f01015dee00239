"""Surrogates of 1 - F1: one formula, with another soft decision q in the place of `p > t`.

    1 - (2 tp + s) / (2 tp + fp + fn + s),  with the soft counts of `knifeedge.losses.counts`

over all pixels of a batch. The papers have no s; `smooth=0` is their formula. With s, a batch
without a positive is not constant: there the loss is `fp / (fp + s)`, fp = sum(q). With positives
only it is `fn / (2 tp + fn + s)`, fn = sum(1 - q).
"""

from torch import Tensor

from knifeedge.losses.counts import RegionLoss, check_smooth, logit, loss_of_counts
from knifeedge.losses.cross_entropy import probability


def soft_f1_loss(
    pred: Tensor,
    target: Tensor,
    *,
    slope: float = 1.0,
    offset: float = 0.0,
    smooth: float = 1.0,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """sigmoidF1: 1 - F1 of the decisions `q = 1 / (1 + exp(-slope (z + offset)))`, z the logit.

    With slope 1 and offset 0, q is the probability and this is Dice. (Bénédict et al.,
    "sigmoidF1: A Smooth F1 Score Surrogate Loss for Multilabel Classification", 2021.)

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; soft ones count fractionally.
        slope: steepness of the decision; the paper's beta.
        offset: added to the logit; the paper's eta. A threshold t is `-log(t / (1 - t))`.
        smooth: added to numerator and denominator, in pixels.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> import torch
    >>> soft_f1_loss(torch.zeros(2), torch.tensor([1.0, 0.0]), smooth=0)
    tensor(0.5000)
    """
    _check_sigmoid(slope, offset)
    return loss_of_counts(
        lambda x: (slope * (logit(x, from_logits) + offset)).sigmoid(),
        pred,
        target,
        mask,
        from_logits=from_logits,
        smooth=smooth,
    )


def anyloss_f1(
    pred: Tensor,
    target: Tensor,
    *,
    amplification: float = 73.0,
    smooth: float = 1.0,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """AnyLoss: 1 - F1 of the decisions `q = 1 / (1 + exp(-L (p - 0.5)))`, p the probability.

    (Han et al., "AnyLoss: Transforming Classification Metrics into Loss Functions", 2024.)

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; soft ones count fractionally.
        amplification: the L above; how hard the decision at 0.5 is.
        smooth: added to numerator and denominator, in pixels.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> import torch
    >>> anyloss_f1(torch.tensor([3.0, -3.0]), torch.tensor([1.0, 0.0]), smooth=0) < 1e-9
    tensor(True)
    """
    _check_amplification(amplification)
    return loss_of_counts(
        lambda x: (amplification * (probability(x, from_logits) - 0.5)).sigmoid(),
        pred,
        target,
        mask,
        from_logits=from_logits,
        smooth=smooth,
    )


class SoftF1Loss(RegionLoss):
    """See `soft_f1_loss`."""

    function = staticmethod(soft_f1_loss)

    def __init__(
        self,
        *,
        slope: float = 1.0,
        offset: float = 0.0,
        smooth: float = 1.0,
        from_logits: bool = True,
    ) -> None:
        _check_sigmoid(slope, offset)
        check_smooth(smooth)
        super().__init__(slope=slope, offset=offset, smooth=smooth, from_logits=from_logits)


class AnyLossF1(RegionLoss):
    """See `anyloss_f1`."""

    function = staticmethod(anyloss_f1)

    def __init__(
        self, *, amplification: float = 73.0, smooth: float = 1.0, from_logits: bool = True
    ) -> None:
        _check_amplification(amplification)
        check_smooth(smooth)
        super().__init__(amplification=amplification, smooth=smooth, from_logits=from_logits)


def _check_sigmoid(slope: float, offset: float) -> None:
    if not 0 < slope < float("inf"):
        raise ValueError(f"slope must be > 0 and finite, got {slope}; 1 is the plain sigmoid")
    if not abs(offset) < float("inf"):
        raise ValueError(f"offset must be finite, got {offset}; 0 decides at probability 0.5")


def _check_amplification(amplification: float) -> None:
    if not 0 < amplification < float("inf"):
        raise ValueError(
            f"amplification must be > 0 and finite, got {amplification}; the paper's is 73"
        )
