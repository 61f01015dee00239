"""Draws the pictures of the documentation: python docs/figures.py

They go to docs/images, plots as SVG; on one machine the same bytes every time.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from skimage.data import coffee

import knifeedge as ke
from knifeedge.disk import write_atomically
from knifeedge.engine.predict import png, to_bytes
from knifeedge.report.drawing import COLOURS, LINE, QUIET, STYLE, encode
from knifeedge.report.paper import write_paper_figures

IMAGES = Path(__file__).parent / "images"
THRESHOLD, WINDOW = 0.7, 0.2


def adjuster() -> Figure:
    """The weight of an edge and of a non-edge pixel over the predicted probability."""
    prob = torch.linspace(0, 1, 1001, dtype=torch.float64)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for label, colour in ((1.0, COLOURS[1]), (0.0, COLOURS[2])):
            target = torch.full_like(prob, label)
            weight = ke.adjuster_weight(prob, target, threshold=THRESHOLD, window=WINDOW)
            name = "an edge, y = 1" if label else "no edge, y = 0"
            axes.plot(prob.numpy(), weight.numpy(), color=colour, linewidth=2.2, label=name)
        axes.axvline(THRESHOLD, color=QUIET, linewidth=1, linestyle=(0, (4, 3)))
        axes.text(THRESHOLD + 0.008, 1.06, "threshold", color=QUIET, fontsize=8)
        axes.axvspan(THRESHOLD - WINDOW, THRESHOLD + WINDOW, color=LINE, alpha=0.5, linewidth=0)
        axes.text(0.08, 0.14, "right and sure:\nweight 0", color=COLOURS[2], fontsize=8)
        axes.text(0.08, 0.86, "wrong: weight 1", color=COLOURS[1], fontsize=8)
        axes.text(0.915, 0.14, "right\nand sure", color=COLOURS[1], fontsize=8)
        axes.set(xlabel="predicted probability p", ylabel="weight", xlim=(0, 1), ylim=(-0.03, 1.12))
        axes.set_title("Adjuster, threshold 0.7, window 0.2, decay 16", loc="left", weight="bold")
        axes.legend(frameon=False, fontsize=8, loc="center left")
        return figure


def three_steps() -> Figure:
    """Which images each step of the protocol sees, and what it hands on."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.0), layout="constrained")
        axes = figure.add_subplot()
        axes.set(xlim=(0, 7.2), ylim=(0, 3.0))
        axes.axis("off")
        for left, width, text, colour in (
            (1.5, 2.3, "P  pre-train", COLOURS[1]),
            (3.85, 1.0, "V  validation", COLOURS[3]),
            (4.9, 1.4, "T  test", COLOURS[2]),
        ):
            _box(axes, left, 2.3, width, text, colour)
        _box(axes, 1.5, 1.3, 2.3, "train with the base loss", COLOURS[1])
        _box(axes, 3.85, 1.3, 1.0, "calibrate", COLOURS[3])
        _box(axes, 1.5, 0.3, 3.35, "train anew with each loss", COLOURS[0])
        _box(axes, 4.9, 0.3, 1.4, "predict, score", COLOURS[2])
        for height, text in ((2.52, "1  split"), (1.52, "2  threshold"), (0.52, "3  train, test")):
            axes.text(0.05, height, text, va="center", weight="bold", fontsize=9)
        axes.annotate(
            "", (4.35, 0.76), (4.35, 1.28), arrowprops={"arrowstyle": "->", "color": QUIET}
        )
        axes.text(4.43, 1.02, "threshold, for BAA-SA", color=QUIET, fontsize=8, va="center")
        return figure


def _box(axes, left: float, bottom: float, width: float, text: str, colour: str) -> None:
    shape = "round,pad=0,rounding_size=0.06"
    frame = FancyBboxPatch((left, bottom), width, 0.44, shape, fc=colour, ec="none", alpha=0.16)
    axes.add_patch(frame)
    axes.text(left + width / 2, bottom + 0.22, text, ha="center", va="center", fontsize=8.5)


def photograph() -> bytes:
    """A photograph (CC0, Rachel Michetti) and its edges by the weights that ship, as a PNG."""
    network, _ = ke.load_model()
    image = coffee()
    edges = 255 - to_bytes(ke.predict(network, image))
    return png(np.hstack([image, np.dstack([edges] * 3)]))


def main() -> None:
    """Draw all of them."""
    for name, figure in {"adjuster": adjuster(), "three-steps": three_steps()}.items():
        write_atomically(IMAGES / f"{name}.svg", encode(figure, "svg"))
    write_atomically(IMAGES / "photograph.png", photograph())
    with TemporaryDirectory() as folder:
        for path in write_paper_figures(Path(folder)):
            if path.suffix == ".svg":
                write_atomically(IMAGES / path.name, path.read_bytes())


if __name__ == "__main__":
    main()
