"""The edge benchmark against a straightforward scipy and scikit-image evaluator, on one thread.

Prints seconds an image and the ratio, both measured in this run on the same inputs, arrays in
memory: 99 thresholds, 481x321 (the recorded maps on BSDS500 where the data is there, made-up scenes
else) and 1280x720. The slow evaluator is timed at every eleventh threshold and scaled to 99, as it
would take minutes. Last comes a 4000x3000 map, in a process of its own for its memory.

    python benchmarks/evaluate.py
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_gradient_magnitude

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import naive
import shared_data
from knifeedge.data import synthetic_scene
from knifeedge.metrics import THRESHOLDS, match_counts
from knifeedge.metrics.matching import tolerance_squared

Image = tuple[np.ndarray, list[np.ndarray]]
SAMPLED = THRESHOLDS[::11]
IMAGES = 5
FLOORS = {  # seconds an image on a 2-core machine
    "1 annotator, thinned, 0.003": 0.03,
    "1 annotator, thinned, 0.0075": 0.05,
    "1 annotator, not thinned, 0.003": 0.01,
    "1 annotator, not thinned, 0.0075": 0.01,
    "5 annotators, thinned, 0.0075": 0.15,
    "1280x720, thinned, 0.0075": 0.8,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--large", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.large:
        print(json.dumps(large(options.large)))
        return
    figures = run(quiet=options.json)
    with tempfile.TemporaryDirectory() as folder:
        prob, (truth,) = made_up(0, (3000, 4000))
        np.savez(f"{folder}/large.npz", prob=prob, truth=truth)
        command = [sys.executable, __file__, "--large", f"{folder}/large.npz"]
        child = json.loads(subprocess.check_output(command))
    figures["4000x3000, thinned, 0.0075"] = child
    if options.json:
        print(json.dumps(figures))
    else:
        print(
            f"4000x3000, thinned, 0.0075: {child['seconds']:.1f} s, {child['MiB']:.0f} MiB in all"
        )


def run(*, quiet: bool) -> dict[str, dict[str, float]]:
    images, where = small_images()
    large_image = [made_up(0, (720, 1280))]
    first = [(prob, truths[:1]) for prob, truths in images]
    five = [(prob, truths) for prob, truths in images if len(truths) == 5]
    cases: list[tuple[str, list[Image], float, bool]] = [
        ("1 annotator, thinned, 0.003", first, 0.003, True),
        ("1 annotator, thinned, 0.0075", first, 0.0075, True),
        ("1 annotator, not thinned, 0.003", first, 0.003, False),
        ("1 annotator, not thinned, 0.0075", first, 0.0075, False),
        ("5 annotators, thinned, 0.0075", five, 0.0075, True),
        ("1280x720, thinned, 0.0075", large_image, 0.0075, True),
    ]
    if not quiet:
        print(f"{where}; seconds an image, one thread, best of 5; ratio to scipy + scikit-image")
    figures = {}
    for name, inputs, max_dist, thin in cases:
        ours = [best(partial(fast, image, max_dist, thin), repeats=5) for image in inputs]
        theirs = [best(partial(slow, image, max_dist, thin), repeats=1) for image in inputs[:2]]
        seconds, ratio = float(np.mean(ours)), float(np.mean(theirs) / np.mean(ours[:2]))
        figures[name] = {"seconds": seconds, "ratio": ratio}
        if not quiet:
            print(
                f"{name:>33}: {seconds:.4f} s (floor {FLOORS[name]:g})  {ratio:,.0f}x", flush=True
            )
    return figures


def small_images() -> tuple[list[Image], str]:
    try:
        names = [name for name in shared_data.oracle_names() if name.startswith("bsds")]
        found = [(shared_data.oracle_map(n), shared_data.oracle_truths(n)) for n in names]
    except BaseException as error:  # pytest's Skipped, where the data is missing
        if type(error).__name__ != "Skipped":
            raise
        return [several(made_up(seed, (321, 481))) for seed in range(IMAGES)], "made-up scenes"
    return found, f"{len(found)} recorded maps on BSDS500"


def made_up(seed: int, size: tuple[int, int]) -> Image:
    """A scene's gradient magnitude, and its exact edges."""
    image, label = synthetic_scene(seed, 0, size)
    strength = gaussian_gradient_magnitude(image.mean(axis=2), 1.5)
    return (strength / strength.max()).astype(np.float32), [label > 127]


def several(image: Image) -> Image:
    """Five annotators: the truth shifted by a pixel or two."""
    prob, (truth,) = image
    shifts = ((0, 0), (1, 0), (0, 1), (1, 1), (2, 1))
    return prob, [np.roll(truth, shift, axis=(0, 1)) for shift in shifts]


def fast(image: Image, max_dist: float, thin: bool) -> np.ndarray:
    prob, truths = image
    return match_counts(prob, truths, max_dist=max_dist, thin=thin)


def slow(image: Image, max_dist: float, thin: bool) -> np.ndarray:
    prob, truths = image
    radius = tolerance_squared(prob.shape, max_dist)
    return naive.match_counts(prob, truths, radius, thinned=thin, thresholds=SAMPLED)


def best(work: Callable[[], np.ndarray], *, repeats: int) -> float:
    """Seconds for 99 thresholds, the best of several; the slow one does fewer and is scaled."""
    found = []
    rows = len(work()) if repeats > 1 else len(SAMPLED)  # the first call of the fast one compiles
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found) * len(THRESHOLDS) / rows


def large(path: str) -> dict[str, float]:
    with np.load(path) as arrays:
        image = arrays["prob"], [arrays["truth"]]
    fast((image[0][:64, :64], [image[1][0][:64, :64]]), 0.0075, True)  # loads what was compiled
    start = time.perf_counter()
    fast(image, 0.0075, True)
    seconds = time.perf_counter() - start
    # The kernel's own high-water mark: getrusage's includes the parent's before exec.
    status = Path("/proc/self/status").read_text()
    return {"seconds": seconds, "MiB": int(status.split("VmHWM:")[1].split()[0]) / 1024}


if __name__ == "__main__":
    main()
