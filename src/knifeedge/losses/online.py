"""A threshold found while training: the one that decides best on the batches lately seen.

The paper's self-adaptive threshold takes a second, complete training. Here the predictions of the
training itself are counted, in decaying histograms, one of the positives and one of the negatives.
At a threshold t they say how many of the positives are found and how many false alarms there are,
and so the F-beta of deciding at t; the threshold moves towards the best.

For thin edges a pixel is not judged by itself, but as the benchmark does it: see `tolerance`. What
stays different from it is that the images are those of the training, that an edge may be found by
a pixel which finds another too, and that lines are told from their flanks by looking at the next
pixels instead of by thinning.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from knifeedge.losses.buffers import PreciseBuffers
from knifeedge.losses.reduction import sum_over_ranks

BINS = 100  # so that the thresholds are 0.01 .. 0.99, those of the benchmark
SAMPLES = 2**20  # at most so many elements of a batch are counted, evenly spaced
PLATEAU = 1e-3  # thresholds whose F is this close to the best are as good
VALLEY = 1e-2  # where F falls this far below the best, another plateau begins behind it


class OnlineThreshold(PreciseBuffers):
    """The threshold of an `AdjustedLoss` that is found while training.

    Everything stays on the device: nothing waits for it. Over several ranks the counts are those
    of all of them. The state is in the state dict, to be saved with the training's.

    Args:
        beta: how many times as much recall weighs as precision.
        tolerance: pixels by which an edge may be missed, in maps (N, 1, H, W): a positive is found
            where the probability reaches the threshold within so many rows and columns of it; a
            false alarm is farther from all positives than that, and is greater than its neighbours
            in its row or in its column, as what is left of a line after thinning. 0 judges every
            element by itself, whatever the shape.
        start: the threshold until `warm_up` is over.
        warm_up: batches that are counted before it moves.
        memory: batches after which one's weight in the counts has fallen to 1/e.
        speed: share of the way to the best threshold that it moves in a batch.
        bounds: the least and the greatest threshold.

    >>> online = OnlineThreshold(warm_up=0, speed=1.0)
    >>> online.update(torch.tensor([0.1, 0.3, 0.6, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0]))
    >>> online
    OnlineThreshold(0.455, beta=1, tolerance=0)
    """

    value: Tensor
    batches: Tensor
    counts: Tensor

    def __init__(
        self,
        *,
        beta: float = 1.0,
        tolerance: int = 0,
        start: float = 0.7,
        warm_up: int = 50,
        memory: float = 50.0,
        speed: float = 0.1,
        bounds: tuple[float, float] = (0.1, 0.9),
    ) -> None:
        super().__init__()
        low, high = bounds
        for name, right, must, got in (
            ("beta", 0 < beta < float("inf"), "> 0 and finite", beta),
            (
                "tolerance",
                isinstance(tolerance, int) and tolerance in range(33),
                "a whole number, 0 to 32",
                tolerance,
            ),
            ("bounds", 0 < low <= high < 1, "two numbers in (0, 1), in order", bounds),
            ("start", low <= start <= high, f"within the bounds {low} and {high}", start),
            ("warm_up", warm_up >= 0, ">= 0", warm_up),
            ("memory", memory >= 1, ">= 1", memory),
            ("speed", 0 < speed <= 1, "in (0, 1]", speed),
        ):
            if not right:
                raise ValueError(f"{name} must be {must}, got {got}")
        self.beta, self.tolerance, self.bounds = float(beta), tolerance, (low, high)
        self.warm_up, self.memory, self.speed = warm_up, memory, speed
        self.register_buffer("value", torch.tensor(float(start)))
        self.register_buffer("batches", torch.tensor(0))
        self.register_buffer("counts", torch.zeros(2, BINS))

    def update(self, prob: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Count a batch, and move.

        Args:
            prob: probabilities.
            target: labels in [0, 1], of the same shape; above one half is positive.
            mask: elements that count; None for all.
        """
        if prob.shape != target.shape:
            raise ValueError(
                f"prob and target must have equal shapes, got {tuple(prob.shape)} and "
                f"{tuple(target.shape)}"
            )
        if self.counts.device != prob.device:
            self.to(prob.device)
        found = sum_over_ranks(self._count(prob.detach().float(), target.detach(), mask))
        self.counts.mul_(1 - 1 / self.memory).add_(found)
        self.batches.add_(1)
        best, known = self._best()
        step = torch.where(known & (self.batches > self.warm_up), self.speed, 0.0)
        self.value.copy_(torch.lerp(self.value, best, step).clamp(*self.bounds))

    def _count(self, prob: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """How many negatives and how many positives there are in each bin (2, BINS)."""
        positive = target > 0.5
        counted = torch.ones_like(positive) if mask is None else mask.bool()
        if self.tolerance:
            prob = prob.where(counted, 0.0)
            near = _spread((positive & counted).to(prob.dtype), self.tolerance) > 0
            counted = counted & (positive | (_is_ridge(prob) & ~near))
            prob = torch.where(positive, _spread(prob, self.tolerance), prob)
        # Both histograms in one: negatives in [0, 1), positives in [1, 2], what is out elsewhere.
        place = prob.clamp(max=1 - 1e-6) + positive
        place = place.where(counted, -1.0).flatten()
        stride = -(-place.numel() // SAMPLES) | 1  # odd: not in step with the rows of an image
        return torch.histc(place[::stride], 2 * BINS, 0.0, 2.0).view(2, BINS)

    def _best(self) -> tuple[Tensor, Tensor]:
        """The threshold with the greatest F-beta, and whether there is one.

        Of several as good, within PLATEAU, it is their mean. It would lie in the valley between
        two plateaus; there it is the mean of the one that has the best, of equals the lower.
        """
        false_alarms, hits = self.counts.flip(1).cumsum(1).flip(1)[:, 1:]
        squared, positives = self.beta**2, self.counts[1].sum()
        f = (1 + squared) * hits / (hits + false_alarms + squared * positives).clamp(min=1e-9)
        best, at = f.max(dim=0, keepdim=True)
        below = (f < best - VALLEY).cumsum(dim=0)  # goes on only in valleys
        good = ((f >= best - PLATEAU) & (below == below.gather(0, at))).to(f.dtype)
        thresholds = torch.arange(1, BINS, dtype=f.dtype, device=f.device) / BINS
        return (good * thresholds).sum() / good.sum(), best[0] > 0

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{float(self.value):.3g}, beta={self.beta:g}, tolerance={self.tolerance}"


def _spread(x: Tensor, radius: int) -> Tensor:
    """The greatest value within so many rows and columns."""
    if x.ndim not in (3, 4):
        raise ValueError(
            "an online threshold with a tolerance takes maps (N, 1, H, W) or (N, H, W), got"
            f" {tuple(x.shape)}; without one (tolerance=0) it takes any shape"
        )
    return F.max_pool2d(x, 2 * radius + 1, stride=1, padding=radius) if x.numel() else x


def _is_ridge(x: Tensor) -> Tensor:
    """Where a value is the greatest of three in its row or in its column; the first of equals."""
    high = F.pad(x, (1, 1, 1, 1), value=-1.0)
    middle, rows, columns = high[..., 1:-1, 1:-1], high[..., 1:-1, :], high[..., 1:-1]
    across = (middle > rows[..., :-2]) & (middle >= rows[..., 2:])
    down = (middle > columns[..., :-2, :]) & (middle >= columns[..., 2:, :])
    return across | down
