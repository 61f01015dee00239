"""Run folders as training, the protocol and experiments write them, without training anything.

The maps are blurred labels with noise and some texture, so that a report of them looks like one.
"""

import json
import math
import re
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

from knifeedge.data.synthetic import SyntheticSet
from knifeedge.metrics import PROTOCOLS, evaluate
from knifeedge.metrics.outputs import write_scores

LOSSES = ("wbce", "baa-0.7", "baa-sa")
# Names that would do harm where one is not escaped; a file system takes all of them.
HOSTILE = ("<img src=x onerror=alert(1)>&\"'", "<script>alert(2)<", "Füße-日本 {{7*7}} `x`")
SHARPNESS = {"wbce": 1.5, "baa-0.7": 1.15, "baa-sa": 1.25}


def write_json(path, record):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


def folder_name(loss):
    return re.sub(r"[^A-Za-z0-9.=,_-]", "-", loss)


def fake_map(image, label, rng, sigma):
    """Probabilities: the label blurred, some of it faint, and texture that is no edge."""
    edges = gaussian_filter((label > 127).astype(float), sigma)
    edges /= max(edges.max(), 1e-9)
    strength = np.clip(0.5 + 14 * gaussian_filter(rng.standard_normal(label.shape), 9), 0.05, 1)
    grey = gaussian_filter(image.mean(axis=2), 1.2)
    texture = np.clip(np.hypot(*np.gradient(grey)) / 14, 0, 1)
    soft = 1.5 * edges * strength + 0.62 * texture * np.clip(1.1 - strength, 0, 1)
    soft = np.clip(soft, 0, 1) ** 0.6 + 0.02 * rng.standard_normal(label.shape)
    return np.round(np.clip(soft, 0, 1) * 255).astype(np.uint8)


def make_training(
    folder: Path, *, loss="wbce", epochs=12, seed=0, model="tiny", finished=True, validation=False
):
    """A training run's files."""
    write_json(
        folder / "config.json",
        {
            "format": 1,
            "data": {"name": "synthetic", "split": "train", "root": None, "options": {"count": 32}},
            "model": {"name": model, "options": {}},
            "loss": loss,
            "epochs": epochs,
            "seed": seed,
            "batch_size": 8,
            "learning_rate": 1e-4,
        },
    )
    rng = np.random.default_rng([seed, len(loss)])
    lines = ["epoch,step,loss,seconds,images_per_second"]
    if validation:
        lines[0] += ",validation_ods,validation_threshold"
    for epoch in range(1, epochs + 1):
        value = 0.09 + 0.35 * math.exp(-epoch / 4) + 0.008 * rng.random()
        line = f"{epoch},{epoch * 54},{value:.6f},{epoch * 1.5:.2f},88.1"
        if validation:
            line += f",{0.8 - 0.4 * math.exp(-epoch / 3):.4f},0.61" if epoch % 2 == 0 else ",,"
        lines.append(line)
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    if finished:
        (folder / "model.safetensors").write_bytes(b"weights")


def make_protocol(
    folder: Path,
    *,
    losses=LOSSES,
    scoring=("one-pixel",),
    names=None,
    images=4,
    size=192,
    seed=0,
    model="tiny",
    data="synthetic",
    epochs=12,
    finished=True,
):
    """A protocol's folder: scored for real by the benchmark."""
    scenes = list(SyntheticSet("test", count=4 * images, size=size))
    names = [scene.name for scene in scenes] if names is None else list(names)
    scenes = scenes[: len(names)]
    config = {
        "format": 1,
        "kind": "protocol",
        "model": {"name": model, "options": {"width": 16}},
        "data": {"name": data, "root": None, "options": {"count": 32, "size": size}},
        "losses": list(losses),
        "seed": seed,
        "epochs": epochs,
        "batch_size": 8,
        "scoring": list(scoring),
    }
    write_json(folder / "config.json", config)
    labels = {name: scene.label > 127 for name, scene in zip(names, scenes, strict=True)}
    (folder / "gallery").mkdir(parents=True, exist_ok=True)
    for name, scene in zip(names, scenes, strict=True):
        Image.fromarray(scene.image).save(folder / "gallery" / f"{name}.image.png")
        Image.fromarray(scene.label).save(folder / "gallery" / f"{name}.label.png")
    calibrated = 0.61
    entries = []
    for number, loss in enumerate(losses):
        below = folder / folder_name(loss)
        make_training(below, loss=loss, epochs=epochs, seed=seed + number, model=model)
        (below / "predictions").mkdir()
        rng = np.random.default_rng([seed, number])
        maps = {}
        for name, scene in zip(names, scenes, strict=True):
            levels = fake_map(scene.image, scene.label, rng, SHARPNESS.get(loss, 1.4))
            Image.fromarray(levels).save(below / "predictions" / f"{name}.png")
            maps[name] = levels.astype(np.float32) / 255
        fixed = re.match(r"baa-([0-9.]+)", loss)
        threshold = float(fixed.group(1)) if fixed else calibrated
        scores = {}
        for protocol in scoring:
            judged = evaluate(maps, labels, protocol=protocol, jobs=1)
            write_scores(below / f"scores-{protocol}.json", judged, at=threshold)
            record = judged.to_dict()
            keys = ("ods", "threshold", "precision", "recall", "ois", "ois_mean", "ap", "r50")
            scores[protocol] = {key: record[key] for key in (*keys, "crispness")}
            scores[protocol]["at"] = judged.at(threshold)._asdict()
        entries.append(
            {
                "loss": loss,
                "run": below.name,
                "threshold": threshold,
                "threshold_from": "the loss" if fixed else "validation",
                "seconds": 12.3,
                "scores": scores,
            }
        )
    make_training(folder / "pretrain-wbce", epochs=epochs, seed=seed + 9, validation=True)
    curve = [0.6 * math.exp(-(((t + 1) / 100 - calibrated) ** 2) / 0.08) for t in range(99)]
    write_json(
        folder / "pretrain-wbce" / "calibration.json",
        {
            "threshold": calibrated,
            "score": max(curve),
            "curve": curve,
            "protocol": PROTOCOLS[scoring[0]].to_dict(),
            "split": "validation",
            "images": ["v0", "v1"],
        },
    )
    if finished:
        result = {
            "format": "knifeedge-result-1",
            "version": "0.1.0",
            "commit": None,
            "torch": "2.13.0",
            "device": "cpu",
            "config": config,
            "images": {"pretrain": 24, "validation": 8, "train": 32, "test": len(names)},
            "calibrations": [
                {
                    "base": "wbce",
                    "run": "pretrain-wbce",
                    "threshold": calibrated,
                    "score": max(curve),
                }
            ],
            "losses": entries,
            "gallery": names,
            "seconds": 60.1,
        }
        write_json(folder / "result.json", result)
    return folder


def table_row(model, loss, ods, *, difference=None, paper=None, data="synthetic", spread=0.011):
    """One row of an experiment's table."""

    def around(mean):
        return {"mean": mean, "std": spread}

    return {
        "model": model,
        "data": data,
        "loss": loss,
        "protocol": "one-pixel",
        "seeds": [0, 1],
        "ods": around(ods),
        "ois": around(ods + 0.02),
        "threshold": around(0.42),
        "at": around(ods - 0.01),
        "difference": difference,
        "paper": paper,
    }


def make_experiment(folder: Path, *, seeds=(0, 1), models=("tiny",), **options):
    """An experiment: a protocol a model and seed, and the table."""
    for model in models:
        for seed in seeds:
            name = f"{model}-synthetic-{seed}"
            make_protocol(folder / "runs" / name, model=model, seed=seed, **options)
    better = {"mean": 0.0142, "low": -0.0031, "high": 0.0312, "n": len(seeds)}
    rows = []
    for number, model in enumerate(models):
        base = 0.61 + 0.03 * number
        rows.append(table_row(model, "wbce", base, paper={"ods": 0.709, "ois": 0.742}))
        rows.append(
            table_row(
                model,
                "baa-0.7",
                base + 0.0142,
                difference=better,
                paper={"ods": 0.727, "ois": 0.755},
            )
        )
        rows.append(table_row(model, "baa-sa", base + 0.006, difference=better))
    write_json(
        folder / "table.json",
        {
            "format": "knifeedge-experiment-1",
            "title": "Losses on made-up scenes",
            "baseline": "wbce",
            "rows": rows,
            "failed": [{"run": "runs/tiny-synthetic-7", "error": "the loss became NaN at step 12"}],
            "unfinished": ["runs/tiny-synthetic-8"],
        },
    )
    return folder


def make_ablation(folder: Path):
    """An experiment's table over window and decay, without runs."""
    rows = [
        table_row(
            "tiny",
            f"baa(threshold=0.7,window={window / 10:g},decay={decay})",
            0.60 + 0.01 * math.sin(window) + decay / 4000,
        )
        for decay in (8, 16, 32)
        for window in range(1, 8)
    ]
    record = {"format": "knifeedge-experiment-1", "title": "Ablation", "baseline": "wbce"}
    write_json(folder / "table.json", {**record, "rows": rows, "failed": [], "unfinished": []})
    return folder
