"""Where a training runs: one device, several, or several machines, through Lightning Fabric.

Under torchrun the number of processes is torchrun's. Each takes its share of every batch, and the
losses sum over all of them, so that the gradient is that of one process with the whole batch. Batch
norms are synchronised on CUDA; on a CPU they see their process's share alone.
"""

import logging
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor, nn

try:
    from lightning_fabric import Fabric as Fabric
    from lightning_fabric.strategies import DDPStrategy
except ImportError:  # the same, as a part of the package `lightning`
    from lightning.fabric import Fabric as Fabric
    from lightning.fabric.strategies import DDPStrategy

from knifeedge.config import Precision
from knifeedge.data.pool import CropPool
from knifeedge.errors import ConfigError


def open_fabric(accelerator: str, devices: int, nodes: int, precision: Precision) -> Fabric:
    """Start the processes of a training, or join them.

    >>> open_fabric("cpu", 1, 1, "32-true").world_size
    1
    """
    accelerator = find_device(accelerator).type
    if "LOCAL_WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    elif nodes > 1:  # it would wait for the others for ever
        raise ConfigError(f"{nodes} nodes need torchrun, on each of them: see the page on clusters")
    if devices < 1 or nodes < 1:
        raise ConfigError(f"devices and nodes must be at least 1, got {devices} and {nodes}")
    if accelerator == "cuda" and devices > torch.cuda.device_count():
        raise ConfigError(f"there are {torch.cuda.device_count()} CUDA devices, not {devices}")
    # It speaks of devices and precisions that were chosen here on purpose.
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # static_graph: parameters without a gradient, as an extractor's heads, are found once.
    several = devices * nodes > 1
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=nodes,
        strategy=DDPStrategy(static_graph=True) if several else "auto",
        precision=precision,
    )
    fabric.launch()
    return fabric


def find_device(accelerator: str) -> torch.device:
    """The device of one process: auto takes CUDA where there is any.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if accelerator not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"accelerator must be auto, cpu or cuda, got {accelerator!r}")
    available = torch.cuda.is_available()
    if accelerator == "cuda" and not available:
        raise ConfigError("there is no CUDA device here; use --accelerator cpu")
    return torch.device("cuda" if available and accelerator != "cpu" else "cpu")


def prepare(fabric: Fabric, network: nn.Module) -> nn.Module:
    """The network on its device, in the memory layout and with the batch norms for it."""
    if fabric.device.type == "cuda":
        if fabric.world_size > 1:
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network.to(fabric.device)


def share(
    fabric: Fabric, pool: CropPool, epoch: int, samples: npt.NDArray[np.int64]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """This process's part of a batch: image, target, mask."""
    image, target, *masks = pool.samples(epoch, samples[fabric.global_rank :: fabric.world_size])
    return image, target, masks[0] if masks else None


def rank() -> int:
    """The number of this process among those of a training."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def barrier() -> None:
    """Wait for the other processes."""
    if world_size() > 1:
        dist.barrier()


def all_agree(fabric: Fabric, flag: bool) -> bool:
    """Whether any process says so; all processes must ask."""
    if fabric.world_size == 1:
        return flag
    answer: Any = fabric.all_reduce(
        torch.tensor(float(flag), device=fabric.device), reduce_op="sum"
    )
    return bool(answer > 0)
