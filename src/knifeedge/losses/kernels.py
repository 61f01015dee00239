"""The Triton kernels behind `knifeedge.losses.fused`.

    sum_up          logits, labels, mask -> each program's sums, and of them the loss and the
                    factors of the two classes
    differentiate   logits, labels, mask, factors -> the gradient

A kernel goes over the elements in blocks of BLOCK; the programs take turns. Numbers are float32,
whatever the dtypes in memory. What is written in capitals is known when the kernel is compiled.
Between the two goes one tensor: alpha, beta and the threshold, one number unused, and then the
programs' sums, a row for each of the four.
"""

from __future__ import annotations  # Triton may be missing, and its names stand in signatures

import functools
from collections.abc import Callable
from typing import Any

try:
    import triton
    import triton.language as tl
except ImportError:  # as beside a PyTorch for CPUs alone
    triton = tl = None

AVAILABLE = triton is not None


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Have Triton compile a function, where there is Triton."""
    return triton.jit(function, **options) if AVAILABLE else function


# The number of the counter is another at every call: a kernel is compiled for all of them.
@functools.partial(jit, do_not_specialize=["number"])
def sum_up(
    logits: tl.tensor,
    target: tl.tensor,
    mask: tl.tensor,
    threshold: tl.tensor,
    balance: tl.tensor,
    sums: tl.tensor,
    loss: tl.tensor,
    counters: tl.tensor,
    number: tl.tensor,
    n: tl.tensor,
    window: tl.tensor,
    rate: tl.tensor,
    scale: tl.tensor,
    delta: tl.tensor,
    ADJUSTED: tl.constexpr,
    SERIES: tl.constexpr,
    MOVING: tl.constexpr,
    MEAN: tl.constexpr,
    LONG: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Sum `y v`, `(1 - y) v`, `y` and 1; the program that is last to do so finishes."""
    program, programs = tl.program_id(0), tl.num_programs(0)
    if LONG:
        n = n.to(tl.int64)
    if MOVING:
        threshold = tl.load(threshold).to(tl.float32)
    if ADJUSTED:
        tl.store(sums + 2, threshold, mask=program == 0)
    positive = tl.zeros([BLOCK], tl.float32)
    negative = tl.zeros([BLOCK], tl.float32)
    labels = tl.zeros([BLOCK], tl.float32)
    counted = tl.zeros([BLOCK], tl.float32)
    for block in range(program, tl.cdiv(n, BLOCK), programs):
        start = block * BLOCK
        x, y, counts = _read(logits, target, mask, start, n, BLOCK)
        value, p, _, _ = _cross_entropy(x, y)
        if ADJUSTED:
            weight, _ = _adjuster(p, y, threshold, window, rate, scale, SERIES)
            value *= weight + delta
        value = tl.where(counts, value, 0.0)
        positive += y * value
        negative += (1.0 - y) * value
        if balance is not None:
            labels += y
        if mask is not None:
            counted += tl.where(counts, 1.0, 0.0)
    row = sums + 4 + program
    tl.store(row, tl.sum(positive))
    tl.store(row + programs, tl.sum(negative))
    if balance is not None:
        tl.store(row + 2 * programs, tl.sum(labels))
    if mask is not None:
        tl.store(row + 3 * programs, tl.sum(counted))
    # All of this program's sums are written before it counts itself, and those of the others are
    # read after: whoever comes last sees all, and adds them in the same order.
    tl.debug_barrier()
    before = tl.atomic_add(counters + number, 1, sem="acq_rel", scope="gpu")
    if before == programs - 1:
        tl.store(counters + number, 0)
        _finish(sums, loss, n, programs, mask, balance, MEAN, BLOCK)


@jit
def _finish(
    sums: tl.tensor,
    loss: tl.tensor,
    n: tl.tensor,
    programs: tl.tensor,
    mask: tl.tensor,
    balance: tl.tensor,
    MEAN: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """The loss, and the factors of the two classes, from the programs' sums, in float64."""
    positive = _total(sums, 0, programs, WIDTH)
    negative = _total(sums, 1, programs, WIDTH)
    total = tl.zeros([], tl.float64) + n
    if mask is not None:
        total = _total(sums, 3, programs, WIDTH)
    total = tl.maximum(total, 1.0)
    alpha = tl.zeros([], tl.float64) + 1.0
    beta = alpha
    if balance is not None:
        share = _total(sums, 2, programs, WIDTH) / total
        alpha = 1.0 - share
        beta = balance * share
    if MEAN:
        alpha /= total
        beta /= total
    tl.store(loss, (alpha * positive + beta * negative).to(tl.float32))
    tl.store(sums, alpha.to(tl.float32))
    tl.store(sums + 1, beta.to(tl.float32))


@jit
def _total(sums: tl.tensor, row: tl.tensor, programs: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """The sum of a row, past the first-level cache, which does not see what others write."""
    total = tl.zeros([WIDTH], tl.float64)
    for start in range(0, programs, WIDTH):
        places = start + tl.arange(0, WIDTH)
        part = sums + 4 + row * programs + places
        total += tl.load(part, places < programs, other=0.0, cache_modifier=".cg").to(tl.float64)
    return tl.sum(total)


@jit
def differentiate(
    logits: tl.tensor,
    target: tl.tensor,
    mask: tl.tensor,
    sums: tl.tensor,
    grad: tl.tensor,
    result: tl.tensor,
    n: tl.tensor,
    window: tl.tensor,
    rate: tl.tensor,
    scale: tl.tensor,
    delta: tl.tensor,
    ADJUSTED: tl.constexpr,
    SERIES: tl.constexpr,
    DETACHED: tl.constexpr,
    LONG: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The gradient by each logit, in the logits' dtype."""
    if LONG:
        n = n.to(tl.int64)
    grad = tl.load(grad).to(tl.float32)
    alpha = grad * tl.load(sums)
    beta = grad * tl.load(sums + 1)
    if ADJUSTED:
        threshold = tl.load(sums + 2)
    blocks = tl.cdiv(n, BLOCK)
    for block in range(tl.program_id(0), blocks, tl.num_programs(0)):
        # From the end, which the pass before has left in the cache.
        start = (blocks - 1 - block) * BLOCK
        x, y, counts = _read(logits, target, mask, start, n, BLOCK)
        value, p, slope, change = _cross_entropy(x, y)
        if ADJUSTED:
            weight, by_distance = _adjuster(p, y, threshold, window, rate, scale, SERIES)
            slope *= weight + delta
            if not DETACHED:
                slope += by_distance * (2.0 * y - 1.0) * change * value
        slope *= alpha * y + beta * (1.0 - y)
        if mask is not None:
            slope = tl.where(counts, slope, 0.0)
        places = start + tl.arange(0, BLOCK)
        tl.store(result + places, slope.to(result.dtype.element_ty), places < n)


@jit
def _read(
    logits: tl.tensor,
    target: tl.tensor,
    mask: tl.tensor,
    start: tl.tensor,
    n: tl.tensor,
    BLOCK: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Logits, labels and which of them count; those that do not are 0."""
    places = start + tl.arange(0, BLOCK)
    counts = places < n
    x = tl.load(logits + places, counts, other=0.0).to(tl.float32)
    y = tl.load(target + places, counts, other=0).to(tl.float32)
    if mask is not None:
        # Only now: loads that hang on a mask are not 16 bytes wide.
        counts = tl.load(mask + places, counts, other=0) != 0
        x, y = tl.where(counts, x, 0.0), tl.where(counts, y, 0.0)
    return x, y, counts


@jit
def _cross_entropy(x: tl.tensor, y: tl.tensor) -> tuple[tl.tensor, ...]:
    """The cross entropy, p, and the derivatives by x of both."""
    small = tl.exp(-tl.abs(x))
    share = 1.0 / (1.0 + small)
    p = tl.where(x >= 0, share, small * share)
    q = tl.where(x >= 0, small * share, share)
    # log(1 + e) = 2 atanh(s), s = e / (2 + e) in [0, 1/3]: a polynomial, exact to 4e-9 however
    # small e is, where the logarithm of the rounded 1 + e would be 0.
    s = small / (2.0 + small)
    z = s * s
    series = 0.33333157 + z * (0.20012455 + z * (0.13980302 + z * 0.14089168))
    softplus = 2.0 * s * (1.0 + z * series)
    # An infinite logit is at least as bad as in torch's form: never a finite loss.
    value = softplus + tl.where(x >= 0, 1.0 - y, y) * tl.abs(x)
    return value, p, (1.0 - y) * p - y * q, p * q


@jit
def _adjuster(
    p: tl.tensor,
    y: tl.tensor,
    threshold: tl.tensor,
    window: tl.tensor,
    rate: tl.tensor,
    scale: tl.tensor,
    SERIES: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The weight of the masked distance, and its derivative by it; see `distance_weight`.

    `left E(-rate left) / E(-rate)` with E(x) = (e^x - 1) / x, left the share of the window that is
    left to its end.
    """
    distance = (p - threshold) * (2.0 * y - 1.0)
    left = 1.0 - tl.minimum(tl.maximum(distance, 0.0), window) * (1.0 / window)
    x = -rate * left
    if SERIES:
        ratio = 1.0 + x * (0.5 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720)))))
        raw = left * ratio * scale
        power = 1.0 + x * ratio
    else:
        power = tl.exp(x)
        raw = (power - 1.0) * (-scale / rate)
    inside = (distance > 0.0) & (distance <= window)
    return tl.minimum(raw, 1.0), tl.where(inside, power * (-scale / window), 0.0)
