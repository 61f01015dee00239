"""The Binarization-Aware Adjuster: section 3 of the paper, on tensors.

A prediction is judged after a threshold. The adjuster is a weight in [0, 1] for each element: 1
where the decision is wrong, falling to 0 as a right decision moves a `window` away from the
threshold. The adjusted loss is the mean of `(adjuster + delta) * loss` (equation LAdj).

    masked distance   MD(p, y) = (p - threshold) y + (threshold - p)(1 - y)
    adjuster          BAA      = f^(MD(p, y)), f^ an extended distance weight

Here `prob` is a probability, never a logit. Half-precision inputs are computed and returned in
float32.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from knifeedge.distance import (
    DistanceWeight,
    at_least_float32,
    check_tensors,
    check_window,
    distance_weight,
    extended_weight,
)


def masked_distance(prob: Tensor, target: Tensor, *, threshold: float | Tensor = 0.7) -> Tensor:
    """Signed distance of a prediction from the threshold, positive where it is right.

    `(p - threshold) y + (threshold - p)(1 - y)` (equation MD), which is
    `(p - threshold)(2y - 1)` for hard and soft labels alike.

    Args:
        prob: probabilities, any shape.
        target: labels in [0, 1], of the same shape.
        threshold: a number, a 1-D tensor with one entry per column (dimension 1, or the last of
            a 1-D input), or a tensor that broadcasts.

    >>> masked_distance(torch.tensor([0.9, 0.9]), torch.tensor([1.0, 0.0]), threshold=0.7)
    tensor([ 0.2000, -0.2000])
    """
    prob, target = _checked(prob, target)
    sign = (2 * target).sub_(1)
    return (prob - per_column(threshold, prob)) * sign


def adjuster_weight(
    prob: Tensor,
    target: Tensor,
    *,
    threshold: float | Tensor = 0.7,
    window: float = 0.2,
    decay: float = 16.0,
    weight: DistanceWeight | None = None,
) -> Tensor:
    """The Binarization-Aware Adjuster (equation BAA): a weight in [0, 1] for each element.

    Args:
        prob: probabilities, any shape.
        target: labels in [0, 1], of the same shape.
        threshold: the decision threshold; see `masked_distance`.
        window: distance from the threshold at which a right decision stops counting.
        decay: how long the weight stays near 1 inside the window (the paper's b).
        weight: another distance weight function in place of the exponential one.

    >>> adjuster_weight(torch.tensor([0.1, 0.6, 0.9]), torch.tensor([0.0, 0.0, 0.0]))
    tensor([0.0000, 0.8320, 1.0000])
    """
    distance = masked_distance(prob, target, threshold=threshold)
    return weigh_distance(distance, window=window, decay=decay, weight=weight)


def hard_adjuster(prob: Tensor, target: Tensor, *, threshold: float | Tensor = 0.7) -> Tensor:
    """The binary mask the adjuster smooths: 0 where the decision is right, 1 where it is wrong.

    `(p - threshold)(y - threshold) >= 0` counts as right (equation Adjhat). For reference and
    plots: it has no gradient.

    >>> hard_adjuster(torch.tensor([0.6, 0.8]), torch.tensor([1.0, 1.0]))
    tensor([1., 0.])
    """
    prob, target = _checked(prob, target)
    threshold = per_column(threshold, prob)
    return ((prob - threshold) * (target - threshold) < 0).to(prob.dtype)


def windowed_adjuster(
    prob: Tensor, target: Tensor, *, threshold: float | Tensor = 0.7, window: float = 0.2
) -> Tensor:
    """The adjuster's limit for an infinite decay: 0 where right by the window or more, else 1.

    Equation Bhat; with the window going to 0 it is `hard_adjuster`. It is the limit for labels 0
    and 1: a soft label shortens the adjuster's distance, but not this one.

    >>> windowed_adjuster(torch.tensor([0.6, 0.8, 0.95]), torch.tensor([1.0, 1.0, 1.0]))
    tensor([1., 1., 0.])
    """
    check_window(window)
    prob, target = _checked(prob, target)
    threshold = per_column(threshold, prob)
    right = (prob - threshold) * (target - threshold) >= 0
    return (~(right & ((prob - threshold).abs() >= window))).to(prob.dtype)


def class_margin(prob: Tensor, target: Tensor) -> Tensor:
    """Masked distance for K classes: half the margin of the right class over the best other.

    `(p_right - max of the others) / 2`, negative where another class wins. The half makes it the
    distance from the decision boundary in the right class's probability, so that two classes
    give the binary masked distance at threshold 0.5.

    Args:
        prob: (N, K, ...) probabilities of the classes in dimension 1.
        target: (N, ...) class indices.

    >>> class_margin(torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([1]))
    tensor([0.1000])
    """
    prob = at_least_float32(prob)
    index = target.long().unsqueeze(1)
    right = prob.gather(1, index).squeeze(1)
    others = prob.scatter(1, index, -torch.inf)
    return (right - others.amax(dim=1)) / 2


def bin_distance(value: Tensor, bins: Tensor, *, thresholds: Sequence[float] | Tensor) -> Tensor:
    """Masked distance for ordered bins: to the nearest boundary of the right bin.

    Bin k holds the values in [thresholds[k-1], thresholds[k]). The distance is positive inside
    the right bin and negative outside; the outer bins have one boundary. One threshold gives
    the binary masked distance.

    Args:
        value: scalars, any shape.
        bins: index of the right bin, 0 to len(thresholds), of the same shape.
        thresholds: the boundaries, increasing.

    >>> bin_distance(torch.tensor([0.5, 0.5]), torch.tensor([1, 2]), thresholds=(0.2, 0.6))
    tensor([ 0.1000, -0.1000])
    """
    value = at_least_float32(value)
    inner = torch.as_tensor(thresholds, dtype=value.dtype, device=value.device)
    edges = torch.cat([inner.new_full((1,), -torch.inf), inner, inner.new_full((1,), torch.inf)])
    bins = bins.long()
    return torch.minimum(value - edges[bins], edges[bins + 1] - value)


def weigh_distance(
    distance: Tensor,
    *,
    window: float = 0.2,
    decay: float = 16.0,
    weight: DistanceWeight | None = None,
) -> Tensor:
    """The extended weight of a masked distance: the exponential one, or the one given."""
    if weight is None:
        return distance_weight(distance, window=window, decay=decay)
    return extended_weight(distance, weight, window=window)


def per_column(threshold: float | Tensor, like: Tensor) -> float | Tensor:
    """Shape a 1-D threshold so that it runs along dimension 1 of `like`.

    >>> per_column(torch.tensor([0.3, 0.5]), torch.zeros(8, 3))
    Traceback (most recent call last):
    ...
    ValueError: threshold must be one number, one per column, or broadcast: got (2,) for (8, 3)
    """
    if not isinstance(threshold, Tensor) or threshold.ndim == 0:
        return threshold
    shaped = threshold
    if threshold.ndim == 1 and like.ndim > 1:
        shaped = threshold.reshape(-1, *(1,) * (like.ndim - 2))
    sizes = list(zip(reversed(shaped.shape), reversed(like.shape), strict=False))
    if shaped.ndim > like.ndim or any(mine not in (1, its) for mine, its in sizes):
        raise ValueError(
            "threshold must be one number, one per column, or broadcast: got "
            f"{tuple(threshold.shape)} for {tuple(like.shape)}"
        )
    return shaped


def _checked(prob: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in float32 or wider; of equal shapes, as others would be broadcast unseen."""
    check_tensors(prob=prob, target=target)
    if prob.shape != target.shape:
        raise ValueError(
            f"prob and target must have equal shapes, got {tuple(prob.shape)} and "
            f"{tuple(target.shape)}"
        )
    return at_least_float32(prob), at_least_float32(target)
