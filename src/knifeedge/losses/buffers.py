"""Settings on the device: buffers that stay precise in a model of half precision."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class PreciseBuffers(nn.Module):
    """A Module whose own buffers are at least float32, whatever it is cast to.

    A loss is often part of the model that is cast: a threshold of 0.7 would become 0.6992, and a
    histogram overflow.

    >>> loss = PreciseBuffers()
    >>> loss.register_buffer("threshold", torch.tensor(0.7))
    >>> loss.half().threshold
    tensor(0.7000)
    """

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Any:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            after = self._buffers[name]
            if buffer is None or after is None:
                continue
            if after.dtype in (torch.float16, torch.bfloat16):
                self._buffers[name] = buffer.to(after.device, torch.float32)
        return self
