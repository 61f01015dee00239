"""The weights that ship: `tiny`, trained on BSDS500 and UDED together, scored, and described.

    python benchmarks/weights.py --epochs 100 --learning-rate 2e-3      # minutes on a GPU
    python benchmarks/weights.py score card                             # without training again
    python benchmarks/weights.py --folds 4 --share 0.75                 # is this setting better?

`train` writes src/knifeedge/engine/tiny.safetensors and the record results/weights.json; `score`
adds to the record what these weights are worth, and their times on this machine's CPU; `card` makes
docs/weights.md of it. The data sets are found in --root, or in $KNIFEEDGE_DATA.

As in the paper's protocol the network is trained twice: without the validation images, which then
give the threshold, and from the same first weights on all training images. UDED is small: a fixed
share of each batch is of it. No picture may be both in a training and a test set, whichever sets
these are, at any size and in any of eight turns: some pictures of UDED are BSDS500's. --folds
trains nothing to keep: it adds the setting's score in a cross-validation over UDED's training
images to results/weights-folds.json, from which a setting is chosen without the test images.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Before torch is loaded, as the command line does: threads that wait leave the cores to others.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from shipping.card import CARD, FOLDS, RECORD, REFERENCE, WEIGHTS, card
from shipping.choosing import cross_validate
from shipping.images import SETS, Mixture, open_sets
from shipping.scoring import cpu_name, find_threshold, quoted_hed, score, seconds_an_image, sobel
from torch import Tensor, nn

import knifeedge as ke
from knifeedge.config import ModelConfig
from knifeedge.data.samples import EdgeSet
from knifeedge.disk import write_atomically, write_json
from knifeedge.engine.checkpoint import WeightsInfo, load_model, save_model
from knifeedge.engine.devices import Fabric, open_fabric, prepare
from knifeedge.engine.predict import predict
from knifeedge.engine.stepping import make_optimiser, make_step
from knifeedge.errors import DataError, KnifeEdgeError
from knifeedge.losses.names import LossName, parse_loss
from knifeedge.version import VERSION

ROOT = Path(__file__).parents[1]
MOST_BYTES = 1_000_000
PARTS = ("train", "score", "card")
# Of no consequence for the weights.
NOT_KEPT = ("parts", "root", "out", "images", "accelerator", "folds")
WARM_UP = 0.05  # of the steps: the learning rate rises to its peak


def learning_rate(step: int, steps: int, peak: float) -> float:
    """A straight way up to the peak, then half a cosine down to 0."""
    rise = max(1, round(WARM_UP * steps))
    if step < rise:
        return peak * (step + 1) / rise
    return peak * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise))) / 2


def set_learning_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    """In place where it is a tensor: a captured step reads it anew, a number would stay."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def fit(
    sets: Iterable[EdgeSet], loss: LossName, given: argparse.Namespace, fabric: Fabric
) -> tuple[nn.Module, int, float]:
    """A network trained on both sets, the number of steps, and the seconds they took."""
    mixture = Mixture(sets, given, fabric.device)
    steps = given.steps or math.ceil(given.epochs * mixture.samples / given.batch_size)
    torch.manual_seed(given.seed)
    network = prepare(fabric, ke.create_model("tiny"))
    optimiser = make_optimiser(fabric, network, given.learning_rate, given.weight_decay)
    if fabric.device.type == "cuda":
        for group in optimiser.param_groups:
            group["lr"] = torch.tensor(given.learning_rate, device=fabric.device)
    step = make_step(fabric, network, optimiser, loss.build().to(fabric.device))
    began, told = time.perf_counter(), max(1, steps // 20)
    for number in range(steps):
        set_learning_rate(optimiser, learning_rate(number, steps, given.learning_rate))
        value = step(*mixture.batch(number), None)
        if (number + 1) % told == 0 or number + 1 == steps:
            print(f"  step {number + 1} of {steps}: loss {value.item():.4f}", flush=True)
            if not value.isfinite():
                raise DataError("the loss is no number any more; lower --learning-rate")
    return network.eval(), steps, time.perf_counter() - began


def make(given: argparse.Namespace) -> dict[str, Any]:
    """Train, calibrate, write the weights; the record of it."""
    fabric = open_fabric(given.accelerator, 1, 1, given.precision)
    sets, loss = open_sets(given), parse_loss(given.loss)
    print("without the validation images:", flush=True)
    first = loss.baseline if loss.needs_threshold else loss
    pretrained = fit((sets[name]["pretrain"] for name in SETS), first, given, fabric)[0]
    threshold, own = find_threshold(pretrained, {name: sets[name]["validation"] for name in SETS})
    print(f"threshold {threshold:g}; on all training images:", flush=True)
    trained = [sets[name]["train"] for name in SETS]
    network, steps, seconds = fit(trained, loss.at(threshold), given, fabric)

    settings = kept(given)
    about = WeightsInfo(
        ModelConfig("tiny"),
        threshold=threshold,
        calibration={"protocol": "paper-strict", "sets": own},
        training={"data": {"name": "+".join(SETS), "split": "train"}, **settings},
        trained_on=tuple(f"{images.name}/{name}" for images in trained for name in images.names),
    )
    save_model(given.out / WEIGHTS, network, about)
    size = (given.out / WEIGHTS).stat().st_size
    if size > MOST_BYTES:
        raise DataError(f"{WEIGHTS} has {size} bytes, more than the package's {MOST_BYTES}")
    on_cuda = fabric.device.type == "cuda"
    return {
        "format": "knifeedge-weights-1",
        "version": VERSION,
        "commit": os.environ.get("KNIFEEDGE_COMMIT"),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if on_cuda else cpu_name(),
        "settings": settings,
        "images": {name: {k: len(v) for k, v in splits.items()} for name, splits in sets.items()},
        "steps": steps,
        "seconds": seconds,
        "parameters": sum(p.numel() for p in network.parameters()),
        "bytes": size,
        "threshold": threshold,
        "calibration": own,
    }


def judge(given: argparse.Namespace) -> dict[str, Any]:
    """What the weights that were written are worth, on the CPU, as they will be used."""
    shipped, about = load_model(given.out / WEIGHTS)
    sets = open_sets(given)
    tests = {name: sets[name]["test"] for name in SETS}
    detectors = {"tiny": lambda image: predict(shipped, image), "sobel": sobel}
    scores, times = {}, {}
    for name, detector in detectors.items():
        fixed = None if name == "sobel" else about.threshold
        scores[name] = {key: score(detector, images, fixed) for key, images in tests.items()}
        times[name] = seconds_an_image(detector, tests["UDED"])
        shown = {key: round(found["paper-strict"]["ods"], 4) for key, found in scores[name].items()}
        print(f"{name}: ODS, paper-strict {shown}; {times[name]:.3f} s an image", flush=True)
    hed = quoted_hed(ROOT / "results")
    return {"cpu": cpu_name(), "scores": scores, "seconds_an_image": times, "hed": hed}


def kept(given: argparse.Namespace) -> dict[str, Any]:
    """The settings that the weights follow from."""
    return {key: value for key, value in vars(given).items() if key not in NOT_KEPT}


def try_setting(given: argparse.Namespace) -> None:
    """Cross-validate a setting, and keep its score beside the others'."""
    fabric = open_fabric(given.accelerator, 1, 1, given.precision)
    sets, loss = open_sets(given), parse_loss(given.loss)
    found = cross_validate(sets, given, lambda images: fit(images, loss, given, fabric)[0])
    path, entry = given.out / FOLDS, {"version": VERSION, "settings": kept(given)}
    entry |= {"folds": given.folds, **found}
    same = entry["settings"], VERSION
    others = [one for one in read_folds(path) if (one["settings"], one["version"]) != same]
    write_json(path, sorted([*others, entry], key=lambda one: -one["UDED"]["ods"]))
    print(f"{path}: {json.dumps(found)}", flush=True)


def read_folds(path: Path) -> list[dict[str, Any]]:
    """The settings that were cross-validated."""
    return json.loads(path.read_text()) if path.is_file() else []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; else all")
    parser.add_argument("--epochs", type=float, default=100.0, help="as many samples as there are")
    parser.add_argument("--steps", type=int, help="instead of --epochs")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="its peak")
    parser.add_argument("--weight-decay", type=float, default=1e-8)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--share", type=float, default=0.5, help="of UDED in each batch")
    parser.add_argument("--annotator", default="0", help="of BSDS500 to train on: 0, ..., merged")
    parser.add_argument("--noiseless", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--jitter", type=float, default=0.0, help="of light, colours and noise")
    parser.add_argument("--crop", type=int, default=320)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="bf16-mixed", choices=("32-true", "bf16-mixed"))
    parser.add_argument("--loss", default="baa-0.7")
    parser.add_argument("--accelerator", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--folds", type=int, help="of a cross-validation, instead of weights")
    parser.add_argument("--images", type=int, help="at most of each split: to try it, with --out")
    parser.add_argument("--root", type=Path, help="folder of both data sets")
    parser.add_argument("--out", type=Path, default=ROOT, help="where all files go")
    given = parser.parse_args()
    given.annotator = given.annotator if given.annotator == "merged" else int(given.annotator)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {min(unknown)!r}; there are {', '.join(PARTS)}")
    if given.batch_size < 2 or not 0 < given.share < 1:
        parser.error("a batch has samples of both sets: --batch-size 2 or more, --share in (0, 1)")
    if given.images and given.out == ROOT:
        parser.error("--images gives weights to look at only: name another folder with --out")
    return given


def main() -> None:
    given = arguments()
    try:
        if given.folds:
            try_setting(given)
            return
        parts, path = given.parts or PARTS, given.out / RECORD
        if "train" in parts:
            write_json(path, make(given))
        if "score" in parts:
            write_json(path, json.loads(path.read_text()) | judge(given))
        if "card" in parts:
            others = json.loads((ROOT / REFERENCE).read_text())["detectors"]
            page = card(json.loads(path.read_text()), read_folds(given.out / FOLDS), others)
            write_atomically(given.out / CARD, page.encode())
    except (KnifeEdgeError, ValueError, OSError) as error:
        raise SystemExit(f"weights: {error}") from None
    print(f"{given.out}: {WEIGHTS}, {RECORD}, {CARD}", flush=True)


if __name__ == "__main__":
    main()
