"""The Binarization-Aware Adjuster: section 3 of the paper, on tensors.

A prediction is judged after a threshold. The adjuster is a weight in [0, 1] for each element: 1
where the decision is wrong, falling to 0 as a right decision moves a `window` away from the
threshold. The adjusted loss is the mean of `(adjuster + delta) * loss` (equation LAdj).

    masked distance   MD(p, y) = (p - threshold) y + (threshold - p)(1 - y)
    distance weight   f(x)     = (e^(b x) - e^(b window)) / (1 - e^(b window)),  0 <= x <= window
    extension         f^(x)    = 1 below 0, f(x) up to the window, 0 beyond
    adjuster          BAA      = f^(MD(p, y))

Here `prob` is a probability, never a logit. Half-precision inputs are computed and returned in
float32: the weight's slope is as large as the decay.
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

T = TypeVar("T", float, Tensor)

# A distance weight function: f(x, window=w) for x in [0, w].
DistanceWeight = Callable[..., Tensor]

# Below this product of decay and window the exponential weight is taken from its series, which is
# exact there to 4e-8: compilers write expm1(x) as exp(x) - 1, and lose it for small x.
SERIES_BELOW = 1e-2


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
    prob, target = at_least_float32(prob), at_least_float32(target)
    sign = (2 * target).sub_(1)
    return (prob - per_column(threshold, prob)) * sign


def distance_weight(x: Tensor, *, window: float = 0.2, decay: float = 16.0) -> Tensor:
    """The paper's exponential distance weight with its extension (equations DWF and EDWF).

    Written as `expm1(b (x - window)) / expm1(-b window)` on x clamped to [0, window]: the
    exponent is never positive, so nothing overflows whatever the decay. `decay=0` is the limit
    `1 - x / window`.

    Args:
        x: masked distances, any shape.
        window: distance at which the weight reaches 0.
        decay: how long it stays near 1 before that (the paper's b).

    >>> distance_weight(torch.tensor([-0.1, 0.0, 0.1, 0.2, 0.3]), window=0.2, decay=16.0)
    tensor([1.0000, 1.0000, 0.8320, 0.0000, 0.0000])
    """
    check_window(window)
    check_decay(decay)
    x = at_least_float32(x).clamp(0.0, window)
    rate = decay * window
    # A few bits more than 1, and the last clamp: at x = 0 the weight is 1 however it rounds.
    one = 1 + 4 * torch.finfo(x.dtype).eps
    if rate < SERIES_BELOW:
        left = 1 - x / window
        weight = left * _expm1_over(left * -rate) * (one / _expm1_over(-rate))
    else:
        # In place, since a temporary of this size costs as much as the arithmetic.
        weight = (window - x).mul_(-decay).expm1_() * (one / math.expm1(-rate))
    return weight.clamp(max=1.0)


def power_weight(x: Tensor, *, window: float = 0.2, power: float = 2.0) -> Tensor:
    """A distance weight without transcendental functions: `1 - (x / window)^power`, power >= 1.

    `power=1` is the linear one; from 2 on the weight has no kink at the threshold.

    >>> power_weight(torch.tensor([0.0, 0.1, 0.2]), window=0.2)
    tensor([1.0000, 0.7500, 0.0000])
    """
    check_window(window)
    if not power >= 1:
        raise ValueError(f"power must be >= 1, got {power}: below 1 the weight is not concave")
    return 1 - (at_least_float32(x).clamp(0.0, window) / window) ** power


def cosine_weight(x: Tensor, *, window: float = 0.2) -> Tensor:
    """A distance weight without a kink at the threshold: `cos(pi/2 * x / window)`.

    >>> cosine_weight(torch.tensor([0.0, 0.1, 0.2]), window=0.2)
    tensor([1.0000, 0.7071, 0.0000])
    """
    check_window(window)
    # sin of the distance left to the window's end: exactly 0 there, where cos(pi/2) is not.
    left = window - at_least_float32(x).clamp(0.0, window)
    return torch.sin(left * (math.pi / 2 / window))


def extended_weight(x: Tensor, weight: DistanceWeight, *, window: float = 0.2) -> Tensor:
    """Extend any distance weight from [0, window] to all distances (equation EDWF).

    Since f(0) = 1 and f(window) = 0, the extension is f on the clamped distance.

    >>> extended_weight(torch.tensor([-1.0, 0.1, 1.0]), lambda x, window: 1 - x / window)
    tensor([1.0000, 0.5000, 0.0000])
    """
    check_window(window)
    return weight(at_least_float32(x).clamp(0.0, window), window=window)


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


def hard_adjuster(prob: Tensor, target: Tensor, *, threshold: float = 0.7) -> Tensor:
    """The binary mask the adjuster smooths: 0 where the decision is right, 1 where it is wrong.

    `(p - threshold)(y - threshold) >= 0` counts as right (equation Adjhat). For reference and
    plots: it has no gradient.

    >>> hard_adjuster(torch.tensor([0.6, 0.8]), torch.tensor([1.0, 1.0]))
    tensor([1., 0.])
    """
    prob, target = at_least_float32(prob), at_least_float32(target)
    return ((prob - threshold) * (target - threshold) < 0).to(prob.dtype)


def windowed_adjuster(
    prob: Tensor, target: Tensor, *, threshold: float = 0.7, window: float = 0.2
) -> Tensor:
    """The adjuster's limit for an infinite decay: 0 where right by the window or more, else 1.

    Equation Bhat; with the window going to 0 it is `hard_adjuster`.

    >>> windowed_adjuster(torch.tensor([0.6, 0.8, 0.95]), torch.tensor([1.0, 1.0, 1.0]))
    tensor([1., 1., 0.])
    """
    check_window(window)
    prob, target = at_least_float32(prob), at_least_float32(target)
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
    """Shape a 1-D threshold so that it runs along dimension 1 of `like`."""
    if not isinstance(threshold, Tensor) or threshold.ndim != 1 or like.ndim < 2:
        return threshold
    return threshold.reshape(-1, *(1,) * (like.ndim - 2))


def check_distance_weight(
    weight: DistanceWeight, *, window: float = 0.2, points: int = 1001, tolerance: float = 1e-6
) -> None:
    """Check a distance weight function on a grid; say which condition fails, and where.

    The conditions are the paper's: finite, f(0) = 1, f(window) = 0, decreasing, concave, and
    continuous (seen as: no step that stays when the grid is refined around it).

    Args:
        weight: the function, called as `weight(x, window=window)` on float64 x in [0, window].
        window: the threshold window.
        points: how many grid points.
        tolerance: what counts as equal.

    Raises:
        ValueError: naming the first condition that fails and the x where it does.

    >>> check_distance_weight(cosine_weight)
    >>> check_distance_weight(lambda x, window: (1 - x / window) ** 2)
    Traceback (most recent call last):
    ...
    ValueError: weight must be concave: at x = 0.0002 it lies 1e-06 below the line ...
    """
    check_window(window)
    x = torch.linspace(0.0, window, points, dtype=torch.float64)
    f = weight(x, window=window)
    if not isinstance(f, Tensor) or f.shape != x.shape:
        shape = tuple(f.shape) if isinstance(f, Tensor) else type(f).__name__
        raise ValueError(f"weight must return one value per x, got {shape} for {tuple(x.shape)}")
    f = f.detach().double()
    if not f.isfinite().all():
        raise ValueError(f"weight must be finite: at x = {_first(x, ~f.isfinite())} it is not")
    for name, index, want in (("0", 0, 1.0), ("window", -1, 0.0)):
        if abs(float(f[index]) - want) > tolerance:
            raise ValueError(f"weight must be {want:g} at x = {name}, got {float(f[index]):.6g}")
    rises = f.diff() > tolerance
    if rises.any():
        raise ValueError(f"weight must decrease: it rises after x = {_first(x, rises)}")
    sag = (f[:-2] + f[2:]) / 2 - f[1:-1]
    if (sag > tolerance / 10).any():
        at, by = _first(x[1:], sag > tolerance / 10), float(sag[sag > tolerance / 10][0])
        raise ValueError(
            f"weight must be concave: at x = {at} it lies {by:.1g} below the line between its "
            f"neighbours; 1 - x/window is the least a concave weight can be"
        )
    # A concave function on an interval can only jump at its ends, downwards towards them.
    for name, near, end in (("0", x[1] * 1e-9, 0), ("window", window - x[1] * 1e-9, -1)):
        jump = float((weight(near.reshape(1), window=window).double() - f[end]).abs())
        if jump > 0.01:
            raise ValueError(f"weight must be continuous: it jumps by {jump:.3g} at x = {name}")


def check_window(window: float) -> None:
    """Refuse a window that is not a positive number."""
    if not 0 < window < math.inf:
        raise ValueError(
            f"window must be > 0 and finite, got {window}; a hard mask is hard_adjuster()"
        )


def check_decay(decay: float) -> None:
    """Refuse a negative decay."""
    if not 0 <= decay < math.inf:
        raise ValueError(
            f"decay must be >= 0 and finite, got {decay}; 0 is the linear weight, and the limit "
            f"for an infinite decay is windowed_adjuster()"
        )


def _expm1_over(x: T) -> T:
    """The first terms of (e^x - 1) / x."""
    return 1 + x / 2 + x * x / 6


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision and integers as float32, the rest as it is."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _first(x: Tensor, where: Tensor) -> str:
    return f"{float(x[: len(where)][where][0]):.4g}"
