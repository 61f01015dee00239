"""knifeedge: models whose answers are yes or no.

The threshold goes into the loss (`AdjustedLoss`), is found from a validation set (`calibrate`),
and the decisions are measured by an exact benchmark (`evaluate`, and the module `metrics`). Data
sets are in `data`, networks come from `create_model`, are trained by `train` or by the paper's
three steps, `run_protocol`, and used by `predict`.

A name is imported when it is first used, so that the benchmark never waits for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knifeedge import data as data, metrics as metrics
    from knifeedge.adjuster import (
        adjuster_weight as adjuster_weight,
        bin_distance as bin_distance,
        class_margin as class_margin,
        hard_adjuster as hard_adjuster,
        masked_distance as masked_distance,
        windowed_adjuster as windowed_adjuster,
    )
    from knifeedge.calibration import (
        Calibration as Calibration,
        calibrate as calibrate,
        calibrate_pixels as calibrate_pixels,
    )
    from knifeedge.config import (
        DataConfig as DataConfig,
        ModelConfig as ModelConfig,
        ProtocolConfig as ProtocolConfig,
        TrainConfig as TrainConfig,
    )
    from knifeedge.distance import (
        DistanceWeight as DistanceWeight,
        check_distance_weight as check_distance_weight,
        cosine_weight as cosine_weight,
        distance_weight as distance_weight,
        extended_weight as extended_weight,
        power_weight as power_weight,
    )
    from knifeedge.edge_metric import (
        EdgeMetric as EdgeMetric,
    )
    from knifeedge.engine import (
        Callback as Callback,
        Run as Run,
        load_model as load_model,
        predict as predict,
        predict_many as predict_many,
        train as train,
    )
    from knifeedge.errors import (
        CheckpointError as CheckpointError,
        ConfigError as ConfigError,
        DataError as DataError,
        KnifeEdgeError as KnifeEdgeError,
    )
    from knifeedge.losses import (
        AdjustedBinLoss as AdjustedBinLoss,
        AdjustedClassLoss as AdjustedClassLoss,
        AdjustedLoss as AdjustedLoss,
        AnyLossF1 as AnyLossF1,
        APLoss as APLoss,
        BCELoss as BCELoss,
        DeepSupervisionLoss as DeepSupervisionLoss,
        DiceLoss as DiceLoss,
        EBTLoss as EBTLoss,
        FocalLoss as FocalLoss,
        HeavisideF1Loss as HeavisideF1Loss,
        LovaszHingeLoss as LovaszHingeLoss,
        OnlineThreshold as OnlineThreshold,
        PixelLoss as PixelLoss,
        RegionLoss as RegionLoss,
        ScoreOrientedLoss as ScoreOrientedLoss,
        SoftF1Loss as SoftF1Loss,
        SWBCELoss as SWBCELoss,
        TverskyLoss as TverskyLoss,
        WBCELoss as WBCELoss,
        anyloss_f1 as anyloss_f1,
        ap_loss as ap_loss,
        bce_loss as bce_loss,
        dice_loss as dice_loss,
        ebt_loss as ebt_loss,
        focal_loss as focal_loss,
        heaviside_f1_loss as heaviside_f1_loss,
        lovasz_hinge_loss as lovasz_hinge_loss,
        score_oriented_loss as score_oriented_loss,
        soft_f1_loss as soft_f1_loss,
        swbce_loss as swbce_loss,
        tversky_loss as tversky_loss,
        wbce_loss as wbce_loss,
    )
    from knifeedge.metrics import (
        EdgeScores as EdgeScores,
        Protocol as Protocol,
        evaluate as evaluate,
    )
    from knifeedge.models import (
        create_model as create_model,
        register_model as register_model,
    )
    from knifeedge.protocol import (
        run_protocol as run_protocol,
    )
    from knifeedge.results import (
        ProtocolResult as ProtocolResult,
    )

_NAMES_IN = {
    "adjuster": (
        "adjuster_weight",
        "bin_distance",
        "class_margin",
        "hard_adjuster",
        "masked_distance",
        "windowed_adjuster",
    ),
    "calibration": (
        "Calibration",
        "calibrate",
        "calibrate_pixels",
    ),
    "config": (
        "DataConfig",
        "ModelConfig",
        "ProtocolConfig",
        "TrainConfig",
    ),
    "distance": (
        "DistanceWeight",
        "check_distance_weight",
        "cosine_weight",
        "distance_weight",
        "extended_weight",
        "power_weight",
    ),
    "edge_metric": ("EdgeMetric",),
    "engine": (
        "Callback",
        "Run",
        "load_model",
        "predict",
        "predict_many",
        "train",
    ),
    "errors": (
        "CheckpointError",
        "ConfigError",
        "DataError",
        "KnifeEdgeError",
    ),
    "losses": (
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
    ),
    "models": (
        "create_model",
        "register_model",
    ),
    "metrics": (
        "EdgeScores",
        "Protocol",
        "evaluate",
    ),
    "protocol": ("run_protocol",),
    "results": ("ProtocolResult",),
}
_ROOMS = ("data", "metrics")
_HOME_OF = {name: home for home, names in _NAMES_IN.items() for name in names}

__all__ = sorted([*_HOME_OF, *_ROOMS])


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"knifeedge.{name}")
    if name in _HOME_OF:
        return getattr(import_module(f"knifeedge.{_HOME_OF[name]}"), name)
    raise AttributeError(f"knifeedge has no name {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
