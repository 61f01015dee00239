"""The paper's figures: the weight function for several decays, and the ablation.

The ablation is drawn from the paper's own table (its supplementary material: EES3-Double on BRIND,
threshold 0.7, delta 1, 1-pixel tolerance without NMS); an experiment over the same grid of window
and decay is drawn below it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from knifeedge.disk import write_atomically
from knifeedge.report.drawing import COLOURS, DASHES, LINE, STYLE, encode
from knifeedge.report.files import finite
from knifeedge.report.loss_names import adjuster_settings
from knifeedge.report.records import Contents, Experiment

WINDOWS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
DECAYS = (8.0, 16.0, 32.0)
DEFAULT_DECAY = 16.0
SHOWN_DECAYS = (0.0, 4.0, 8.0, 16.0, 32.0, 64.0)
# By decay: ODS and OIS at the seven windows.
PAPER: dict[float, tuple[tuple[float, ...], tuple[float, ...]]] = {
    8.0: (
        (0.686, 0.689, 0.689, 0.689, 0.686, 0.686, 0.687),
        (0.695, 0.698, 0.697, 0.696, 0.694, 0.694, 0.694),
    ),
    16.0: (
        (0.687, 0.690, 0.688, 0.688, 0.685, 0.687, 0.686),
        (0.695, 0.697, 0.696, 0.696, 0.694, 0.694, 0.694),
    ),
    32.0: (
        (0.688, 0.690, 0.687, 0.686, 0.687, 0.687, 0.687),
        (0.696, 0.698, 0.695, 0.694, 0.694, 0.695, 0.694),
    ),
}

Curve = dict[float, float]
Grid = dict[float, tuple[Curve, Curve]]


def write_paper_figures(folder: Path, contents: Contents | None = None) -> list[Path]:
    """Write `weight-function` and `ablation`, each as PNG and SVG.

    Args:
        folder: Where to write.
        contents: Runs; the first experiment over windows and decays among them is drawn too.

    Returns:
        The files.
    """
    figures = {"weight-function": _weight_function(), "ablation": _ablation(contents)}
    written = []
    for name, figure in figures.items():
        for format in ("png", "svg"):
            path = folder / f"{name}.{format}"
            write_atomically(path, encode(figure, format))
            written.append(path)
    return written


def ablation_grid(experiment: Experiment) -> dict[str, Grid]:
    """ODS and OIS by decay and window, for each model and data set that varies the window.

    A loss that names no window or decay has the default ones; its threshold must be fixed.
    """
    grids: dict[str, Grid] = {}
    for row in experiment.rows:
        settings = adjuster_settings(str(row.get("loss", "")))
        ods, ois = (_mean(row.get(key)) for key in ("ods", "ois"))
        if settings is None or settings.threshold is None or ods is None or ois is None:
            continue
        title = f"{row.get('model')} on {row.get('data')}, {row.get('protocol')}"
        of_decay = grids.setdefault(title, {}).setdefault(settings.decay, ({}, {}))
        of_decay[0][settings.window], of_decay[1][settings.window] = ods, ois
    return {
        title: grid
        for title, grid in grids.items()
        if any(len(curves[0]) > 1 for curves in grid.values())
    }


def _weight_function() -> Figure:
    import torch

    from knifeedge.distance import distance_weight

    window = 0.2
    x = torch.linspace(-0.05, 0.25, 601, dtype=torch.float64)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 3.9), layout="constrained")
        axes = figure.add_subplot()
        for number, decay in enumerate(SHOWN_DECAYS):
            weight = distance_weight(x, window=window, decay=decay)
            label = f"decay {decay:g}" + (" (linear)" if decay == 0 else "")
            width = 1.6
            if decay == DEFAULT_DECAY:
                label, width = f"{label}, the default", 2.8
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(x.numpy(), weight.numpy(), label=label, color=colour, linewidth=width)
        axes.axvline(window, color=LINE, linewidth=1, zorder=0)
        axes.set(xlabel="distance from the threshold, positive where right", ylabel="weight")
        axes.set_title(f"Distance weight, window {window:g}", loc="left", fontweight="bold")
        axes.set(xlim=(-0.05, 0.25), ylim=(-0.02, 1.05))
        axes.legend(frameon=False, fontsize=8)
        return figure


def _ablation(contents: Contents | None) -> Figure:
    paper: Grid = {
        decay: (dict(zip(WINDOWS, ods, strict=True)), dict(zip(WINDOWS, ois, strict=True)))
        for decay, (ods, ois) in PAPER.items()
    }
    grids: dict[str, Grid] = {"The paper: EES3-Double on BRIND, 1 pixel": paper}
    for experiment in contents.experiments if contents else ():
        grids |= {f"Ours: {title}": grid for title, grid in ablation_grid(experiment).items()}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.5 * len(grids)), layout="constrained")
        panels = figure.subplots(len(grids), 2, squeeze=False)
        for row, (title, grid) in zip(panels, grids.items(), strict=True):
            for axes, place, name in zip(row, (0, 1), ("ODS", "OIS"), strict=True):
                _draw_panel(axes, {decay: curves[place] for decay, curves in grid.items()}, name)
            row[0].set_title(title, loc="left", fontweight="bold", fontsize=10)
        return figure


def _draw_panel(axes: Axes, curves: Mapping[float, Curve], name: str) -> None:
    for number, decay in enumerate(sorted(curves)):
        windows: Sequence[float] = sorted(curves[decay])
        axes.plot(
            windows,
            [curves[decay][window] for window in windows],
            marker="o",
            markersize=4,
            color=COLOURS[(number + 1) % len(COLOURS)],
            linestyle=DASHES[number % len(DASHES)],
            label=f"decay {decay:g}",
        )
    axes.set(xlabel="window", ylabel=name)
    axes.grid(color=LINE, linewidth=0.6)
    axes.margins(y=0.15)
    axes.legend(frameon=False, fontsize=8)


def _mean(entry: object) -> float | None:
    return finite(entry.get("mean")) if isinstance(entry, Mapping) else None
