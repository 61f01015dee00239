"""The edge benchmark inside a training loop: update, compute, reset, and merging across ranks.

With torchmetrics installed (`pip install 'knifeedge[metrics]'`) `EdgeMetric` is a
`torchmetrics.Metric`: it moves with its module, takes that class's options, and is logged by
Lightning (`self.log_dict(metric.compute())`). Without it a small base does the same through
`torch.distributed`. The result does not depend on how the images are spread over ranks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

from knifeedge.metrics.evaluate import score_image
from knifeedge.metrics.inputs import Image, Reader
from knifeedge.metrics.protocols import Protocol, get_protocol
from knifeedge.metrics.scores import NUMBERS, EdgeScores, score
from knifeedge.metrics.values import LABEL_THRESHOLD

NAME_BYTES = 128  # names travel between ranks as rows of bytes


class _PlainMetric:
    """As much of `torchmetrics.Metric` as `EdgeMetric` needs, where that is not installed."""

    device = torch.device("cpu")

    def __init__(self, **options: Any) -> None:
        if options:
            raise TypeError(
                f"option {', '.join(options)} is one of torchmetrics, which is not installed; "
                "pip install 'knifeedge[metrics]'"
            )
        self._states: list[str] = []

    def __init_subclass__(cls) -> None:
        cls.compute = _synchronised(cls.compute)  # type: ignore[method-assign, assignment]

    def add_state(self, name: str, default: list[Tensor], dist_reduce_fx: str) -> None:
        """Keep a list that is joined with the other ranks' before computing."""
        self._states.append(name)
        setattr(self, name, default)

    def reset(self) -> None:
        """Forget all images."""
        for name in self._states:
            setattr(self, name, [])

    def compute(self) -> dict[str, Tensor]:
        """Said by the subclass."""
        raise TypeError(f"{type(self).__name__} must define compute()")

    @contextlib.contextmanager
    def sync_context(self) -> Iterator[None]:
        """Within it, the states hold the images of all ranks."""
        mine = {name: getattr(self, name) for name in self._states}
        if dist.is_available() and dist.is_initialized():
            everyone: list[dict[str, list[Tensor]]] = [{} for _ in range(dist.get_world_size())]
            dist.all_gather_object(everyone, mine)
            for name in self._states:
                setattr(self, name, [row for theirs in everyone for row in theirs[name]])
        try:
            yield
        finally:
            for name, rows in mine.items():
                setattr(self, name, rows)


def _synchronised(
    compute: Callable[[Any], dict[str, Tensor]],
) -> Callable[[Any], dict[str, Tensor]]:
    @functools.wraps(compute)
    def wrapped(self: _PlainMetric) -> Any:
        with self.sync_context():
            return compute(self)

    return wrapped


try:
    from torchmetrics import Metric as _Base
except ImportError:
    _Base = _PlainMetric


class EdgeMetric(_Base):  # type: ignore[misc]
    """ODS, OIS, AP and the rest over all images seen since the last reset.

    Args:
        protocol: A name from `knifeedge.metrics.PROTOCOLS`, or a record.
        label_threshold: A target that is not 0 and 1 already has edges above this.
        options: Options of `torchmetrics.Metric`, where that is installed.

    >>> edges = torch.zeros(2, 1, 16, 16)
    >>> edges[:, :, 8] = 1
    >>> metric = EdgeMetric("one-pixel")
    >>> metric.update(0.9 * edges, edges)
    >>> metric.compute()["ods"]
    tensor(1.)
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    counts: list[Tensor]
    crispness: list[Tensor]
    names: list[Tensor]

    def __init__(
        self,
        protocol: str | Protocol = "paper-strict",
        *,
        label_threshold: float = LABEL_THRESHOLD,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.protocol = get_protocol(protocol)
        self._reader = Reader(label_threshold=label_threshold)
        for state in _EMPTY_STATES:
            self.add_state(state, default=[], dist_reduce_fx="cat")

    def update(self, prob: Tensor, target: Tensor, names: Sequence[str] | None = None) -> None:
        """Score a batch and keep its counts.

        Args:
            prob: Probabilities in [0,1], not logits: (N, 1, H, W), (N, H, W) or (H, W).
            target: Edges, of the same size: booleans, 0 and 1, or values in [0,1].
            names: One name an image. Of images with the same name the first counts: a sampler that
                hands an image to several ranks, to make them equal, does not change the result.
                Images without one are numbered, past the numbers that are names.
        """
        maps, targets = _images(prob, "prob"), _images(target, "target")
        if [image.shape for image in maps] != [image.shape for image in targets]:
            raise ValueError(
                f"prob and target must be of the same size, got {tuple(prob.shape)} and "
                f"{tuple(target.shape)}"
            )
        labels = [""] * len(maps) if names is None else list(names)
        if len(labels) != len(maps):
            raise ValueError(f"names must be one an image, got {len(labels)} for {len(maps)}")
        # Scored before anything is kept: a batch with a bad map leaves no trace.
        rows = [
            (*score_image(*self._reader.load(image), protocol=self.protocol), _to_bytes(image.name))
            for image in map(Image, labels, maps, targets)
        ]
        for counts, crispness, name in rows:
            self.counts.append(torch.from_numpy(counts)[None].to(self.device))
            self.crispness.append(
                torch.tensor([crispness], dtype=torch.float64, device=self.device)
            )
            self.names.append(torch.from_numpy(name)[None].to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """The scores of all ranks' images as scalar tensors, by the names of `EdgeScores`.

        Every rank must call it, and gets the same.
        """
        scores = self._scores()
        return {name: torch.tensor(getattr(scores, name), device=self.device) for name in NUMBERS}

    def scores(self) -> EdgeScores:
        """The same in full: curves, the table of images, the protocol. Every rank must call it."""
        with self.sync_context():
            return self._scores()

    def sync(self, *args: Any, **options: Any) -> None:
        """See `torchmetrics.Metric.sync`."""
        # For a rank without images torchmetrics would send a float tensor of one axis, which cannot
        # be gathered with the others': send one of the right type and no rows.
        for state, (shape, dtype) in _EMPTY_STATES.items():
            if len(getattr(self, state)) == 0:
                getattr(self, state).append(
                    torch.zeros((0, *shape), dtype=dtype, device=self.device)
                )
        super().sync(*args, **options)

    def _scores(self) -> EdgeScores:
        counts, crispness, names = (_joined(getattr(self, state)) for state in _EMPTY_STATES)
        if len(counts) == 0:
            raise ValueError("no image has been seen since the last reset; call update first")
        first: dict[str | int, int] = {}
        for i, row in enumerate(names):
            first.setdefault(bytes(row).rstrip(b"\0").decode() or i, i)
        kept = list(first.values())
        free = (str(n) for n in itertools.count() if str(n) not in first)
        return score(
            counts[kept],
            protocol=self.protocol,
            crispness=crispness[kept].tolist(),
            names=[name if isinstance(name, str) else next(free) for name in first],
            options={"label_threshold": self._reader.label_threshold},
        )


_EMPTY_STATES: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
    "counts": ((99, 4), torch.int64),
    "crispness": ((), torch.float64),
    "names": ((NAME_BYTES,), torch.uint8),
}


def _images(tensor: Tensor, name: str) -> list[npt.NDArray[Any]]:
    """The (H, W) arrays of a batch."""
    if tensor.ndim == 4 and tensor.shape[1] == 1:
        tensor = tensor[:, 0]
    elif tensor.ndim == 2:
        tensor = tensor[None]
    if tensor.ndim != 3:
        raise ValueError(
            f"{name} must be (N, 1, H, W), (N, H, W) or (H, W), got {tuple(tensor.shape)}"
        )
    tensor = tensor.detach().cpu()
    # numpy has no bfloat16; float32 holds both half precisions exactly.
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    return list((tensor.float() if half else tensor).numpy())


def _joined(state: list[Tensor] | Tensor) -> npt.NDArray[Any]:
    """A state's rows: a list, or one tensor once torchmetrics has gathered it."""
    rows = state if isinstance(state, Tensor) else torch.cat(state) if state else torch.zeros(0)
    return rows.cpu().numpy()


def _to_bytes(name: str) -> npt.NDArray[np.uint8]:
    """A name as a row of `NAME_BYTES` bytes."""
    data = name.encode()
    if len(data) > NAME_BYTES:
        raise ValueError(f"a name must have at most {NAME_BYTES} bytes, got {len(data)}: {name}")
    return np.frombuffer(data.ljust(NAME_BYTES, b"\0"), dtype=np.uint8).copy()
