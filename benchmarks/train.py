"""Images a second of the engine against a plain loop, in one run.

    python benchmarks/train.py [--model tiny] [--seconds 12]

The plain loop is what one would write: a DataLoader with two workers that reads, turns and crops
each sample, an eager float32 network, torch's Adam, `loss.item()` for the log. The engine trains
the same network on the same images with the same batches, and writes its log and checkpoints.
"""

import argparse
import contextlib
import statistics
import tempfile
import time
from pathlib import Path

import torch
from PIL import Image

import knifeedge as ke
from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.data import CropDataset, CropSettings, load_dataset
from knifeedge.data.synthetic import synthetic_scene
from knifeedge.engine.logs import Callback

BATCH, CROP, IMAGES, SIZE = 8, 320, 8, 512
WARM_UP = 5  # steps
ROUNDS = 3  # of both, in turn: the machine may be busier in one than in another


class Clock(Callback):
    """Images a second between the first look after the warm-up and the last."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.first, self.last = seconds, None, None

    def on_progress(self, standing):
        now = time.perf_counter(), standing.step
        if self.first is None:
            if standing.step >= WARM_UP:
                self.first = now
            return
        self.last = now
        if now[0] - self.first[0] > self.seconds:
            raise StopIteration

    @property
    def speed(self) -> float:
        (start, before), (end, after) = self.first, self.last
        return BATCH * (after - before) / (end - start)


def engine(root: str, model: str, precision: str, seconds: float) -> float:
    """The engine, until the clock stops it."""
    config = TrainConfig(
        *(DataConfig("folder", "all", root=root), ModelConfig(model)),
        epochs=10_000,
        crop=CROP,
        batch_size=BATCH,
        precision=precision,
        loss="baa-0.7",
    )
    clock = Clock(seconds)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(StopIteration):
        ke.train(config, folder, callbacks=[clock])
    return clock.speed


def plain_loop(root: str, model: str, seconds: float) -> float:
    """A DataLoader with workers, float32, eager."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dataset = load_dataset("folder", "all", root=root)
    items = CropDataset(dataset, CropSettings(crop=CROP, batch_size=BATCH))
    loader = torch.utils.data.DataLoader(
        items, batch_sampler=items.sampler(), num_workers=2, persistent_workers=True
    )
    torch.manual_seed(0)
    network = ke.create_model(model).to(device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=1e-8)
    loss = ke.AdjustedLoss(ke.WBCELoss())
    start, steps = 0.0, 0
    for number, (image, target) in enumerate(loader):
        value = loss(network(image.to(device))[-1], target.to(device))
        optimiser.zero_grad()
        value.backward()
        optimiser.step()
        value.item()
        if number < WARM_UP:
            start, steps = time.perf_counter(), 0
            continue
        steps += 1
        if time.perf_counter() - start > seconds:
            break
    return BATCH * steps / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--seconds", type=float, default=12.0)
    given = parser.parse_args()
    cuda = torch.cuda.is_available()
    with tempfile.TemporaryDirectory() as root:
        for index in range(IMAGES):
            for kind, array in zip(
                ("images", "labels"), synthetic_scene(0, index, SIZE), strict=True
            ):
                path = Path(root) / kind / f"{index}.png"
                path.parent.mkdir(exist_ok=True)
                Image.fromarray(array).save(path)
        precision = "bf16-mixed" if cuda else "32-true"
        rounds = [
            (
                plain_loop(root, given.model, given.seconds),
                engine(root, given.model, precision, given.seconds),
            )
            for _ in range(ROUNDS)
        ]
    where = torch.cuda.get_device_name() if cuda else f"CPU, {torch.get_num_threads()} threads"
    print(f"{given.model}, batches of {BATCH} x {CROP} x {CROP}, {where}")
    for plain, ours in rounds:
        print(f"plain loop {plain:8.1f} images/s, the engine {ours:8.1f}: {ours / plain:.2f} times")
    print(f"median: {statistics.median(ours / plain for plain, ours in rounds):.2f} times as fast")


if __name__ == "__main__":
    main()
