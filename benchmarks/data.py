"""Training batches from the crop pool against a DataLoader with two workers, on the CPU.

Both make the same samples, 320 x 320, eight a batch, from UDED where it is found ($KNIFEEDGE_DATA
or ./data), else from made-up scenes saved as PNG. Prints the ratio of their speeds, measured in one
run: the machine's speed cancels. The two are timed in turns and the best of each counts. The pool
has one thread, each worker has one.

    python benchmarks/data.py
"""

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from knifeedge.data import CropDataset, CropPool, EdgeSet, SyntheticSet, load_dataset
from knifeedge.errors import DataError

WORKERS = 2
WARM_UP = 4
GOAL = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=54, help="batches in a timing; 54 an epoch")
    parser.add_argument("--repeats", type=int, default=3, help="timings of each; the best counts")
    parser.add_argument("--root", type=Path, help="folder of UDED")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        dataset = find_dataset(options.root, Path(folder))
        best = measure(dataset, options.batches, options.repeats)
    ratio = best["loader"] / best["pool"]
    if options.json:
        print(json.dumps({"data": dataset.name, "ratio": ratio, **best}))
        return
    print(f"{dataset.name}, 8 x 320 x 320, one thread against {WORKERS} workers")
    for name, seconds in best.items():
        print(f"{name:>8}  {1000 * seconds:7.2f} ms a batch  {8 / seconds:7.0f} images a second")
    print(f"the pool is {ratio:.1f}x as fast (at least {GOAL:g}x is wanted)")


def find_dataset(root: Path | None, folder: Path) -> EdgeSet:
    try:
        return load_dataset("UDED", root=root)
    except DataError:
        for part in ("images", "labels"):
            (folder / part).mkdir()
        for sample in SyntheticSet(count=20, size=(400, 500)):
            Image.fromarray(sample.image).save(folder / "images" / f"{sample.name}.png")
            Image.fromarray(sample.label).save(folder / "labels" / f"{sample.name}.png")
        return load_dataset("folder", "all", root=folder)


def measure(dataset: EdgeSet, batches: int, repeats: int) -> dict[str, float]:
    """Seconds a batch. The workers end before the pool is timed: they would fetch ahead."""
    pool, items = CropPool(dataset), CropDataset(dataset)
    best = {"loader": float("inf"), "pool": float("inf")}
    for _ in range(repeats):
        loader = DataLoader(items, batch_sampler=items.sampler(), num_workers=WORKERS)
        best["loader"] = min(best["loader"], seconds(iter(loader), batches))
        del loader
        made = (pool.samples(epoch, chosen) for epoch, chosen in pool.plan.batches())
        best["pool"] = min(best["pool"], seconds(made, batches))
    return best


def seconds(source: Iterator[tuple[Tensor, ...]], count: int) -> float:
    for batch in itertools.islice(source, WARM_UP):
        batch[0].sum()
    start = time.perf_counter()
    for batch in itertools.islice(source, count):
        batch[0].sum()  # as a step would, look at it
    return (time.perf_counter() - start) / count


if __name__ == "__main__":
    main()
