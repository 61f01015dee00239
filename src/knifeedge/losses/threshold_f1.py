"""Surrogates of 1 - F1 at a threshold: a step of three lines, and a threshold drawn at random.

The formula, with its s and its values where a class is missing, is that of
`knifeedge.losses.soft_f1`; the soft decision q differs.
"""

import math
from typing import Literal, get_args

from torch import Tensor

from knifeedge.losses.counts import RegionLoss, check_smooth, loss_of_counts
from knifeedge.losses.cross_entropy import probability

Distribution = Literal["cosine", "uniform"]
DISTRIBUTIONS = get_args(Distribution)  # here: PyTorch 2.6 cannot compile a call of it


def heaviside_f1_loss(
    pred: Tensor,
    target: Tensor,
    *,
    threshold: float = 0.5,
    delta: float = 0.1,
    smooth: float = 1.0,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """1 - F1 of a step at the threshold t made of three lines, none of them flat.

    q runs through (0, 0), (t - m/2, delta), (t, 1/2), (t + m/2, 1 - delta) and (1, 1), with
    m = min(t, 1 - t). (Tsoi et al., "Bridging the Gap: Unifying the Training and Evaluation of
    Neural Network Binary Classifiers", 2022.)

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; soft ones count fractionally.
        threshold: the t above, in (0, 1).
        delta: what the outer lines climb, in (0, 0.5); small is a hard step.
        smooth: added to numerator and denominator, in pixels.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> import torch
    >>> prob = torch.tensor([0.75, 0.25])
    >>> heaviside_f1_loss(prob, torch.tensor([1.0, 0.0]), smooth=0, from_logits=False)
    tensor(0.1000)
    """
    _check_step(threshold, delta)
    return loss_of_counts(
        lambda x: _step(probability(x, from_logits), threshold, delta),
        pred,
        target,
        mask,
        from_logits=from_logits,
        smooth=smooth,
    )


def score_oriented_loss(
    pred: Tensor,
    target: Tensor,
    *,
    mean: float = 0.5,
    half_width: float = 0.1,
    distribution: Distribution = "cosine",
    smooth: float = 1.0,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """1 - F1 of the counts to be expected when the threshold is drawn at random.

    q is the distribution function of the threshold at p: with u = (p - mean) / half_width kept
    in [-1, 1], `(1 + u + sin(pi u) / pi) / 2` (raised cosine) or `(1 + u) / 2` (uniform). It is
    flat, without a gradient, beyond half_width from the mean. (Marchetti et al., "Score-Oriented
    Loss (SOL) functions", 2022; theirs is -F1, less by the constant 1.)

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; soft ones count fractionally.
        mean: mean of the threshold; the paper's mu.
        half_width: how far the threshold may lie from it; the paper's delta.
        distribution: "cosine" or "uniform".
        smooth: added to numerator and denominator, in pixels.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> import torch
    >>> prob = torch.tensor([0.5, 0.3])
    >>> score_oriented_loss(prob, torch.tensor([1.0, 0.0]), smooth=0, from_logits=False)
    tensor(0.3333)
    """
    _check_distribution(mean, half_width, distribution)

    def decide(x: Tensor) -> Tensor:
        u = ((probability(x, from_logits) - mean) / half_width).clamp(-1, 1)
        wave = (math.pi * u).sin() / math.pi if distribution == "cosine" else 0.0
        return (1 + u + wave) / 2

    return loss_of_counts(decide, pred, target, mask, from_logits=from_logits, smooth=smooth)


class HeavisideF1Loss(RegionLoss):
    """See `heaviside_f1_loss`."""

    function = staticmethod(heaviside_f1_loss)

    def __init__(
        self,
        *,
        threshold: float = 0.5,
        delta: float = 0.1,
        smooth: float = 1.0,
        from_logits: bool = True,
    ) -> None:
        _check_step(threshold, delta)
        check_smooth(smooth)
        super().__init__(threshold=threshold, delta=delta, smooth=smooth, from_logits=from_logits)


class ScoreOrientedLoss(RegionLoss):
    """See `score_oriented_loss`."""

    function = staticmethod(score_oriented_loss)

    def __init__(
        self,
        *,
        mean: float = 0.5,
        half_width: float = 0.1,
        distribution: Distribution = "cosine",
        smooth: float = 1.0,
        from_logits: bool = True,
    ) -> None:
        _check_distribution(mean, half_width, distribution)
        check_smooth(smooth)
        super().__init__(
            mean=mean,
            half_width=half_width,
            distribution=distribution,
            smooth=smooth,
            from_logits=from_logits,
        )


def _step(prob: Tensor, threshold: float, delta: float) -> Tensor:
    half = min(threshold, 1 - threshold) / 2
    low, high = threshold - half, threshold + half
    below = prob * (delta / low)
    middle = 0.5 + (prob - threshold) * ((0.5 - delta) / half)
    above = 1 - (1 - prob) * (delta / (1 - high))
    return below.where(prob < low, above.where(prob > high, middle))


def _check_step(threshold: float, delta: float) -> None:
    if not 0 < threshold < 1:
        raise ValueError(
            f"threshold must lie in (0, 1), got {threshold}; it is a probability, not a logit"
        )
    if not 0 < delta < 0.5:
        raise ValueError(f"delta must lie in (0, 0.5), got {delta}; 0.1 is the authors'")


def _check_distribution(mean: float, half_width: float, distribution: str) -> None:
    if not (half_width > 0 and mean - half_width >= 0 and mean + half_width <= 1):
        raise ValueError(
            f"half_width must be > 0 and mean - half_width to mean + half_width lie in [0, 1], "
            f"got mean {mean} and half_width {half_width}; thresholds are probabilities"
        )
    if distribution not in DISTRIBUTIONS:
        raise ValueError(f"distribution must be one of {DISTRIBUTIONS}, got {distribution!r}")
