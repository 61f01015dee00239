"""Distance weight functions: how much an element counts at a distance from the threshold.

A distance weight (the paper's DWF) is continuous, decreasing and concave on [0, window], with
f(0) = 1 and f(window) = 0; its extension is 1 for negative distances and 0 beyond the window. The
paper's own is the exponential one,

    f(x) = (e^(b x) - e^(b window)) / (1 - e^(b window)),

with the decay b. Half-precision inputs are computed and returned in float32: the weight's slope
is as large as the decay.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

T = TypeVar("T", float, Tensor)

# A distance weight function: f(x, window=w) for x in [0, w].
DistanceWeight = Callable[..., Tensor]

# Below this product of decay and window the exponential weight is taken from its series, which is
# exact there to 4e-8: compilers write expm1(x) as exp(x) - 1, and lose it for small x.
SERIES_BELOW = 1e-2


def distance_weight(x: Tensor, *, window: float = 0.2, decay: float = 16.0) -> Tensor:
    """The paper's exponential distance weight with its extension (equations DWF and EDWF).

    Written as `expm1(b (x - window)) / expm1(-b window)` on x clamped to [0, window]: the
    exponent is never positive, so nothing overflows whatever the decay. `decay=0` is the limit
    `1 - x / window`. It can be differentiated once.

    Args:
        x: masked distances, any shape.
        window: distance at which the weight reaches 0.
        decay: how long it stays near 1 before that (the paper's b).

    >>> distance_weight(torch.tensor([-0.1, 0.0, 0.1, 0.2, 0.3]), window=0.2, decay=16.0)
    tensor([1.0000, 1.0000, 0.8320, 0.0000, 0.0000])
    """
    check_window(window)
    check_decay(decay)
    x = at_least_float32(x)
    rate = decay * window
    if torch.compiler.is_compiling() or rate < SERIES_BELOW:
        return _traced_weight(x.clamp(0.0, window), window, decay)
    weight, _ = _ExponentialWeight.apply(x, window, decay)  # type: ignore[no-untyped-call]
    return cast(Tensor, weight)


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


def check_distance_weight(
    weight: DistanceWeight, *, window: float = 0.2, points: int = 1001, tolerance: float = 1e-6
) -> None:
    """Check a distance weight function on a grid; say which condition fails, and where.

    The conditions are the paper's: finite, f(0) = 1, f(window) = 0, decreasing, concave (seen
    over steps of several lengths), and continuous (seen as: no step that stays when the grid is
    refined around it).

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
    ValueError: weight must be concave: at x = 0.05 it lies 0.06 below the line ...
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
    # Long steps first: over short ones a gentle sag is lost in what a float32 weight is off by.
    for step in (points // 4, points // 20, points // 100, 1):
        if step == 0 or 2 * step >= points:
            continue
        sag = (f[: -2 * step] + f[2 * step :]) / 2 - f[step:-step]
        if (sag > tolerance).any():
            at, by = _first(x[step:], sag > tolerance), float(sag[sag > tolerance][0])
            raise ValueError(
                f"weight must be concave: at x = {at} it lies {by:.1g} below the line between its "
                f"neighbours {step * float(x[1]):.2g} away; 1 - x/window is the least a concave "
                f"weight can be"
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


def check_tensors(**given: object) -> None:
    """Refuse what is no tensor, by its name.

    >>> check_tensors(pred=torch.zeros(1), mask=[True])
    Traceback (most recent call last):
    TypeError: mask must be a tensor, got list; torch.as_tensor() makes one
    """
    for name, x in given.items():
        if not isinstance(x, Tensor):
            remedy = "torch.as_tensor() makes one"
            if isinstance(x, list | tuple) and any(isinstance(one, Tensor) for one in x):
                remedy = "of a network's outputs take one, such as the last"
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}; {remedy}")


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision and integers as float32, the rest as it is."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


class _ExponentialWeight(torch.autograd.Function):
    """The exponential weight with its slope taken along.

    Autograd would go back through six steps, each with a temporary of the input's size, and take
    half as long again for the whole loss.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, window: float, decay: float) -> tuple[Tensor, Tensor]:
        # In the threshold itself the slope is that below it, 0, as in `_traced_weight`.
        inside = x.clamp(torch.finfo(x.dtype).tiny, window)
        outside = x != inside
        scale = _scale(x, decay * window)
        exponential = inside.neg_().add_(window).mul_(-decay).expm1_()
        weight = (exponential * scale).clamp(max=1.0)
        slope = exponential.add_(1).mul_(decay * scale).masked_fill_(outside, 0.0)
        return weight, slope

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.saved_tensors[0], None, None


def _traced_weight(inside: Tensor, window: float, decay: float) -> Tensor:
    """The exponential weight of a clamped distance in plain steps, for a compiler to fuse."""
    rate = decay * window
    if rate < SERIES_BELOW:
        left = 1 - inside / window
        one = 1 + 4 * torch.finfo(inside.dtype).eps
        weight = left * _expm1_over(left * -rate) * (one / _expm1_over(-rate))
    else:
        weight = torch.expm1((window - inside) * -decay) * _scale(inside, rate)
    return weight.clamp(max=1.0)


def _scale(x: Tensor, rate: float) -> float:
    """1 / expm1(-rate), and a few bits more: at x = 0 the clamped weight is 1 however it rounds."""
    return (1 + 4 * torch.finfo(x.dtype).eps) / math.expm1(-rate)


def _expm1_over(x: T) -> T:
    """The first terms of (e^x - 1) / x."""
    return 1 + x / 2 + x * x / 6


def _first(x: Tensor, where: Tensor) -> str:
    return f"{float(x[: len(where)][where][0]):.4g}"
