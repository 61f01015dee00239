"""Rare positives in a table: loss and threshold side by side.

"Is this digit an 8?" on scikit-learn's bundled digits (1,797 rows, one in ten is an 8; only
twelve of the 64 pixels, or it is too easy), with a small network. Each loss is judged on the test
rows at the usual threshold of 0.5 and at the one that was best on the validation rows; the test
rows decide nothing. BAA-SA is the paper's protocol: its threshold is the one calibrated for WBCE.

    python examples/tabular.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from torch import nn

import knifeedge as ke

THRESHOLDS = np.arange(1, 100) / 100


def load() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    pixels, digit = load_digits(return_X_y=True)
    x, y = (pixels[:, 18:30] / 16).astype(np.float32), digit == 8
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.4, stratify=y, random_state=0)
    x, x_val, y, y_val = train_test_split(x, y, test_size=0.3, stratify=y, random_state=0)
    return {"train": (x, y), "validation": (x_val, y_val), "test": (x_test, y_test)}


def fit(loss: nn.Module, x: np.ndarray, y: np.ndarray, seed: int, steps: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    inputs, target = torch.from_numpy(x), torch.from_numpy(y)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(model(inputs), target).backward()  # (N, 1) logits against (N,) labels
        optimiser.step()
    return model


def predict(model: nn.Module, x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.from_numpy(x)).sigmoid().squeeze(1).numpy()


def best_threshold(prob: np.ndarray, y: np.ndarray) -> float:
    """The first threshold with the highest F."""
    hits = ((prob[:, None] >= THRESHOLDS) & y[:, None]).sum(axis=0)
    return float(THRESHOLDS[np.argmax(2 * hits / ((prob[:, None] >= THRESHOLDS).sum(0) + y.sum()))])


def run(seed: int, steps: int) -> dict[str, tuple[float, float, float]]:
    """For each loss: F at 0.5, the calibrated threshold, F there."""
    parts = load()
    rows: dict[str, tuple[float, float, float]] = {}
    losses = {
        "BCE": lambda: ke.BCELoss(),
        "WBCE": lambda: ke.WBCELoss(),
        "focal": lambda: ke.FocalLoss(),
        "BAA-0.5": lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=0.5),
        "BAA-SA": lambda: ke.AdjustedLoss(ke.WBCELoss(), threshold=rows["WBCE"][1]),
    }
    for name, build in losses.items():
        model = fit(build(), *parts["train"], seed, steps)
        x, y = parts["validation"]
        best = best_threshold(predict(model, x), y)
        x, y = parts["test"]
        prob = predict(model, x)
        rows[name] = (f1_score(y, prob >= 0.5), best, f1_score(y, prob >= best))
    return rows


def main(seeds: int = 5, steps: int = 200) -> dict[str, np.ndarray]:
    torch.set_num_threads(1)  # steps this small only wait for a second thread
    runs = [run(seed, steps) for seed in range(seeds)]
    means = {name: np.mean([r[name] for r in runs], axis=0) for name in runs[0]}
    spread = {name: np.std([r[name] for r in runs], axis=0) for name in runs[0]}
    print(f"mean and deviation over {seeds} seeds")
    print(f"{'loss':>8}   F at 0.5        calibrated   F there")
    for name, (half, threshold, calibrated) in means.items():
        sd = spread[name]
        print(
            f"{name:>8}   {half:.3f} +- {sd[0]:.3f}      {threshold:.2f}     "
            f"{calibrated:.3f} +- {sd[2]:.3f}"
        )
    return means


if __name__ == "__main__":
    main()
