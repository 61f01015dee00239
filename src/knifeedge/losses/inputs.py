"""What every pixel loss does first: check its inputs, align their shapes, leave out the masked.

Checks that need values (a label of 255, a probability of 1.2) read the tensor, which on a GPU
would make the host wait for it: they are done on CPU tensors in eager mode only.
"""

import torch
from torch import Tensor

from knifeedge.distance import at_least_float32, check_tensors


def prepare(
    pred: Tensor, target: Tensor, mask: Tensor | None, *, from_logits: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Bring prediction, label and mask to one shape and to float32 or wider.

    Masked elements become a logit or probability of 0 with label 0, so that whatever stood there
    (an ignore value of 255, a NaN) reaches neither a sum nor a gradient.

    Args:
        pred: logits or probabilities, floating point.
        target: labels in [0, 1]; any dtype.
        mask: elements that count (non-zero), or None for all.
        from_logits: whether `pred` holds logits.

    Returns:
        Prediction, label and boolean mask, all in the prediction's shape.

    >>> p, y, m = prepare(torch.zeros(2, 1, 3, 3), torch.ones(2, 3, 3), None, from_logits=True)
    >>> y.shape
    torch.Size([2, 1, 3, 3])
    """
    pred, target, mask = align(pred, target, mask)
    pred = at_least_float32(pred)
    target = target.to(pred.dtype)
    if mask is not None:
        pred, target = pred.where(mask, 0.0), target.where(mask, 0.0)
    _check_unit_range("target", target, "8-bit labels are divided by 255, ignored ones masked")
    if not from_logits:
        _check_unit_range("pred", pred, "logits are taken with from_logits=True")
    return pred, target, mask


def align(
    pred: Tensor, target: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Prediction, label and boolean mask in the prediction's shape; the values are as they were."""
    check_tensors(pred=pred, target=target)
    if not pred.is_floating_point():
        raise TypeError(
            f"pred must be floating point, got {pred.dtype}; pass the model's output, or "
            f"convert with .float()"
        )
    target = in_shape_of(pred, target, names=("pred", "target"))
    if mask is not None:
        check_tensors(mask=mask)
        mask = in_shape_of(pred, mask, names=("pred", "mask")).bool()
    return pred, target, mask


def check_per_element(values: object, pred: Tensor, name: str) -> Tensor:
    """Refuse a loss that reduces; bring one value per element to the prediction's shape."""
    if not isinstance(values, Tensor) or values.numel() != pred.numel():
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"{name} must return one value per element, but returned {got} for "
            f'{tuple(pred.shape)}; construct it with reduction="none" (a loss of whole regions, '
            f"such as Dice, has no values per element)"
        )
    return values.reshape(pred.shape)


def in_shape_of(pred: Tensor, other: Tensor, *, names: tuple[str, str]) -> Tensor:
    """`other` in `pred`'s shape, where the two differ by nothing but a channel of one."""
    if other.shape == pred.shape:
        return other
    if 0 < other.ndim < pred.ndim and pred.shape == (*other.shape[:1], 1, *other.shape[1:]):
        return other.unsqueeze(1)
    if 0 < pred.ndim < other.ndim and other.shape == (*pred.shape[:1], 1, *pred.shape[1:]):
        return other.squeeze(1)
    raise ValueError(
        f"{names[0]} and {names[1]} must have equal shapes, got {tuple(pred.shape)} and "
        f"{tuple(other.shape)}; only a channel dimension of 1 may be left out"
    )


def _check_unit_range(name: str, values: Tensor, remedy: str) -> None:
    if values.device.type != "cpu" or torch.compiler.is_compiling() or values.numel() == 0:
        return
    if torch._C._are_functorch_transforms_active():  # under vmap there is no number to be read
        return
    low, high = (float(v) for v in values.detach().aminmax())
    if not (low >= 0.0 and high <= 1.0):
        raise ValueError(f"{name} must lie in [0, 1], got {low:g} to {high:g}; {remedy}")
