"""Plots as PNG and SVG files, drawn by matplotlib without a display and without global state.

The same plot gives the same bytes: no date goes into the files, and the identifiers in an SVG are
made from a fixed salt.
"""

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from knifeedge.disk import write_atomically
from knifeedge.report.plots import ISO_F, Plot, iso_f_line, protocol_plots, training_plots
from knifeedge.report.records import Contents
from knifeedge.report.words import utf8

# The page's colours on white, and its dash patterns.
COLOURS = ("#5b6570", "#0072b2", "#c94f00", "#00835f", "#a8437c", "#8a6a00")
QUIET, LINE = "#59626c", "#e2e3de"
DASHES = ("-", (0, (4.5, 2)), (0, (1.5, 2)), (0, (5, 2, 1, 2)))
STYLE = {
    "svg.hashsalt": "knifeedge",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # it comes with matplotlib
    "font.size": 9,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "text.parse_math": False,  # a name may hold dollar signs
}
DPI = 160


def named_plots(contents: Contents) -> Iterator[tuple[str, Plot]]:
    """All plots, with a name for each that does as a file name and differs from the others."""
    for number, run in enumerate(contents.runs, start=1):
        for plot in protocol_plots(run):
            yield f"{number:02d}-{slug(run.name)}-{slug(plot.key)}", plot
    for plot in training_plots(contents.trainings):
        yield f"training-{slug(plot.key)}", plot


def write_plots(contents: Contents, folder: Path, formats: Sequence[str] = ("png", "svg")) -> int:
    """Write every plot into a folder; the number of files."""
    count = 0
    for name, plot in named_plots(contents):
        figure = draw(plot)
        for format in formats:
            write_atomically(folder / f"{name}.{format}", encode(figure, format))
            count += 1
    return count


def draw(plot: Plot) -> Figure:
    """One plot as a figure."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(_drawable(plot.title), loc="left", fontweight="bold", fontsize=10)
        axes.set(xlabel=plot.x_label, ylabel=plot.y_label, xlim=plot.x_range, ylim=plot.y_range)
        axes.grid(color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)
        if plot.iso_f:
            _draw_iso_lines(axes)
        for series in plot.series:
            colour, dash = line_style(series.colour, series.dotted)
            axes.plot(series.x, series.y, color=colour, linestyle=dash, label=_label(series.label))
        for mark in sorted(plot.marks, key=lambda mark: mark.kind):
            colour, _ = line_style(mark.colour, False)
            kind = "o" if mark.kind == "fixed" else "D"
            face = colour if mark.kind == "fixed" else "white"
            axes.plot(
                mark.x, mark.y, kind, color=colour, markerfacecolor=face, markersize=6, zorder=4
            )
        if plot.series:
            axes.legend(frameon=False, fontsize=8)
        return figure


def encode(figure: Figure, format: str) -> bytes:
    """A figure as the bytes of a PNG or an SVG file."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        if format == "svg":
            FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})
        else:
            FigureCanvasAgg(figure)
            figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def line_style(colour: int | None, dotted: bool) -> tuple[str, object]:
    """Colour and dashes of a curve."""
    dash = ":" if dotted else DASHES[0 if colour is None else colour % len(DASHES)]
    return (QUIET if colour is None else COLOURS[colour % len(COLOURS)]), dash


def slug(text: str) -> str:
    """A text as part of a file name, whatever it holds.

    >>> slug("runs/<b>tiny</b> Größe")
    'runs-b-tiny-b-Gr-e'
    """
    return re.sub(r"[^A-Za-z0-9.=_]+", "-", text).strip("-.") or "run"


def _drawable(text: str) -> str:
    return utf8(text).decode()


def _label(text: str) -> str:
    text = _drawable(text)
    # matplotlib leaves out of a legend what begins with an underscore
    return f" {text}" if text.startswith("_") else text


def _draw_iso_lines(axes: Axes) -> None:
    for f in ISO_F:
        recall, precision = iso_f_line(f)
        axes.plot(recall, precision, color=LINE, linewidth=0.8, zorder=1)
        axes.annotate(
            f"{f:g}", (1, float(precision[-1])), color=QUIET, fontsize=6, ha="right", va="bottom"
        )
