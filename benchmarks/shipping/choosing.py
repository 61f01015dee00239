"""How good a setting is without the test images: cross-validation over UDED's training images."""

from argparse import Namespace
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import numpy as np
from shipping.images import Part, Sets, separated
from torch import nn

from knifeedge.engine.predict import labels_of, predict_set, to_bytes
from knifeedge.metrics import evaluate


def folds(sets: Sets, count: int) -> Iterator[Sets]:
    """The sets, each time with another part of UDED's training images to validate on."""
    images = sets["UDED"]["train"]
    for fold in range(count):
        held = range(fold, len(images), count)
        rest = (number for number in range(len(images)) if number not in held)
        parts = {"pretrain": Part(images, rest), "validation": Part(images, held)}
        yield separated({**sets, "UDED": {**sets["UDED"], **parts}})


def cross_validate(
    sets: Sets, given: Namespace, fit: Callable[[list[Any]], nn.Module]
) -> dict[str, Any]:
    """ODS on UDED's training images, each predicted by the network that has not seen it.

    Of BSDS500 it is the mean over the networks, on its validation images.
    """
    maps: dict[str, np.ndarray] = {}
    others = []
    for number, fold in enumerate(folds(sets, given.folds), 1):
        print(f"fold {number} of {given.folds}:", flush=True)
        network = fit([splits["pretrain"] for splits in fold.values()])
        held, other = (fold[name]["validation"] for name in ("UDED", "BSDS500"))
        maps |= {name: to_bytes(prob) / 255 for name, prob in predict_set(network, held)}
        found = {name: to_bytes(prob) / 255 for name, prob in predict_set(network, other)}
        others.append(evaluate(found, labels_of(other), protocol="paper-strict").ods)
    labels = labels_of(sets["UDED"]["train"])
    scores = evaluate(maps, labels, protocol="paper-strict")
    return {
        "UDED": {"ods": scores.ods, "threshold": scores.threshold, "images": len(maps)},
        "BSDS500": {"ods": fmean(others)},
    }
