"""Training and prediction: from a configuration to weights, from an image to a map."""

from knifeedge.engine.checkpoint import WeightsInfo, load_model, save_model
from knifeedge.engine.logs import Callback, EpochRecord, Standing
from knifeedge.engine.predict import predict, predict_many, predict_set
from knifeedge.engine.signals import Interrupted
from knifeedge.engine.train import Run, resume_run, train

__all__ = [
    "Callback",
    "EpochRecord",
    "Interrupted",
    "Run",
    "Standing",
    "WeightsInfo",
    "load_model",
    "predict",
    "predict_many",
    "predict_set",
    "resume_run",
    "save_model",
    "train",
]
