"""One step of training: forward, loss, backward, optimiser.

On one CUDA device the network is compiled, and the loss where it has no kernels of its own, and the
whole step is captured as a CUDA graph: a step is then one launch, and the card does not wait for
Python. Anywhere else, and for a batch of another shape than the graph's, the same step runs
eagerly.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from knifeedge.engine.devices import Fabric

Step = Callable[[Tensor, Tensor, Tensor | None], Tensor]

WARM_UP = 3  # eager steps before the capture: they compile, choose algorithms, and make the state


def make_optimiser(
    fabric: Fabric, network: nn.Module, learning_rate: float, weight_decay: float
) -> torch.optim.Adam:
    """Adam for the parameters that are trained."""
    return torch.optim.Adam(
        [p for p in network.parameters() if p.requires_grad],
        lr=learning_rate,
        weight_decay=weight_decay,
        fused=True,
        capturable=fabric.device.type == "cuda",
    )


def make_step(
    fabric: Fabric, network: nn.Module, optimiser: torch.optim.Optimizer, loss: nn.Module
) -> Step:
    """The step of a training; it returns the loss."""
    model, wrapped = fabric.setup(network, optimiser)
    model.train()
    # Channels-last gradients are copied into the others' layout: correct, and a matter of course.
    warnings.filterwarnings("ignore", "(?s).*Grad strides do not match bucket view strides")
    if fabric.device.type == "cuda" and fabric.world_size == 1:
        return GraphedStep(fabric, network, optimiser, loss)

    def step(image: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        value: Tensor = loss(model(image)[-1], target, mask=mask)
        fabric.backward(value)
        wrapped.step()
        wrapped.zero_grad()
        return value.detach()

    return step


class GraphedStep:
    """A step that is captured once it has run a few times, and replayed from then on."""

    def __init__(
        self,
        fabric: Fabric,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        loss: nn.Module,
    ) -> None:
        from knifeedge.losses import fused  # not before: it loads Triton

        self._fabric, self._optimiser = fabric, optimiser
        self._network: Callable[..., Any] = torch.compile(network, dynamic=False)
        covered = fused.covers(loss)
        self._loss: Callable[..., Tensor] = loss if covered else torch.compile(loss, dynamic=False)
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._ran = 0

    def __call__(self, image: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        """One step; the loss is overwritten by the next one."""
        inputs = [image, target] if mask is None else [image, target, mask]
        if self._graph is None and self._ran >= WARM_UP:
            self._capture(inputs)
        if self._graph is None or [x.shape for x in inputs] != [x.shape for x in self._inputs]:
            self._ran += 1
            return self._beside(lambda: self._step(*inputs))
        for static, given in zip(self._inputs, inputs, strict=True):
            static.copy_(given)
        self._graph.replay()
        return self._value

    def _step(self, image: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        self._optimiser.zero_grad(set_to_none=True)
        with self._fabric.autocast():
            logit = self._network(image)[-1]
        value = self._loss(logit.float(), target, mask=mask)
        value.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return value.detach()

    def _capture(self, inputs: list[Tensor]) -> None:
        self._inputs = [x.clone() for x in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self._value = self._step(*self._inputs)
        self._graph = graph

    def _beside(self, work: Callable[[], Tensor]) -> Tensor:
        """Run on the stream of the capture, as CUDA asks for what comes before one."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            value = work()
        torch.cuda.current_stream().wait_stream(self._stream)
        return value
