"""Every network learns two images by heart, with the plain loss and with the adjusted one."""

import pytest

from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.data import load_dataset
from knifeedge.engine import predict_set, train
from knifeedge.engine.predict import labels_of
from knifeedge.metrics import evaluate

# Learning rate and epochs of one step each: from scratch, HED and BDCN need small steps to start.
SETTINGS = {
    "tiny": (1e-2, 150),
    "hed": (1e-3, 150),
    "bdcn": (1e-3, 150),
    "dexined": (1e-3, 100),
}


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("loss", ["wbce", "baa-0.7"])
@pytest.mark.parametrize("model", SETTINGS)
def test_two_images_by_heart(model, loss, tmp_path):
    rate, epochs = SETTINGS[model]
    data = DataConfig("synthetic", options={"count": 2, "size": 48})
    config = TrainConfig(
        *(data, ModelConfig(model)),
        epochs=epochs,
        crop=48,
        batch_size=2,
        turns=False,
        noiseless=False,
        learning_rate=rate,
        loss=loss,
    )
    run = train(config, tmp_path)
    images = load_dataset("synthetic", "train", count=2, size=48)
    maps = dict(predict_set(run.model(), images))
    assert evaluate(maps, labels_of(images), protocol="one-pixel").ods > 0.9
