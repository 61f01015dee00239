"""Losses for binary decisions, as pairs of a function and a Module; any of them adjusted."""

from knifeedge.losses.adjusted import AdjustedLoss
from knifeedge.losses.counts import RegionLoss
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
from knifeedge.losses.online import OnlineThreshold
from knifeedge.losses.ranking import APLoss, LovaszHingeLoss, ap_loss, lovasz_hinge_loss
from knifeedge.losses.reduction import PixelLoss
from knifeedge.losses.regions import DiceLoss, TverskyLoss, dice_loss, tversky_loss
from knifeedge.losses.soft_f1 import AnyLossF1, SoftF1Loss, anyloss_f1, soft_f1_loss
from knifeedge.losses.threshold_f1 import (
    HeavisideF1Loss,
    ScoreOrientedLoss,
    heaviside_f1_loss,
    score_oriented_loss,
)

__all__ = [
    "APLoss",
    "AdjustedBinLoss",
    "AdjustedClassLoss",
    "AdjustedLoss",
    "AnyLossF1",
    "BCELoss",
    "DeepSupervisionLoss",
    "DiceLoss",
    "EBTLoss",
    "FocalLoss",
    "HeavisideF1Loss",
    "LovaszHingeLoss",
    "OnlineThreshold",
    "PixelLoss",
    "RegionLoss",
    "SWBCELoss",
    "ScoreOrientedLoss",
    "SoftF1Loss",
    "TverskyLoss",
    "WBCELoss",
    "anyloss_f1",
    "ap_loss",
    "bce_loss",
    "dice_loss",
    "ebt_loss",
    "focal_loss",
    "heaviside_f1_loss",
    "lovasz_hinge_loss",
    "score_oriented_loss",
    "soft_f1_loss",
    "swbce_loss",
    "tversky_loss",
    "wbce_loss",
]
