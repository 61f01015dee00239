"""BAA-WBCE against torch's plain BCE-with-logits, forward and backward, on the CPU.

Prints the ratios to eager BCE, measured in one run: the machine's speed cancels. The two are
timed in turns and the best of each counts, which leaves out what other programs took.

    python benchmarks/loss.py
"""

import argparse
import contextlib
import ctypes
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

import knifeedge as ke

# Shape and how often it is timed: the small one takes a millisecond, which anything can disturb.
SIZES = {"8x1x320x320": ((8, 1, 320, 320), 200), "16 M": ((16, 1, 1000, 1000), 8)}


def main() -> None:
    keep_pages()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the ratios as JSON")
    options = parser.parse_args()
    ratios = {name: measure(*size) for name, size in SIZES.items()}
    if options.json:
        print(json.dumps(ratios))
        return
    print(f"forward + backward, float32, {torch.get_num_threads()} threads, ratio to eager BCE")
    for name, row in ratios.items():
        print(f"{name:>12}  " + "  ".join(f"{k} {v:.2f}x" for k, v in row.items()))


def keep_pages() -> None:
    """Keep glibc from handing freed memory back after each step and asking for it at the next.

    Whether it does depends on what lies at the end of the heap, by chance: in a training it seldom
    does. The page faults would be most of the time of the small case.
    """
    with contextlib.suppress(OSError, AttributeError):
        trim_threshold = -1
        ctypes.CDLL("libc.so.6").mallopt(trim_threshold, 2**31 - 1)


def measure(shape: tuple[int, ...], repeats: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(shape, generator=generator).requires_grad_()
    target = (torch.rand(shape, generator=generator) < 0.05).float()
    adjusted = ke.AdjustedLoss(ke.WBCELoss())
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "bce": nn.BCEWithLogitsLoss(),
        "baa eager": adjusted,
        "baa compiled": torch.compile(adjusted, fullgraph=True),
    }
    best = dict.fromkeys(losses, float("inf"))
    for repeat in range(-2, repeats):  # two rounds of warm-up
        for name, loss in losses.items():
            logits.grad = None
            start = time.perf_counter()
            loss(logits, target).backward()
            if repeat >= 0:
                best[name] = min(best[name], time.perf_counter() - start)
    return {name: best[name] / best["bce"] for name in ("baa eager", "baa compiled")}


if __name__ == "__main__":
    main()
