"""Speed on a CUDA device: training steps, the loss, a whole run, prediction, the online threshold.

    python benchmarks/gpu.py [--parts steps,loss,whole,predict,online] [--models hed,bdcn]
                             [--root UDED] [--out results/gpu.json]

Each step is the engine's own, batch 8 of 320x320 in bfloat16, after warm-up; times are medians by
CUDA events. A part is written as soon as it is measured, beside what other calls on the same kind
of card with the same PyTorch have measured. The author's figures and those wanted are printed
beside; they are in results/reference.json.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import knifeedge as ke
from knifeedge.config import DataConfig, ModelConfig, TrainConfig
from knifeedge.data import load_dataset
from knifeedge.data.synthetic import synthetic_scene
from knifeedge.disk import write_json
from knifeedge.engine.devices import open_fabric, prepare
from knifeedge.engine.files import predict_files
from knifeedge.engine.predict import labels_of, predict_set, to_bytes
from knifeedge.engine.stepping import make_optimiser, make_step
from knifeedge.errors import KnifeEdgeError
from knifeedge.losses.names import parse_loss

REFERENCE = Path(__file__).parents[1] / "results" / "reference.json"
MODELS = ("hed", "bdcn", "dexined", "ees3-double", "tiny")
SHAPES = ((8, 1, 320, 320), (64, 1, 1024, 1024))
PICTURES, SCENES = 256, 16  # predicted, of so many different ones
Work = Callable[[], object]
Save = Callable[[Mapping[str, Any]], None]


class PlainLoss(ke.AdjustedLoss):
    """The adjusted loss as its operations in turn, without kernels of its own."""

    def values(self, pred: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        return super().values(pred, target, mask)


class Nothing(torch.nn.Module):
    """A network that does nothing, so that what is left is reading and writing."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torch.nn.Conv2d(3, 1, 1)

    def forward(self, images: Tensor) -> list[Tensor]:
        return [self.score(images)]


def milliseconds(works: Mapping[str, Work], repeats: int = 50) -> dict[str, float]:
    """Median time of each, by events around every call; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            times[name].append(start.elapsed_time(end))
    return {name: statistics.median(found) for name, found in times.items()}


def captured(work: Work) -> Work:
    """The work as a CUDA graph, as it is in a training: without the time of the host."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        work()
    return graph.replay


def engine_step(model: str, loss: str = "baa-0.7") -> tuple[Work, float]:
    """The engine's step on a batch, and how long it took until it was fast.

    The extractors of EES3 have random weights, which take as long as trained ones.
    """
    torch.manual_seed(0)
    fabric = open_fabric("cuda", 1, 1, "bf16-mixed")
    network = prepare(fabric, ke.create_model(model))
    optimiser = make_optimiser(fabric, network, 1e-4, 1e-8)
    step = make_step(fabric, network, optimiser, parse_loss(loss).build().to(fabric.device))
    image = torch.randn(8, 3, 320, 320, device="cuda")
    image = image.contiguous(memory_format=torch.channels_last)
    target = (torch.rand(8, 1, 320, 320, device="cuda") < 0.05).float()
    began = time.perf_counter()
    for _ in range(10):
        value = step(image, target, None)
    if not value.isfinite():
        raise SystemExit(f"{model}: the loss is {float(value)}: nothing to measure")
    return lambda: step(image, target, None), time.perf_counter() - began


def measure_steps(models: list[str], save: Save) -> None:
    reference = json.loads(REFERENCE.read_text())
    author, wanted = reference["author"], reference["wanted"]
    for model in models:
        torch.cuda.reset_peak_memory_stats()
        step, start_up = engine_step(model)
        ms = milliseconds({model: step})[model]
        found = {"ms": ms, "GB": torch.cuda.max_memory_allocated() / 1e9}
        found |= {"reserved GB": torch.cuda.max_memory_reserved() / 1e9, "start-up s": start_up}
        beside = ""
        if model in author["step_ms"]:
            found["times as fast as the author's"] = author["step_ms"][model] / ms
            beside = (
                f"wanted {wanted['step_ms'][model]} ms, the author's {author['step_ms'][model]}"
            )
        save({model: found})
        if model in wanted["step_gb"]:
            beside += f"; {wanted['step_gb'][model]} GB, the author's {author['step_gb'][model]}"
        say(f"step of {model}", found, beside)
        del step
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()


def measure_loss(save: Save) -> None:
    """Forward and backward of the adjusted loss and of torch's plain one."""
    author, wanted = (json.loads(REFERENCE.read_text())[k]["loss_ms"] for k in ("author", "wanted"))
    for shape in SHAPES:
        logits = torch.randn(shape, device="cuda", requires_grad=True)
        target = (torch.rand(shape, device="cuda") < 0.05).float()
        losses = {
            "baa": ke.AdjustedLoss(ke.WBCELoss()),
            "baa compiled": torch.compile(ke.AdjustedLoss(ke.WBCELoss())),
            "baa eager": PlainLoss(ke.WBCELoss()),
            "bce": torch.nn.BCEWithLogitsLoss(),
        }

        def work(loss: Any, logits: Tensor = logits, target: Tensor = target) -> None:
            logits.grad = None
            loss(logits, target).backward()

        works = {name: lambda loss=loss, work=work: work(loss) for name, loss in losses.items()}
        milliseconds(works, 5)
        works |= {f"{name} captured": captured(works[name]) for name in ("baa", "bce")}
        size = "x".join(map(str, shape))
        found = milliseconds(works, 100)
        save({size: found})
        say(
            f"loss at {size}, ms",
            found,
            f"wanted {wanted.get(size, 'no more than bce')}, the author's {author[size]}",
        )


def measure_whole(root: str | None, epochs: int, save: Save) -> None:
    """HED on UDED from the start of a process to the test score, with empty caches of kernels."""
    load_dataset("UDED", "test", root=root)  # whether it is there
    reference = json.loads(REFERENCE.read_text())
    with tempfile.TemporaryDirectory() as folder:
        names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")
        fresh = {name: f"{folder}/{name.lower()}" for name in names}
        command = [sys.executable, __file__, "--inside", folder, "--epochs", str(epochs)]
        command += [] if root is None else ["--root", root]
        began = time.perf_counter()
        subprocess.run(command, env=os.environ | fresh, check=True)
        found = {"seconds": time.perf_counter() - began, "epochs": epochs}
        found |= json.loads((Path(folder) / "whole.json").read_text())
    save(found)
    goals = (reference[key]["run_seconds"] for key in ("wanted", "author"))
    say("whole run", found, "for 200 epochs wanted {} s, the author's {}".format(*goals))


def whole_run(root: str | None, epochs: int, folder: Path) -> None:
    """What the process of `measure_whole` does."""
    began = time.perf_counter()
    data = DataConfig("UDED", root=root)
    config = TrainConfig(
        data, ModelConfig("hed"), epochs=epochs, precision="bf16-mixed", loss="baa-0.7"
    )
    run = ke.train(config, folder / "run", accelerator="cuda")
    trained = time.perf_counter()
    test = load_dataset("UDED", "test", root=root)
    maps = {
        name: np.float32(to_bytes(prob)) / np.float32(255)  # as they would be written
        for name, prob in predict_set(run.model().cuda(), test)
    }
    predicted = time.perf_counter()
    scores = ke.evaluate(maps, labels_of(test), protocol="paper-strict")
    found = {"training s": trained - began, "prediction s": predicted - trained}
    found |= {"score s": time.perf_counter() - predicted, "ods": scores.ods}
    write_json(folder / "whole.json", found)


def measure_predict(save: Save) -> None:
    """HED over pictures of 321x481, from files to files: pictures a second."""
    torch.manual_seed(0)
    hed, nothing = ke.create_model("hed").cuda().eval(), Nothing().cuda().eval()
    ways: dict[str, tuple[torch.nn.Module, dict[str, Any]]] = {
        "as it is": (hed, {}),
        "bf16-mixed": (hed, {"precision": "bf16-mixed"}),
        "one tile at a time": (hed, {"batch_size": 1}),
        "files alone": (nothing, {}),
    }
    speeds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        pictures = Path(folder) / "pictures"
        pictures.mkdir()
        for scene in range(SCENES):
            image, _ = synthetic_scene(0, scene, (321, 481))
            for index in range(scene, PICTURES, SCENES):
                Image.fromarray(image).save(pictures / f"{index}.png")
        for attempt in ("warm-up", "measured"):
            for name, (model, options) in ways.items():
                began = time.perf_counter()
                predict_files(model, [pictures], Path(folder) / f"{name}-{attempt}", **options)
                speeds[name] = PICTURES / (time.perf_counter() - began)
    save(speeds)
    slow = speeds["one tile at a time"]
    ratios = ", ".join(f"{name} {speed / slow:.2f}" for name, speed in speeds.items())
    say("predict, pictures/s", speeds, f"times one tile at a time in float32: {ratios}")


def measure_online(save: Save) -> None:
    """HED's step with a threshold that is found while training, against a fixed one."""
    works = {loss: engine_step("hed", loss)[0] for loss in ("baa-0.7", "baa-online")}
    found = milliseconds(works, 100)
    found["ratio"] = found["baa-online"] / found["baa-0.7"]
    save(found)
    say("step of hed by loss, ms", found, "")


def say(what: str, numbers: Mapping[str, float], beside: str) -> None:
    shown = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
    print(f"{what}: {shown}" + (f" ({beside})" if beside else ""), flush=True)


def open_record(path: Path) -> dict[str, Any]:
    """What was measured before, unless on another card or with another PyTorch."""
    header = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    before = json.loads(path.read_text()) if path.is_file() else {}
    return before if header.items() <= before.items() else header


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="steps,loss,whole,predict,online")
    parser.add_argument("--models", default=",".join(MODELS), help="of the steps")
    parser.add_argument("--root", help="the folder of UDED, for the whole run")
    parser.add_argument("--epochs", type=int, default=200, help="of the whole run")
    parser.add_argument("--out", type=Path, default=REFERENCE.with_name("gpu.json"))
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("there is no CUDA device here: nothing to measure")
        return
    if given.inside is not None:
        whole_run(given.root, given.epochs, given.inside)
        return
    parts: dict[str, Callable[[Save], None]] = {
        "steps": lambda save: measure_steps(given.models.split(","), save),
        "loss": measure_loss,
        "whole": lambda save: measure_whole(given.root, given.epochs, save),
        "predict": measure_predict,
        "online": measure_online,
    }
    chosen = given.parts.split(",")
    for part in chosen:
        if part not in parts:
            raise SystemExit(f"there is no part {part!r}; there are {', '.join(parts)}")
    record = open_record(given.out)
    for part in chosen:

        def save(found: Mapping[str, Any], part: str = part) -> None:
            record[part] = record.get(part, {}) | dict(found)
            names = [f"{part} {k}" if isinstance(v, dict) else part for k, v in found.items()]
            commits = dict.fromkeys(names, os.environ.get("KNIFEEDGE_COMMIT"))
            record["commits"] = record.get("commits", {}) | commits
            write_json(given.out, record)

        try:
            parts[part](save)
        except KnifeEdgeError as error:
            print(f"{part}: not measured: {error}", flush=True)


if __name__ == "__main__":
    main()
