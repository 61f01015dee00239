"""What a model is and costs, found on the meta device: nothing is allocated or computed."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from knifeedge.models.base import SideOutputModel
from knifeedge.models.registry import create_model, model_entry
from knifeedge.models.selector import Selector

SIDE = 320  # the crop size of the paper


@dataclass(frozen=True)
class ModelSummary:
    """A model in figures.

    Attributes:
        name, description: as registered.
        parameters: all of them.
        trainable: those that a training changes.
        gflop: 10^9 floating-point operations of one forward pass on one 320 x 320 image; a
            multiplication and an addition count as two.
        outputs: how many logits it returns, the final one included.
    """

    name: str
    description: str
    parameters: int
    trainable: int
    gflop: float
    outputs: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TraceRow:
    """One stage: a module's name, and the channels, size and stride of what it returns."""

    stage: str
    channels: int
    height: int
    width: int
    stride: int


def summarise(name: str, **options: Any) -> ModelSummary:
    """Count a registered model's parameters and operations.

    >>> summary = summarise("hed")
    >>> summary.parameters, round(summary.gflop)
    (14716171, 63)
    """
    model, images = _on_meta(name, options)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        outputs = model(images)
    return ModelSummary(
        name=name,
        description=model_entry(name).description,
        parameters=sum(p.numel() for p in model.parameters()),
        trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        gflop=counter.get_total_flops() / 1e9,
        outputs=len(outputs),
    )


def trace(name: str, **options: Any) -> list[TraceRow]:
    """The stages of a registered model on a 320 x 320 image, in the order in which they run.

    A stage is an outermost module; lists of modules and the parts of EES are looked into. Of one
    that returns several tensors the last is shown.

    >>> for row in trace("hed")[:3]:
    ...     print(row.stage, row.channels, row.stride)
    trunk.0 64 1
    scores.0 1 1
    trunk.1 128 2
    """
    model, images = _on_meta(name, options)
    rows: list[TraceRow] = []

    def record(stage: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            last = output if isinstance(output, Tensor) else output[-1]
            if isinstance(last, Tensor) and last.ndim == 4:
                channels, height, width = last.shape[1:]
                rows.append(TraceRow(stage, channels, height, width, round(SIDE / height)))

        return hook

    for stage, module in _stages(model):
        module.register_forward_hook(record(stage))
    with torch.no_grad():
        model(images)
    return rows


def _stages(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, module in model.named_children():
        if isinstance(module, nn.ModuleList | nn.ModuleDict | SideOutputModel | Selector):
            yield from _stages(module, f"{prefix}{name}.")
        elif not isinstance(module, nn.Identity):
            yield prefix + name, module


def _on_meta(name: str, options: dict[str, Any]) -> tuple[nn.Module, Tensor]:
    with torch.device("meta"):
        return create_model(name, **options).eval(), torch.zeros(1, 3, SIDE, SIDE)
