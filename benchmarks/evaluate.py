"""Seconds per image of the edge benchmark, and the ratio to a plain scipy + skimage evaluator.

One thread, 99 thresholds, arrays in memory. The 481 x 321 maps are the recorded ones against
BSDS500 where `shared/` lies beside the repository or KNIFEEDGE_DATA is set, else made by code;
the larger ones are always made by code. Ours is the best of several runs, averaged over the
images. The plain evaluator (tests/naive.py) is slow: it is timed once, on the first of the images
and on 11 of the 99 thresholds, evenly spread, and that time is multiplied by 9; the ratio takes
our time on that same image. At those thresholds both must count the same; only which map pixels
are matched with several ground truths may differ, as the plain one takes any maximum matching.
Where it has not ended after a minute (scipy's matching can take minutes a map), it is stopped and
that minute, not multiplied, stands for its time: a ratio marked > is that much at least.
"""

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, gaussian_gradient_magnitude

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import naive
import shared_data
from knifeedge.metrics.counts import THRESHOLDS, match_counts
from knifeedge.metrics.matching import tolerance_squared

SAMPLE = slice(4, None, 9)  # 0.05, 0.14, .. 0.95
RUNS = 7
PATIENCE = 60.0  # seconds for the plain evaluator


def synthetic(height, width, annotators, seed):
    """A gradient map of a noisy scene of flat regions, and their borders by several hands."""
    rng = np.random.default_rng(seed)
    field = gaussian_filter(rng.standard_normal((height, width)).astype(np.float32), 24)
    regions = np.floor(field / field.std())
    borders = np.zeros((height, width), dtype=bool)
    borders[:, :-1] |= regions[:, :-1] != regions[:, 1:]
    borders[:-1] |= regions[:-1] != regions[1:]
    truths = []
    for _ in range(annotators):
        shift = rng.integers(-1, 2, 2)
        kept = gaussian_filter(rng.standard_normal((height, width)).astype(np.float32), 20)
        truths.append(np.roll(borders, shift, (0, 1)) & (kept > -0.5 * kept.std()))
    scene = regions + 0.2 * rng.standard_normal((height, width)).astype(np.float32)
    edges = gaussian_gradient_magnitude(scene, 1.5)
    eight_bit = np.rint(255 * np.clip(edges / np.quantile(edges, 0.999), 0, 1))
    return eight_bit.astype(np.float32) / 255, truths


def small_images():
    try:
        names = [name for name in shared_data.oracle_names() if name.startswith("bsds")]
        loaded = [(shared_data.oracle_map(n), shared_data.oracle_truths(n)[:5]) for n in names]
        return f"{len(names)} BSDS500 images", loaded
    except pytest.skip.Exception:
        return "4 synthetic images", [synthetic(321, 481, 5, seed) for seed in range(4)]


def seconds(function, runs):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def regime(title, images, annotators, floor, **settings):
    ours = []
    for prob, truths in images:
        chosen = truths[0] if annotators == 1 else truths[:annotators]
        ours.append(seconds(lambda p=prob, t=chosen: match_counts(p, t, **settings), RUNS))
    prob, truths = images[0][0], images[0][1][:annotators]
    plain, plain_time = run_plain(prob, truths, settings)
    if plain is not None:
        columns = [0, 1, 3]
        counted = match_counts(prob, truths, **settings)[SAMPLE]
        if not np.array_equal(counted[:, columns], plain[:, columns]):
            sys.exit(f"{title}: the counts differ")
    ratio = f"{'> ' if plain is None else ''}{plain_time / ours[0]:.0f}x"
    print(
        f"{title:40} {np.mean(ours):8.4f} {min(ours):8.4f} {max(ours):8.4f} {floor:7.3f}"
        f" {plain_time:9.2f} {ratio:>8}",
        flush=True,
    )


def run_plain(prob, truths, settings):
    """Counts of the plain evaluator, or None, and the seconds of all thresholds."""
    radius_squared = tolerance_squared(prob.shape, settings["max_dist"])
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def work():
        start = time.perf_counter()
        counts = naive.match_counts(
            prob, truths, radius_squared, thinned=settings["thin"], thresholds=THRESHOLDS[SAMPLE]
        )
        sender.send((counts, 9 * (time.perf_counter() - start)))

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    result = receiver.recv() if receiver.poll(PATIENCE) else (None, PATIENCE)
    process.terminate()
    process.join()
    return result


def large(path):
    """Time and peak memory of one large map, in this process and nothing else."""
    with np.load(path) as arrays:
        prob, truth = arrays["prob"], arrays["truth"]
    print(f"{prob.shape[1]} x {prob.shape[0]}, {truth.sum()} ground-truth pixels")
    for title, settings in {
        "one truth, 0.003, thinned": {"max_dist": 0.003},
        "one truth, 0.0075, thinned": {"max_dist": 0.0075},
        "one truth, 0.0075, not thinned": {"max_dist": 0.0075, "thin": False},
    }.items():
        start = time.perf_counter()
        match_counts(prob, truth, **settings)
        spent = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{title:40} {spent:8.2f} s, peak memory of the process so far {peak:.0f} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", metavar="FILE", help="only the large map in this NPZ file")
    if path := parser.parse_args().large:
        large(path)
        return
    start = time.perf_counter()
    square = np.eye(9, dtype=bool)
    match_counts(square, square)
    match_counts(square, [square, square])
    print(f"first call, compiling or reading the cache: {time.perf_counter() - start:.1f} s")
    what, images = small_images()
    print(f"{what}; seconds per image, one thread")
    print(f"{'':40} {'mean':>8} {'least':>8} {'most':>8} {'floor':>7} {'plain':>9} {'ratio':>8}")
    for max_dist, floor in ((0.003, 0.03), (0.0075, 0.05)):
        regime(f"one truth, {max_dist}, thinned", images, 1, floor, max_dist=max_dist, thin=True)
    for max_dist in (0.003, 0.0075):
        title = f"one truth, {max_dist}, not thinned"
        regime(title, images, 1, 0.01, max_dist=max_dist, thin=False)
    regime("five annotators, 0.0075, thinned", images, 5, 0.15, max_dist=0.0075, thin=True)
    wide = [synthetic(720, 1280, 1, 0)]
    regime("one truth, 1280 x 720, 0.0075, thinned", wide, 1, 0.8, max_dist=0.0075, thin=True)
    with tempfile.TemporaryDirectory() as folder:
        prob, truths = synthetic(3000, 4000, 1, 0)
        np.savez(f"{folder}/large.npz", prob=prob, truth=truths[0])
        subprocess.run([sys.executable, __file__, "--large", f"{folder}/large.npz"], check=True)


if __name__ == "__main__":
    main()
