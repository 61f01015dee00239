"""Deep supervision: one loss over all side outputs of a network and its final one."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from knifeedge.losses.adjusted import AdjustedLoss


class DeepSupervisionLoss(nn.Module):
    """Weighted sum of a loss over a network's outputs, the final one last.

    Args:
        loss: the loss of the final output, and of the others where `side_loss` is None. An online
            threshold in it is that of the final output, and learns from no other.
        weights: one factor per output; None for 1 each. The author of the paper supervises the
            final output alone, with a factor of 1.1.
        side_loss: the loss of all outputs but the last: with an adjusted `loss` and its base
            here, the adjuster acts on the final output only.

    >>> import torch
    >>> from knifeedge.losses import AdjustedLoss, WBCELoss
    >>> on_all = DeepSupervisionLoss(AdjustedLoss(WBCELoss()))
    >>> on_last = DeepSupervisionLoss(AdjustedLoss(WBCELoss()), side_loss=WBCELoss())
    >>> outputs = [torch.full((1, 1, 4, 4), 0.5)] * 3
    >>> bool(on_all(outputs, torch.eye(4)[None]) > on_last(outputs, torch.eye(4)[None]))
    True
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        *,
        weights: Sequence[float] | None = None,
        side_loss: Callable[..., Tensor] | None = None,
    ) -> None:
        super().__init__()
        if weights is not None and any(not w >= 0 for w in weights):
            raise ValueError(f"weights must be >= 0, got {tuple(weights)}")
        self.loss = loss
        self.side_loss = side_loss
        self.weights = None if weights is None else tuple(weights)

    def forward(
        self, preds: Sequence[Tensor], target: Tensor, *, mask: Tensor | None = None
    ) -> Tensor:
        """The loss of a list of outputs."""
        if isinstance(preds, Tensor) or len(preds) == 0:
            got = "one tensor" if isinstance(preds, Tensor) else "none"
            raise TypeError(f"preds must be a list of outputs, the final one last; got {got}")
        weights = (1.0,) * len(preds) if self.weights is None else self.weights
        if len(weights) != len(preds):
            raise ValueError(
                f"weights must have one entry per output, got {len(weights)} for {len(preds)}"
            )
        losses = [self._side_loss()] * (len(preds) - 1) + [self.loss]
        # A loss from elsewhere may not know what a mask is.
        masked = {} if mask is None else {"mask": mask}
        terms = [
            weight * loss(pred, target, **masked)
            for weight, loss, pred in zip(weights, losses, preds, strict=True)
        ]
        return sum(terms[1:], terms[0])

    def _side_loss(self) -> Callable[..., Tensor]:
        """The loss of all outputs but the last."""
        if self.side_loss is not None:
            return self.side_loss
        return self.loss.judge if isinstance(self.loss, AdjustedLoss) else self.loss
