"""What a detector is worth: its scores by three protocols, its threshold and time."""

import json
import re
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import ndimage
from torch import nn

import knifeedge as ke
from knifeedge.calibration import calibrate
from knifeedge.data.annotations import read_annotations
from knifeedge.data.datasets import FileSet
from knifeedge.data.samples import EdgeSet
from knifeedge.engine.predict import labels_of, predict_set, to_bytes
from knifeedge.metrics import PROTOCOLS, THRESHOLDS, evaluate

# Matched within 0.0075 of the diagonal, thinned, as the field does it, but without its NMS.
WITHOUT_NMS = PROTOCOLS["bsds"].replace(nms=False)
SHOWN = {p.name: p for p in (PROTOCOLS["paper-strict"], PROTOCOLS["paper-relaxed"], WITHOUT_NMS)}
EVERYBODY = "bsds, all annotators"
THREADS = 2
HED_RECORD, HED_LOSS = r"uded-hed-\d+\.json", "baa-0.7"

Detector = Callable[[np.ndarray], np.ndarray]


def find_threshold(
    network: nn.Module, sets: Mapping[str, EdgeSet]
) -> tuple[float, dict[str, dict[str, float]]]:
    """Where F, averaged over the sets, is greatest, and each set's own best.

    By all annotators of a set: what one of them left out and others drew is no false alarm.
    """
    found = {}
    for name, images in sets.items():
        maps = {key: to_bytes(prob) / 255 for key, prob in predict_set(network, images)}
        labels = all_labels_of(images) or labels_of(images)
        found[name] = calibrate(maps, labels, protocol="paper-strict")
    curve = np.mean([one.curve for one in found.values()], axis=0)
    threshold = float(THRESHOLDS[int(curve.argmax())])
    own = {
        name: {"threshold": one.threshold, "f": one.score, "f_at": one.curve[int(curve.argmax())]}
        for name, one in found.items()
    }
    return threshold, own


def sobel(image: np.ndarray, sigma: float = 2.0) -> np.ndarray:
    """The classical detector: smoothed grey values, their gradient, 1 at the image's largest."""
    grey = np.asarray(Image.fromarray(image).convert("L"), np.float64)
    smooth = ndimage.gaussian_filter(grey, sigma)
    strength = np.hypot(ndimage.sobel(smooth, axis=0), ndimage.sobel(smooth, axis=1))
    return (strength / max(strength.max(), 1e-9)).astype(np.float32)


def score(
    detector: Detector, images: EdgeSet, threshold: float | None = None
) -> dict[str, dict[str, Any]]:
    """Scores by each protocol; at the threshold too, if there is one fixed beforehand.

    Under EVERYBODY against all annotators, if the files have several.
    """
    maps = {sample.name: to_bytes(detector(sample.image)) / 255 for sample in images}
    ways = {name: (labels_of(images), protocol) for name, protocol in SHOWN.items()}
    if everybody := all_labels_of(images):
        ways[EVERYBODY] = everybody, PROTOCOLS["bsds"]
    scores = {}
    for name, (labels, protocol) in ways.items():
        found = evaluate(maps, labels, protocol=protocol)
        scores[name] = {key: getattr(found, key) for key in ("ods", "threshold", "ois", "ap")}
        if threshold is not None:
            scores[name]["at"] = found.at(threshold)._asdict()
    return scores


def all_labels_of(images: EdgeSet) -> dict[str, list[np.ndarray]]:
    """Each annotator's edges of each image; nothing if there is one annotator alone."""
    pairs = images.pairs if isinstance(images, FileSet) else ()
    read = {p.name: [label > 127 for label in read_annotations(p.labels[0])] for p in pairs}
    return read if any(len(labels) > 1 for labels in read.values()) else {}


def seconds_an_image(detector: Detector, images: EdgeSet, threads: int = THREADS) -> float:
    """Of each image the median of three, averaged; after one to warm up."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    detector(images[0].image)
    times = []
    for sample in images:
        three = []
        for _ in range(3):
            began = time.perf_counter()
            detector(sample.image)
            three.append(time.perf_counter() - began)
        times.append(statistics.median(three))
    torch.set_num_threads(before)
    return statistics.mean(times)


def quoted_hed(folder: Path) -> dict[str, Any] | None:
    """HED with BAA-0.7 on UDED alone, the mean over the seeds there are records of."""
    found: dict[str, list[float]] = {}
    versions = set()
    for path in sorted(p for p in folder.glob("*.json") if re.fullmatch(HED_RECORD, p.name)):
        record = json.loads(path.read_text())
        versions.add(record["version"])
        for entry in record["losses"]:
            if entry["loss"] == HED_LOSS:
                for name, scores in entry["scores"].items():
                    found.setdefault(name, []).append(scores["ods"])
    if not found:
        return None
    parameters = sum(p.numel() for p in ke.create_model("hed").parameters())
    seeds = min(map(len, found.values()))
    ods = {name: statistics.mean(values) for name, values in found.items()}
    return {"parameters": parameters, "seeds": seeds, "versions": sorted(versions), "ods": ods}


def cpu_name() -> str:
    """What the times were taken on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "a CPU"
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "a CPU")
