"""Losses for binary decisions, as pairs of a function and a Module; any of them adjusted."""

from knifeedge.losses.adjusted import AdjustedLoss
from knifeedge.losses.cross_entropy import (
    BCELoss,
    SWBCELoss,
    WBCELoss,
    bce_loss,
    swbce_loss,
    wbce_loss,
)
from knifeedge.losses.deep_supervision import DeepSupervisionLoss
from knifeedge.losses.ebt import EBTLoss, ebt_loss
from knifeedge.losses.focal import FocalLoss, focal_loss
from knifeedge.losses.many_valued import AdjustedBinLoss, AdjustedClassLoss
from knifeedge.losses.reduction import PixelLoss

__all__ = [
    "AdjustedBinLoss",
    "AdjustedClassLoss",
    "AdjustedLoss",
    "BCELoss",
    "DeepSupervisionLoss",
    "EBTLoss",
    "FocalLoss",
    "PixelLoss",
    "SWBCELoss",
    "WBCELoss",
    "bce_loss",
    "ebt_loss",
    "focal_loss",
    "swbce_loss",
    "wbce_loss",
]
