"""Every network learns two images by heart, with the plain loss and with the adjusted one."""

import pytest
from PIL import Image

from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.data import load_dataset
from knifeedge.data.synthetic import Difficulty, synthetic_scene
from knifeedge.engine import predict_set, train
from knifeedge.engine.predict import labels_of
from knifeedge.metrics import evaluate

# Without textures, faint borders and noise: what cannot be seen can be learnt by heart, but slowly.
PLAIN = Difficulty(faint=0, textured=0, texture=(0, 0), blur=(0.3, 0.4), noise=(0, 0.005))
SIZE = 32
# Learning rate and steps: HED and BDCN, without batch norms, need more of them.
SETTINGS = {"tiny": (1e-2, 60), "dexined": (1e-3, 40), "hed": (1e-3, 200), "bdcn": (1e-3, 160)}


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("loss", ["wbce", "baa-0.7"])
@pytest.mark.parametrize("model", SETTINGS)
def test_two_images_by_heart(model, loss, tmp_path):
    for index in range(2):
        pictures = synthetic_scene(0, index, SIZE, PLAIN)
        for kind, array in zip(("images", "labels"), pictures, strict=True):
            path = tmp_path / "two" / kind / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(path)
    rate, epochs = SETTINGS[model]
    config = TrainConfig(
        *(DataConfig("folder", "all", root=str(tmp_path / "two")), ModelConfig(model)),
        epochs=epochs,
        crop=SIZE,
        batch_size=2,
        turns=False,
        noiseless=False,
        learning_rate=rate,
        loss=loss,
    )
    run = train(config, tmp_path / "run")
    images = load_dataset("folder", "all", root=tmp_path / "two")
    maps = dict(predict_set(run.model(), images))
    assert evaluate(maps, labels_of(images), protocol="one-pixel").ods > 0.9
