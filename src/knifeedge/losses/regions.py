"""Overlap losses, Dice and Tversky, and the names of all losses of a whole region."""

from torch import Tensor

from knifeedge.losses.counts import RegionLoss, check_smooth, loss_of_counts
from knifeedge.losses.cross_entropy import probability
from knifeedge.losses.ranking import APLoss, LovaszHingeLoss
from knifeedge.losses.soft_f1 import AnyLossF1, SoftF1Loss
from knifeedge.losses.threshold_f1 import HeavisideF1Loss, ScoreOrientedLoss


def dice_loss(
    pred: Tensor,
    target: Tensor,
    *,
    smooth: float = 1.0,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """Soft Dice, `1 - (2 sum(p y) + s) / (sum(p) + sum(y) + s)`, over all pixels of a batch.

    Sums are plain, not of squares as in the V-Net paper (Milletari et al., "V-Net: Fully
    Convolutional Neural Networks for Volumetric Medical Image Segmentation", 2016). Without a
    positive it is `fp / (fp + s)`, with positives only `fn / (2 tp + fn + s)`, where fp = sum(p)
    and fn = sum(1 - p).

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; soft ones count fractionally.
        smooth: the s above, in pixels.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> import torch
    >>> dice_loss(torch.zeros(2), torch.tensor([1.0, 0.0]), smooth=0)
    tensor(0.5000)
    """
    return tversky_loss(
        pred, target, alpha=0.5, beta=0.5, smooth=smooth, from_logits=from_logits, mask=mask
    )


def tversky_loss(
    pred: Tensor,
    target: Tensor,
    *,
    alpha: float = 0.3,
    beta: float = 0.7,
    smooth: float = 1.0,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """Dice with a price for each kind of error: `1 - (tp + s/2) / (tp + a fp + b fn + s/2)`.

    tp = sum(p y), fp = sum(p (1 - y)), fn = sum((1 - p) y) over all pixels of a batch. Halves
    make it Dice, with the same s. (Salehi et al., "Tversky Loss Function for Image Segmentation
    Using 3D Fully Convolutional Deep Networks", 2017.) Without a positive it is
    `a fp / (a fp + s/2)`, with positives only `b fn / (tp + b fn + s/2)`.

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; soft ones count fractionally.
        alpha: price of a false positive, the a above.
        beta: price of a false negative, the b above.
        smooth: the s above, in pixels.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> import torch
    >>> tversky_loss(torch.zeros(2), torch.tensor([1.0, 0.0]), alpha=0, beta=1, smooth=0)
    tensor(0.5000)
    """
    _check_prices(alpha, beta)
    return loss_of_counts(
        lambda x: probability(x, from_logits),
        pred,
        target,
        mask,
        from_logits=from_logits,
        smooth=smooth,
        alpha=alpha,
        beta=beta,
    )


class DiceLoss(RegionLoss):
    """See `dice_loss`."""

    function = staticmethod(dice_loss)

    def __init__(self, *, smooth: float = 1.0, from_logits: bool = True) -> None:
        check_smooth(smooth)
        super().__init__(smooth=smooth, from_logits=from_logits)


class TverskyLoss(RegionLoss):
    """See `tversky_loss`."""

    function = staticmethod(tversky_loss)

    def __init__(
        self,
        *,
        alpha: float = 0.3,
        beta: float = 0.7,
        smooth: float = 1.0,
        from_logits: bool = True,
    ) -> None:
        _check_prices(alpha, beta)
        check_smooth(smooth)
        super().__init__(alpha=alpha, beta=beta, smooth=smooth, from_logits=from_logits)


REGION_LOSSES: dict[str, type[RegionLoss]] = {
    "dice": DiceLoss,
    "tversky": TverskyLoss,
    "lovasz_hinge": LovaszHingeLoss,
    "soft_f1": SoftF1Loss,
    "anyloss_f1": AnyLossF1,
    "heaviside_f1": HeavisideF1Loss,
    "score_oriented": ScoreOrientedLoss,
    "ap": APLoss,
}


def _check_prices(alpha: float, beta: float) -> None:
    if not (0 <= alpha < float("inf") and 0 <= beta < float("inf") and alpha + beta > 0):
        raise ValueError(
            f"alpha and beta must be >= 0 and finite and not both 0, got {alpha} and {beta}; "
            f"the paper's are 0.3 and 0.7"
        )
