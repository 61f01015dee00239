"""Cross entropies, plain, balanced and adjusted, as two Triton kernels for a CUDA device.

All about an element but its class's factor follows from its own logit and label, and the factor is
`alpha y + beta (1 - y)` with one alpha and one beta for all. So one pass gives the loss: it sums
`y v`, `(1 - y) v` and `y`, v an element's value, and its last program makes the loss and the two
factors of these sums. The way back is a second pass. Together they move 5 numbers an element,
nothing waits for the device, and a CUDA graph can hold it all. The sums are taken in one order on
every card: the same inputs give the same bits.

`loss_of` comes here with logits on a CUDA device. Under torch.compile, on several ranks, for
float64 and with a threshold per column the losses run as they are written; also where Triton cannot
work, which is found out once, and said.
"""

import functools
import itertools
import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from knifeedge.losses import kernels
from knifeedge.losses.reduction import PixelLoss, Terms

# A thread takes 4 elements at a time, one load of 16 bytes from every float32 input. 32 programs
# for each of an H200's 132 multiprocessors, where 6 to 8 run at once, take 0.143 and 0.200 ms for
# the two passes over 64 M elements; 6 larger ones, which all run at once, 0.169 and 0.240.
BLOCK, WARPS, PROGRAMS = 1024, 8, 32 * 132
LONG_FROM = 2**30  # elements; places from there on are counted in 64 bits

# Below this product of decay and window expm1 is taken from a series, exact to 2e-9; above it,
# from exp(x) - 1, which then leaves a weight's error below 2e-6.
EXPONENTIAL_FROM = 0.25

# By which the programs of a launch find out who is last. Launches take turns: two that run at once,
# on whichever streams, have two, as no more than some thousands can be under way.
COUNTERS = 2**16

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def takes(pred: Tensor, target: Tensor, mask: Tensor | None, terms: Terms) -> bool:
    """Whether the kernels can do this: float32 or half-precision logits on the current device.

    Tensors that are more than their numbers are left to PyTorch: subclasses, and those inside a
    transformation of torch.func.
    """
    threshold, device = terms.threshold, pred.get_device()
    return (
        pred.is_cuda
        and pred.dtype in DTYPES
        and pred.numel() > 0
        and _is_constant(target, device)
        and (mask is None or _is_constant(mask, device))
        and (
            not isinstance(threshold, Tensor)
            or (threshold.ndim == 0 and _is_constant(threshold, device))
        )
        and device == torch.cuda.current_device()
        and type(pred) in (Tensor, nn.Parameter)
        and not torch._C._are_functorch_transforms_active()
        and _works(device)
    )


def covers(loss: nn.Module) -> bool:
    """Whether the kernels do all of a loss on the current device: nothing is left to compile.

    A threshold that moves, or one per column, brings other work with it.
    """
    if not isinstance(loss, PixelLoss) or not loss.from_logits or loss.reduction == "none":
        return False
    terms = loss.terms()
    fixed = terms is not None and not isinstance(terms.threshold, Tensor)
    return fixed and _works(torch.cuda.current_device())


def _is_constant(x: Tensor, device: int) -> bool:
    """Whether it is on that device, and has no gradient."""
    return x.get_device() == device and not x.requires_grad


def fused_loss(
    pred: Tensor, target: Tensor, mask: Tensor | None, terms: Terms, *, mean: bool
) -> Tensor:
    """The loss of logits; it can be differentiated once.

    Args:
        pred: Logits, float32 or half precision.
        target: Labels in [0, 1], of the same shape; any dtype.
        mask: Boolean, the elements that count; None for all.
        terms: Which loss.
        mean: Whether it is the mean or the sum.

    Returns:
        A float32 scalar.
    """
    pred, target = pred.contiguous(), target.contiguous()
    mask = None if mask is None else mask.contiguous()
    result: Tensor = _Fused.apply(pred, target, mask, terms, mean)  # type: ignore[no-untyped-call]
    return result


class _Settings(NamedTuple):
    """The adjuster's settings as the kernels take them, in their order."""

    window: float = 0.0
    rate: float = 0.0
    scale: float = 0.0
    delta: float = 0.0
    adjusted: bool = False
    series: bool = False


NOT_ADJUSTED = _Settings()


@functools.lru_cache(maxsize=256)
def _settings(window: float, decay: float, delta: float) -> _Settings:
    rate = decay * window
    # A few bits more, as in `distance_weight`: at 0 the clamped weight is 1 however it rounds.
    more = 1 + 4 * torch.finfo(torch.float32).eps
    scale = more * rate / -math.expm1(-rate) if rate else more
    return _Settings(window, rate, scale, delta, True, rate < EXPONENTIAL_FROM)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, pred: Tensor, target: Tensor, mask: Tensor | None, terms: Terms, mean: bool
    ) -> Tensor:
        balance, threshold, window, decay, delta, detached = terms
        settings = NOT_ADJUSTED if threshold is None else _settings(window, decay, delta)
        n, device = pred.numel(), pred.device
        long, programs = n >= LONG_FROM, min(PROGRAMS, -(-n // BLOCK))
        sums = torch.empty(4 * programs + 4, dtype=torch.float32, device=device)
        loss = torch.empty((), dtype=torch.float32, device=device)
        # By position: with keywords a launch takes the host 1.2 us more, of 9.
        kernels.sum_up[(programs,)](
            *(pred, target, mask, threshold, balance, sums, loss, *_counter(device), n, *settings),
            *(isinstance(threshold, Tensor), mean, long, BLOCK),
            num_warps=WARPS,
        )
        ctx.save_for_backward(pred, target, mask, sums)
        ctx.programs, ctx.rest = programs, (n, *settings, detached, long, BLOCK)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        pred, target, mask, sums = ctx.saved_tensors
        result = torch.empty_like(pred)
        kernels.differentiate[(ctx.programs,)](
            pred, target, mask, sums, grad, result, *ctx.rest, num_warps=WARPS
        )
        # Not `once_differentiable`: that takes as long as a launch, and lets the second derivative
        # be 0 where `grad` is a constant.
        if torch.is_grad_enabled():
            result = _Last.apply(result, pred, grad)  # type: ignore[no-untyped-call]
        return result, None, None, None, None


class _Last(torch.autograd.Function):
    """A gradient that has none itself, and says so when it is asked for."""

    @staticmethod
    def forward(ctx: Any, result: Tensor, pred: Tensor, grad: Tensor) -> Tensor:
        return result.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        raise RuntimeError(
            "a loss on a CUDA device has first derivatives alone; for second ones take it with "
            'reduction="none", and the mean of that (an adjuster with another weight, too: the '
            "exponential one can be differentiated once)"
        )


def _counter(device: torch.device) -> tuple[Tensor, int]:
    """A counter that is 0 and that no other launch has: a tensor, and the place in it."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # A graph would have the same place at each replay; it sets one of its own to 0 instead.
        return torch.zeros(1, dtype=torch.int32, device=device), 0
    counters, calls = _counters(device)
    return counters, next(calls) % COUNTERS


@functools.cache
def _counters(device: torch.device) -> tuple[Tensor, Iterator[int]]:
    """Counters, which every launch leaves at 0, and whose turn it is."""
    counters = torch.zeros(COUNTERS, dtype=torch.int32, device=device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # they are 0 for every stream
    return counters, itertools.count()


@functools.cache
def _works(device: int) -> bool:
    """Try the kernels once: Triton needs a C compiler, and a card that it knows how to use."""
    if not kernels.AVAILABLE:
        return False
    try:
        with torch.inference_mode(False), torch.enable_grad():
            right = _is_right(torch.device("cuda", device))
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    else:
        if right:
            return True
        reason = "they are wrong on this device"
    warnings.warn(f"losses run without their fused kernels: {reason}", stacklevel=2)
    return False


def _is_right(device: torch.device) -> bool:
    """Whether many programs at once give PyTorch's own loss, and its gradient."""
    n = 64 * BLOCK
    pred = torch.linspace(-6, 6, n, device=device).requires_grad_()
    target = (torch.arange(n, device=device) % 3 == 0).float()
    losses = (
        fused_loss(pred, target, None, Terms(), mean=True),
        F.binary_cross_entropy_with_logits(pred, target),
    )
    slopes = (torch.autograd.grad(loss, pred)[0] for loss in losses)
    # It waits by its own word: a first step under `torch.cuda.set_sync_debug_mode` is no error.
    found = [x.detach().to("cpu", non_blocking=True) for x in (*losses, *slopes)]
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    value, wanted, got, slope = found
    return torch.allclose(value, wanted, rtol=1e-5) and torch.allclose(got, slope, atol=1e-5 / n)
