"""The losses outside edge detection: rare positives in a table, thin curves in noise.

    python benchmarks/tasks.py [--seeds N] [--out results/tasks.json]

Two tasks of the examples, with all losses: "is this digit an 8?" from twelve pixels (scikit-learn's
digits, one in ten is an 8; `examples/tabular.py`), and one-pixel circles in noise, about 5 % of the
pixels (`examples/segmentation.py`). Each row or pixel is judged by itself. A seed gives every loss
the same first weights and the same samples. For each loss and seed are kept: F at the threshold
calibrated on the validation set, at 0.5, and at the best threshold of the test set, which a user
does not know; the calibrated threshold, the one the loss found while training, if any; the seconds.
"""

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

import knifeedge as ke
from knifeedge.disk import write_json
from knifeedge.experiments.table import Difference
from knifeedge.losses.names import parse_loss

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import segmentation
import tabular

LOSSES = (
    *("wbce", "bce", "swbce", "focal", "dice", "tversky", "lovasz_hinge", "soft_f1(slope=5)"),
    *("anyloss_f1", "heaviside_f1", "score_oriented", "ap", "baa-0.7", "baa-sa", "baa-online"),
    "baa(base=swbce,threshold=online)",
)
Pairs = tuple[np.ndarray, np.ndarray]  # probabilities and labels


def build(name: str, calibrated: float | None) -> nn.Module:
    """A loss for elements judged by themselves: without the tolerance of edges."""
    parsed = parse_loss(name)
    if name == "lovasz_hinge":
        return ke.LovaszHingeLoss(per_image=False)
    if not parsed.is_online:
        return parsed.at(calibrated or 0.5).build()
    return ke.AdjustedLoss(parsed.baseline.build(), threshold="online")


def digits(loss: nn.Module, seed: int) -> dict[str, Pairs]:
    """Predictions of a network that was trained to tell an 8."""
    parts = tabular.load()
    model = tabular.fit(loss, *parts["train"], seed, steps=200)
    return {
        name: (tabular.predict(model, parts[name][0]), parts[name][1])
        for name in ("validation", "test")
    }


def curves(loss: nn.Module, seed: int) -> dict[str, Pairs]:
    """Predictions of a network that was trained to find thin circles."""
    model = segmentation.train(loss, seed=seed)
    found = {}
    for name, first in (("validation", 1_000_000), ("test", 2_000_000)):
        image, target = segmentation.make_images(64, seed=first + seed)
        with torch.no_grad():
            found[name] = (model(image).sigmoid().numpy(), target.numpy())
    return found


SEEDS = {"digits": 20, "curves": 10}
TASKS: dict[str, Callable[[nn.Module, int], dict[str, Pairs]]] = {
    "digits": digits,
    "curves": curves,
}


def judge(task: str, name: str, seed: int, calibrated: float | None) -> dict[str, float]:
    """One loss with one seed."""
    loss = build(name, calibrated)
    began = time.perf_counter()
    found = TASKS[task](loss, seed)
    seconds = time.perf_counter() - began
    validation, test = (
        ke.calibrate_pixels([found[part][0]], [found[part][1]]) for part in ("validation", "test")
    )
    record = {
        "f": float(test.curve[round(100 * validation.threshold) - 1]),
        "half": float(test.curve[49]),
        "best": test.score,
        "threshold": validation.threshold,
        "seconds": round(seconds, 3),
    }
    online = getattr(loss, "threshold", None)
    if isinstance(online, ke.OnlineThreshold):
        record["found"] = round(float(online.value), 4)
    return record


def run(task: str, seeds: int) -> dict[str, list[dict[str, float]]]:
    """All losses; one record a seed."""
    records: dict[str, list[dict[str, float]]] = {name: [] for name in LOSSES}
    for seed in range(seeds):
        for name in LOSSES:
            base = records["wbce"][seed]["threshold"] if name == "baa-sa" else None
            records[name].append(judge(task, name, seed, base))
        print(f"{task}: seed {seed}", file=sys.stderr, flush=True)
    return records


def show(task: str, records: dict[str, list[dict[str, float]]]) -> None:
    """One row a loss."""
    print(f"{task}, {len(records['wbce'])} seeds: F calibrated (difference to WBCE), at 0.5, best")
    for name, own in records.items():
        apart = Difference.of([r["f"] for r in own], [r["f"] for r in records["wbce"]])
        half = (apart.high - apart.low) / 2 if apart.high is not None else 0.0
        means = [statistics.fmean(r[key] for r in own) for key in ("f", "half", "best")]
        print(
            f"  {name:33} {means[0]:.4f} ({apart.mean:+.4f} ± {half:.4f})  {means[1]:.4f}"
            f"  {means[2]:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, help="of each task, if not the usual number")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "tasks.json")
    given = parser.parse_args()
    torch.set_num_threads(1)  # steps this small only wait for a second thread
    about = {"torch": torch.__version__, "device": "cpu", "python": platform.python_version()}
    record: dict[str, object] = {**about, "tasks": {}}
    for task in TASKS:
        found = run(task, given.seeds or SEEDS[task])
        record["tasks"] |= {task: found}  # type: ignore[operator]
        show(task, found)
        write_json(given.out, record)


if __name__ == "__main__":
    main()
