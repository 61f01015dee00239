"""Speed on a CUDA device: training steps, the loss, prediction.

    python benchmarks/gpu.py [--parts steps,loss,predict] [--models hed] [--out results/gpu.json]

Each step is the engine's own, batch 8 of 320x320, after warm-up; times are medians by CUDA events.
The author's code took 17.7 (HED), 52.4 (BDCN), 45.2 (DexiNed) and 295.9 ms (EES3's selector, 25.5
GB) on an H200.
"""

import argparse
import json
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

import torch
from PIL import Image

import knifeedge as ke
from knifeedge.engine.devices import open_fabric, prepare
from knifeedge.engine.files import predict_files
from knifeedge.engine.stepping import make_optimiser, make_step

AUTHOR_MS = {"hed": 17.7, "bdcn": 52.4, "dexined": 45.2, "ees3-double": 295.9}


def milliseconds(work, repeats: int = 50) -> float:
    """Median time of a call, by events around each."""
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def step_of(name: str) -> dict[str, float]:
    """One step of a model: its time, memory, and how long it took until it was fast."""
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(0)
    fabric = open_fabric("cuda", 1, 1, "bf16-mixed")
    network = prepare(fabric, ke.create_model(name))
    optimiser = make_optimiser(fabric, network, 1e-4, 1e-8)
    step = make_step(fabric, network, optimiser, ke.AdjustedLoss(ke.WBCELoss()))
    image = torch.randn(8, 3, 320, 320, device="cuda")
    image = image.contiguous(memory_format=torch.channels_last)
    target = (torch.rand(8, 1, 320, 320, device="cuda") < 0.05).float()
    began = time.perf_counter()
    for _ in range(10):
        step(image, target, None)
    torch.cuda.synchronize()
    start_up = time.perf_counter() - began
    ms = milliseconds(lambda: step(image, target, None))
    return {"ms": ms, "GB": torch.cuda.max_memory_allocated() / 1e9, "start-up s": start_up}


def steps(models: list[str]) -> dict[str, dict[str, float]]:
    results = {}
    for name in models:
        author = AUTHOR_MS[name]
        found = step_of(name)
        results[name] = found | {"times as fast as the author's": author / found["ms"]}
        print(name, {key: round(value, 2) for key, value in results[name].items()}, flush=True)
        torch.cuda.empty_cache()
    return results


def loss_of(shape: tuple[int, ...]) -> dict[str, float]:
    """Forward and backward of the adjusted loss and of torch's plain one."""
    logits = torch.randn(shape, device="cuda", requires_grad=True)
    target = (torch.rand(shape, device="cuda") < 0.05).float()
    adjusted = ke.AdjustedLoss(ke.WBCELoss())
    functions = {"baa": torch.compile(adjusted), "baa eager": adjusted}
    functions["bce"] = torch.nn.BCEWithLogitsLoss()

    def work(name: str) -> None:
        logits.grad = None
        functions[name](logits, target).backward()

    times = {}
    for name in functions:
        for _ in range(5):
            work(name)
        times[name] = milliseconds(partial(work, name), 100)
    return times


def loss() -> dict[str, dict[str, float]]:
    results = {}
    for shape in ((8, 1, 320, 320), (64, 1, 1024, 1024)):
        results["x".join(map(str, shape))] = times = loss_of(shape)
        print("loss", shape, {key: round(value, 3) for key, value in times.items()}, flush=True)
    return results


def predict() -> dict[str, float]:
    """HED over 64 pictures of 321x481, from files to files, against one tile at a time."""
    from knifeedge.data.synthetic import synthetic_scene

    torch.manual_seed(0)
    model = ke.create_model("hed").cuda().eval()
    with tempfile.TemporaryDirectory() as folder:
        for index in range(64):
            image, _ = synthetic_scene(0, index, (321, 481))
            path = Path(folder) / "images" / f"{index}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray(image).save(path)
        speeds = {}
        for name, options in (("as it is", {}), ("one tile at a time", {"batch_size": 1})):
            for attempt in range(2):
                out = Path(folder) / f"{name}-{attempt}"
                began = time.perf_counter()
                predict_files(model, [Path(folder) / "images"], out, **options)
                speeds[name] = 64 / (time.perf_counter() - began)
    print(f"predict: {speeds} images/s", flush=True)
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="steps,loss,predict")
    parser.add_argument("--models", default=",".join(AUTHOR_MS))
    parser.add_argument("--out", type=Path, default=Path("results/gpu.json"))
    chosen = parser.parse_args()
    parts = {"steps": partial(steps, chosen.models.split(",")), "loss": loss, "predict": predict}
    if not torch.cuda.is_available():
        print("there is no CUDA device here: nothing to measure")
        return
    record = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for part in chosen.parts.split(","):
        record[part] = parts[part]()
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
