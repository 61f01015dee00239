"""Edge models by name: images (N, 3, H, W) to a list of logits (N, 1, H, W), the final one last.

The images are RGB in [0, 1], normalised by ImageNet's mean and standard deviation. Any size goes
in, and comes out, without a shift. See `create_model` and `register_model`.
"""

from knifeedge.models.base import SideOutputModel
from knifeedge.models.bdcn import BDCN
from knifeedge.models.dexined import DexiNed
from knifeedge.models.ees import EES, ees3_double, mix
from knifeedge.models.hed import HED
from knifeedge.models.registry import (
    ModelEntry,
    create_model,
    model_entry,
    model_names,
    register_model,
)
from knifeedge.models.selector import Selector
from knifeedge.models.summary import ModelSummary, TraceRow, summarise, trace
from knifeedge.models.tiny import Tiny

__all__ = [
    "BDCN",
    "EES",
    "HED",
    "DexiNed",
    "ModelEntry",
    "ModelSummary",
    "Selector",
    "SideOutputModel",
    "Tiny",
    "TraceRow",
    "create_model",
    "ees3_double",
    "mix",
    "model_entry",
    "model_names",
    "register_model",
    "summarise",
    "trace",
]
