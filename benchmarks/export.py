"""The exported `tiny` in onnxruntime against PyTorch eager, on two CPU cores, 321 x 481.

Prints the ratio of their speeds, measured in one run: the machine's speed cancels. The two are
timed in turns and the best of each counts, which leaves out what other programs took. A turn is
several runs, and a pause follows it: the threads of either wait for more work by spinning, and
would take the cores from the other. Both start from an image in [0, 1]: normalisation and sigmoid
are timed in either. It needs both cores for itself: where another program has one, PyTorch's
threads wait for each other far longer than onnxruntime's, and the ratio says nothing. The load is
therefore printed with it.

    python benchmarks/export.py
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch
from torch import Tensor

from knifeedge.config import ModelConfig
from knifeedge.data.pool import DEVIATION, MEAN
from knifeedge.engine.checkpoint import WeightsInfo, save_model
from knifeedge.export import export_model
from knifeedge.models import create_model

CORES = 2
TURN = 6  # runs, the first of them untimed
PAUSE = 0.2  # seconds
QUIET = 1.0  # load average at the start, above which the cores were not free
SIZE = (321, 481)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny", help="another network")
    parser.add_argument("--turns", type=int, default=12, help="of each; the best run counts")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    torch.set_num_threads(CORES)
    load = os.getloadavg()[0]
    best = measure(contenders(options.model), options.turns)
    ratio = best["eager"] / best["onnx"]
    if options.json:
        print(json.dumps({"model": options.model, "ratio": ratio, "load": load, **best}))
        return
    print(f"{options.model}, {SIZE[0]} x {SIZE[1]}, {CORES} cores")
    for name, seconds in best.items():
        print(f"{name:>6}  {1000 * seconds:7.2f} ms an image")
    print(f"onnxruntime is {ratio:.2f}x as fast as PyTorch eager")
    if load > QUIET:
        print(
            f"not to be trusted: other programs were running, the load at the start was {load:.1f}"
        )


def contenders(name: str) -> dict[str, Callable[[Tensor], object]]:
    torch.manual_seed(0)
    network = create_model(name).eval()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "model.safetensors"
        save_model(weights, network, WeightsInfo(ModelConfig(name)))
        file = export_model(weights, Path(folder) / "model.onnx")
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = CORES
        session = onnxruntime.InferenceSession(file, settings)
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, DEVIATION))

    def eager(image: Tensor) -> Tensor:
        with torch.inference_mode():
            return network((image - mean) / deviation)[-1].sigmoid()

    return {"eager": eager, "onnx": lambda image: session.run(None, {"image": image.numpy()})}


def measure(runs: dict[str, Callable[[Tensor], object]], turns: int) -> dict[str, float]:
    image = torch.rand(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(turns):
        for name, run in runs.items():
            run(image)
            for _ in range(TURN - 1):
                start = time.perf_counter()
                run(image)
                best[name] = min(best[name], time.perf_counter() - start)
            time.sleep(PAUSE)
    return best


if __name__ == "__main__":
    main()
