"""The demonstration: two losses, one network, one exact score, on images made by code.

Trains `tiny` on synthetic scenes with WBCE and with its adjusted version, cuts each at the
threshold that was best on validation scenes, and scores both on test scenes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import nn

from knifeedge.calibration import calibrate
from knifeedge.data import CropPool, CropSettings, EdgeSet, SyntheticSet, normalise
from knifeedge.losses import AdjustedLoss, WBCELoss
from knifeedge.metrics import evaluate
from knifeedge.models import create_model

Map = npt.NDArray[np.float32]

SCENES, SIZE, CROP, EPOCHS = 32, 192, 128, 5
PROTOCOL = "one-pixel"  # a scene is small: a share of its diagonal would be less than that
LOSSES: dict[str, Callable[[], nn.Module]] = {
    "WBCE": WBCELoss,
    "BAA-0.7": lambda: AdjustedLoss(WBCELoss(), threshold=0.7),
}


@dataclass(frozen=True)
class Row:
    """One line of the demonstration's table."""

    loss: str
    threshold: float
    f: float
    ods: float
    ois: float


def run(
    folder: Path, *, seed: int = 0, epochs: int = EPOCHS, tell: Callable[[str], None] = print
) -> list[Row]:
    """Train, calibrate and score once for each loss; write a picture.

    Args:
        folder: where the picture goes; made if it is missing.
        seed: of the network and of the crops. The same seed gives the same table.
        epochs: passes over the training scenes.
        tell: takes a line of progress.

    Returns:
        For each loss the calibrated threshold, F there, ODS and OIS on the test scenes.
    """
    validation, test = (
        SyntheticSet(part, count=SCENES, size=SIZE) for part in ("validation", "test")
    )
    rows, pictures = [], []
    for name, build in LOSSES.items():
        model = _train(name, build(), seed, epochs, tell)
        found = calibrate(_predict(model, validation), _labels(validation), protocol=PROTOCOL)
        maps = _predict(model, test)
        scores = evaluate(maps, _labels(test), protocol=PROTOCOL)
        at = scores.at(found.threshold)
        rows.append(Row(name, found.threshold, at.f, scores.ods, scores.ois))
        pictures.append(maps)
    _write_picture(folder / "demo.png", test, pictures)
    return rows


def _train(
    name: str, loss: nn.Module, seed: int, epochs: int, tell: Callable[[str], None]
) -> nn.Module:
    torch.manual_seed(seed)
    model = create_model("tiny")
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    settings = CropSettings(crop=CROP, seed=seed, noiseless=False)
    pool = CropPool(SyntheticSet("pretrain", count=SCENES, size=SIZE), settings)
    for epoch in range(epochs):
        for image, target in pool.epoch(epoch):
            optimiser.zero_grad()
            value = loss(model(image)[-1], target)
            value.backward()
            optimiser.step()
        tell(f"{name}: epoch {epoch + 1} of {epochs}, loss {value.item():.4f}")
    return model.eval()


def _predict(model: nn.Module, scenes: EdgeSet) -> list[Map]:
    with torch.no_grad():
        return [
            model(normalise(torch.from_numpy(scene.image)[None]))[-1].sigmoid()[0, 0].numpy()
            for scene in scenes
        ]


def _labels(scenes: EdgeSet) -> list[npt.NDArray[np.bool_]]:
    return [scene.label > 127 for scene in scenes]


def _write_picture(path: Path, scenes: EdgeSet, maps: list[list[Map]], count: int = 4) -> None:
    """One row a scene: the image, its label, and each loss's map, dark on white."""

    def columns(number: int) -> Iterator[npt.NDArray[np.uint8]]:
        scene = scenes[number]
        yield scene.image
        planes: list[Map] = [(scene.label / 255).astype(np.float32), *(of[number] for of in maps)]
        for plane in planes:
            yield np.repeat(np.round(255 * (1 - plane)).astype(np.uint8)[..., None], 3, axis=2)

    rows = [np.hstack(list(columns(number))) for number in range(min(count, len(scenes)))]
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    Image.fromarray(np.vstack(rows)).save(beside, format="PNG")
    beside.replace(path)
