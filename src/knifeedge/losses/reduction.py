"""From values per element to a loss: sums and means over what counts, and over all ranks.

While torch.distributed runs and gradients are recorded, the counts behind a class balance and
behind a mean are those of all ranks together. A mean is scaled so that averaging the gradients
over the ranks, as DistributedDataParallel does, gives the gradient of one process with the
whole batch, also where the ranks hold unequal numbers of elements. Without gradients nothing is
exchanged, so that one rank alone may validate.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
import torch.distributed as dist
from torch import Tensor

from knifeedge.losses.buffers import PreciseBuffers
from knifeedge.losses.inputs import align, check_per_element, prepare

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS = get_args(Reduction)  # here: PyTorch 2.6 cannot compile a call of it

# One value per element, from a prediction, labels and a mask that `prepare` has seen.
Values = Callable[[Tensor, Tensor, Tensor | None], Tensor]


class Terms(NamedTuple):
    """A loss for which there are kernels; see `knifeedge.losses.fused`.

    Attributes:
        balance: Of WBCE; None for a plain cross entropy.
        threshold: Of the adjuster; None without one.
        window, decay, delta, detach_weight: Of the adjuster.
    """

    balance: float | None = None
    threshold: float | Tensor | None = None
    window: float = 0.2
    decay: float = 16.0
    delta: float = 1.0
    detach_weight: bool = False


class PixelLoss(PreciseBuffers):
    """Base of the losses here: subclasses say `values`, one per element; this reduces them.

    Args:
        from_logits: whether predictions are logits; otherwise they are probabilities.
        reduction: "mean", "sum" or "none".

    A loss of one's own, with logits, labels, mask, reduction and ranks taken care of:

    >>> class SquaredLoss(PixelLoss):
    ...     def values(self, pred, target, mask):
    ...         return (pred.sigmoid() - target) ** 2
    >>> SquaredLoss()(torch.zeros(2), torch.tensor([0.0, 1.0]))
    tensor(0.2500)
    """

    # Whether the prediction is all that `values` has a gradient for; see `loss_of`.
    fusible = False

    def __init__(self, *, from_logits: bool = True, reduction: Reduction = "mean") -> None:
        super().__init__()
        check_reduction(reduction)
        self.from_logits = from_logits
        self.reduction: Reduction = reduction

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One value per element, on inputs that `prepare` has seen."""
        raise TypeError(f"{type(self).__name__} must define values(pred, target, mask)")

    def terms(self) -> Terms | None:
        """What `values` is, where there are kernels for it."""
        return None

    def forward(self, pred: Tensor, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The loss of a prediction; see the function of the same name."""
        return loss_of(
            self.values,
            pred,
            target,
            mask,
            from_logits=self.from_logits,
            reduction=self.reduction,
            fusible=self.fusible,
            terms=self.terms(),
        )

    def extra_repr(self) -> str:
        """What `print` shows of the loss."""
        return f"from_logits={self.from_logits}, reduction={self.reduction!r}"


def loss_of(
    values: Values,
    pred: Tensor,
    target: Tensor,
    mask: Tensor | None,
    *,
    from_logits: bool,
    reduction: Reduction,
    fusible: bool = True,
    terms: Terms | None = None,
) -> Tensor:
    """Check the inputs, take the values and reduce them.

    On a CUDA device in eager mode there are kernels for what `terms` says.

    Under torch.compile the gradient is computed beside the loss, in one pass over the elements,
    instead of in a second one that takes every exponential again. That is right where nothing
    but the prediction has a gradient (`fusible`).
    """
    if (
        terms is not None
        and from_logits
        and reduction in ("mean", "sum")
        and isinstance(pred, Tensor)
        and pred.is_cuda
        and not torch.compiler.is_compiling()
        and world_size() == 1
    ):
        from knifeedge.losses import fused  # not before: it loads Triton

        aligned = align(pred, target, mask)
        if fused.takes(*aligned, terms):
            return fused.fused_loss(*aligned, terms, mean=reduction == "mean")
    pred, target, mask = prepare(pred, target, mask, from_logits=from_logits)

    def loss(pred: Tensor) -> Tensor:
        each = check_per_element(values(pred, target, mask), pred, "values")
        return reduce(each, mask, reduction)

    if (
        fusible
        and torch.compiler.is_compiling()
        and reduction != "none"
        and pred.requires_grad
        and not target.requires_grad
        and world_size() == 1
    ):
        gradient, result = torch.func.grad_and_value(loss)(pred.detach())
        return _WithGradient.apply(pred, result, gradient)  # type: ignore[no-untyped-call,no-any-return]
    return loss(pred)


def reduce(values: Tensor, mask: Tensor | None, reduction: Reduction) -> Tensor:
    """Mean or sum over the elements that count; masked ones are 0 under "none".

    An empty mask gives 0, with zero gradient.

    >>> reduce(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([True, True, False]), "mean")
    tensor(2.)
    """
    check_reduction(reduction)
    if mask is not None:
        values = values.where(mask, 0.0)
    if reduction == "none":
        return values
    total = values.sum()
    if reduction == "sum":
        return total
    return total * world_size() / sum_over_ranks(count(values, mask)).clamp(min=1.0)


def count(like: Tensor, mask: Tensor | None) -> Tensor:
    """How many elements count, as a scalar of `like`'s dtype."""
    if mask is not None:
        return mask.sum().to(like.dtype)
    return torch.full((), like.numel(), dtype=like.dtype, device=like.device)


def sum_over_ranks(x: Tensor) -> Tensor:
    """Sum a small tensor over all ranks, with its gradient; itself on one."""
    return x if world_size() == 1 else _SumOverRanks.apply(x)  # type: ignore[no-untyped-call]


def world_size() -> int:
    """How many ranks share this batch: 1 without torch.distributed or without gradients."""
    if dist.is_available() and dist.is_initialized() and torch.is_grad_enabled():
        return dist.get_world_size()
    return 1


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {REDUCTIONS}, got {reduction!r}")


class _WithGradient(torch.autograd.Function):
    """A loss whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, loss: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return grad * ctx.saved_tensors[0], None, None


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_reduce(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _all_reduce(grad)


def _all_reduce(x: Tensor) -> Tensor:
    total = x.clone()
    dist.all_reduce(total)
    # Not itself: PyTorch 2.11 compiles a Function whose result was changed in place to one without
    # a gradient.
    return total + 0
