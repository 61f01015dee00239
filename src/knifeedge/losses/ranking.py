"""Losses of the order of all elements: Lovász hinge, and average precision.

Both sort, so that a batch of 8 images of 320 x 320 costs a sort and not its pairs. Orders of
several ranks are not merged: with torch.distributed running, each rank has the loss of its own
batch (of its own images, with `per_image`), and the gradient is that of the mean over ranks.
"""

import torch
from torch import Tensor

from knifeedge.losses.counts import RegionLoss, logit
from knifeedge.losses.inputs import prepare
from knifeedge.losses.reduction import reduce


def lovasz_hinge_loss(
    pred: Tensor,
    target: Tensor,
    *,
    per_image: bool = True,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """Hinge errors weighted by what each costs in intersection over union.

    With the errors `m = 1 - z (2y - 1)` of logits z in falling order, `sum(max(m_i, 0) g_i)`,
    where g_i = J_i - J_(i-1) and J_i is the Jaccard loss when the first i elements are wrong:
    `J_i = 1 - (P - y_1 - ... - y_i) / (P + (1 - y_1) + ... + (1 - y_i))`, P = sum(y). (Berman et
    al., "The Lovász-Softmax loss", 2018.) Without a positive it is the largest hinge error, with
    positives only the mean one. Soft labels enter the same formula.

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape.
        per_image: the mean of one value for each image, in the first dimension, that has an
            element that counts; otherwise one value for the batch.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> lovasz_hinge_loss(torch.tensor([[2.0, -0.5]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.2500)
    """
    pred, target, mask = prepare(pred, target, mask, from_logits=from_logits)
    if per_image and pred.ndim < 2:
        raise ValueError(
            f"pred must have a dimension of images and one of elements, got {tuple(pred.shape)}; "
            f"one value for all is per_image=False"
        )
    error = 1 - logit(pred, from_logits) * (2 * target - 1)
    if mask is not None:
        # Errors of 0 or less weigh nothing, wherever they come in the order.
        error = error.where(mask, 0.0)
    error, order = _rows(error, per_image).sort(dim=1, descending=True)
    # In float32 the steps of the Jaccard loss, near 1e-6, would keep one digit.
    label = _rows(target, per_image).gather(1, order).double()
    positives = label.sum(dim=1, keepdim=True)
    hits = _running_sums(label)
    wrong = torch.arange(1, label.shape[1] + 1, device=label.device)
    jaccard = 1 - (positives - hits) / (positives + wrong - hits)
    weight = jaccard.diff(dim=1, prepend=torch.zeros_like(positives)).to(error.dtype)
    seen = None if mask is None else _rows(mask, per_image).any(dim=1)
    return reduce((error.relu() * weight).sum(dim=1), seen, "mean")


def ap_loss(
    pred: Tensor,
    target: Tensor,
    *,
    delta: float = 1.0,
    error_driven: bool = True,
    from_logits: bool = True,
    mask: Tensor | None = None,
) -> Tensor:
    """1 - average precision of the order of the logits z, with a step of three lines.

    `sum_ij y_i (1 - y_j) L_ij / sum(y)` over pairs i, j, with L_ij = H(z_j - z_i) / rank_i,
    rank_i = 1 + sum_(k != i) H(z_k - z_i) and `H(x) = clamp(x / (2 delta) + 1/2, 0, 1)`. (Chen
    et al., "Towards Accurate One-Stage Object Detection with AP-Loss", 2019, without its
    interpolation of precision; RankED, Cetinkaya et al., 2024, ranks edges by it, with delta 0.1.)
    Without a positive, or without a negative, it is 0.

    H is flat for pairs far apart, the worst mistakes among them. The papers therefore do not take
    its derivative: by their error-driven update each pair pulls z_i up and z_j down by its share
    of the loss. The pairs are summed in a sorted order, by running sums in float64.

    Args:
        pred: logits, or probabilities with `from_logits=False`.
        target: labels in [0, 1], of the same shape; a soft one is a fraction of each class.
        delta: half the width of the step, in logits.
        error_driven: the papers' update; otherwise the derivative of the value.
        from_logits: whether `pred` holds logits.
        mask: elements that count; None for all. An empty mask gives 0.

    >>> ap_loss(torch.tensor([2.0, 5.0, -5.0]), torch.tensor([1.0, 0.0, 0.0]))
    tensor(0.5000)
    """
    _check_delta(delta)
    pred, target, mask = prepare(pred, target, mask, from_logits=from_logits)
    score, order = logit(pred, from_logits).flatten().double().sort()
    positive = target.flatten()[order].double()
    negative = 1 - positive
    if mask is not None:
        negative = negative.where(mask.flatten()[order], 0.0)
    at = score.detach() if error_driven else score
    ends = _ends(at, delta)
    positives_above = _above(at, positive, ends, delta) - positive / 2  # itself left out
    negatives_above = _above(at, negative, ends, delta) - negative / 2
    rank = 1 + positives_above + negatives_above
    total = positive.sum()
    share = positive / total.where(total > 0, 1.0) / rank
    loss = (share * negatives_above).sum()
    if error_driven:
        # H(z_j - z_i) = 1 - H(z_i - z_j)
        positives_below = share.sum() - _above(at, share, ends, delta) - share / 2
        update = ((negative * positives_below - share * negatives_above) * score).sum()
        loss = loss + (update - update.detach())
    return loss.to(pred.dtype)


class LovaszHingeLoss(RegionLoss):
    """See `lovasz_hinge_loss`."""

    function = staticmethod(lovasz_hinge_loss)

    def __init__(self, *, per_image: bool = True, from_logits: bool = True) -> None:
        super().__init__(per_image=per_image, from_logits=from_logits)


class APLoss(RegionLoss):
    """See `ap_loss`."""

    function = staticmethod(ap_loss)

    def __init__(
        self, *, delta: float = 1.0, error_driven: bool = True, from_logits: bool = True
    ) -> None:
        _check_delta(delta)
        super().__init__(delta=delta, error_driven=error_driven, from_logits=from_logits)


def _rows(x: Tensor, per_image: bool) -> Tensor:
    return x.flatten(1) if per_image else x.reshape(1, -1)


def _running_sums(rows: Tensor) -> Tensor:
    """`rows.cumsum(dim=1)`, in one line: Inductor of PyTorch 2.11 fails at long rows side by side.

    >>> _running_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([[1., 3.],
            [3., 7.]])
    """
    sums = rows.flatten().cumsum(0).view_as(rows)
    return sums - (sums - rows)[:, :1]


def _ends(score: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Where, in rising scores, those within delta of each begin and end."""
    score = score.detach()
    low = torch.searchsorted(score, score - delta)
    return low, torch.searchsorted(score, score + delta, right=True)


def _above(score: Tensor, weight: Tensor, ends: tuple[Tensor, Tensor], delta: float) -> Tensor:
    """`sum_k weight_k H(score_k - score_i)` for each i of rising scores."""
    low, high = ends
    weights = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
    moments = torch.cat([weight.new_zeros(1), (weight * score).cumsum(0)])
    inside = weights[high] - weights[low]
    moment = moments[high] - moments[low]
    return weights[-1] - weights[high] + inside / 2 + (moment - score * inside) / (2 * delta)


def _check_delta(delta: float) -> None:
    if not 0 < delta < float("inf"):
        raise ValueError(f"delta must be > 0 and finite, got {delta}; the papers' are 1 and 0.1")
