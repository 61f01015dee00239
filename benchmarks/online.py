"""How near the online threshold comes to the one the benchmark would calibrate, at what price.

    python benchmarks/online.py [--seeds 3]

`tiny` is trained a little on made-up scenes with WBCE. Its maps of three sets of images then go
both ways: through the exact benchmark, and through `OnlineThreshold` as one batch, judging each
pixel by itself (tolerance 0) or with a tolerance. Printed are the thresholds and, in brackets, the
F lost by taking the online one; then what a step of training costs with it, as a ratio
measured in one run.
"""

import argparse
import statistics
import tempfile
import time

import numpy as np
import torch

import knifeedge as ke
from knifeedge.engine.predict import labels_of, predict_set

DATA = {"count": 12, "size": 96}
TOLERANCES = (0, 1, 2)


def agreement(seed: int) -> list[tuple[float, ...]]:
    """The differences and the losses of F, by tolerance, of three sets of images."""
    config = ke.TrainConfig(
        ke.DataConfig("synthetic", "pretrain", options=DATA),
        ke.ModelConfig("tiny"),
        epochs=12,
        seed=seed,
        crop=64,
        noiseless=False,
        learning_rate=2e-3,
    )
    with tempfile.TemporaryDirectory() as folder:
        network = ke.train(config, folder, accelerator="cpu").model()
    rows = []
    for split in ("pretrain", "validation", "test"):
        images = ke.data.load_dataset("synthetic", split, **DATA)
        maps, labels = dict(predict_set(network, images)), labels_of(images)
        exact = ke.calibrate(maps, labels, protocol="one-pixel")
        prob, target = (np.stack(list(each.values()))[:, None] for each in (maps, labels))
        cells = [f"seed {seed}, {split:10}  calibrated {exact.threshold:.2f}"]
        for tolerance in TOLERANCES:
            online = ke.OnlineThreshold(tolerance=tolerance, warm_up=0, speed=1.0)
            online.update(torch.tensor(prob), torch.tensor(target).float())
            found = float(online.value)
            lost = exact.score - exact.curve[round(100 * found) - 1]
            rows.append((tolerance, abs(found - exact.threshold), lost))
            cells.append(f"tolerance {tolerance}: {found:.2f} (-{lost:.4f})")
        print("  ".join(cells), flush=True)
    return rows


def price(repeats: int = 5) -> float:
    """Time of a step with the online threshold, over that with a fixed one."""
    torch.manual_seed(0)
    network = ke.create_model("tiny")
    image = torch.randn(8, 3, 128, 128)
    target = (torch.rand(8, 1, 128, 128) < 0.05).float()
    losses = [
        ke.AdjustedLoss(ke.WBCELoss(), threshold)
        for threshold in (0.7, ke.OnlineThreshold(tolerance=1))
    ]
    ratios = []
    for _ in range(repeats):
        times = []
        for loss in losses:
            began = time.perf_counter()
            for _ in range(3):
                loss(network(image)[-1], target).backward()
            times.append(time.perf_counter() - began)
        ratios.append(times[1] / times[0])
    return statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    rows = [row for seed in range(parser.parse_args().seeds) for row in agreement(seed)]
    for wanted in TOLERANCES:
        apart, lost = zip(*(row[1:] for row in rows if row[0] == wanted), strict=True)
        print(
            f"tolerance {wanted}: at most {max(apart):.3f} from the calibrated one, on average"
            f" {statistics.fmean(apart):.3f}; F lost at most {max(lost):.4f}, on average"
            f" {statistics.fmean(lost):.4f}"
        )
    print(f"a step of `tiny` on this CPU takes {price():.3f} times that with a fixed threshold")


if __name__ == "__main__":
    main()
