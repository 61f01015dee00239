"""Plots as SVG inside the page: its colours are the page's, light or dark, and so is its type."""

from collections.abc import Iterable
from html import escape

import numpy as np

from knifeedge.metrics.curves import Floats
from knifeedge.report.plots import ISO_F, Mark, Plot, Series, iso_f_line, nice_step

WIDTH, HEIGHT = 440, 330
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 10, 42
COLOURS = 6
_LINE_COUNT = 4  # of dash patterns, in page.css


def figure(plot: Plot) -> str:
    """A plot with its heading, its key and its text alternative, as an HTML figure."""
    keys = "".join(_key(series) for series in plot.series)
    key = f'<ul class="key">{keys}</ul>'
    note = f" <span>{escape(plot.note)}</span>" if plot.note else ""
    return (
        f'<figure class="plot"><figcaption><b>{escape(plot.title)}</b>{note}</figcaption>'
        f"{drawing(plot)}{key}</figure>"
    )


def drawing(plot: Plot, *, live: str = "") -> str:
    """A plot as an SVG element.

    Args:
        plot: What to draw.
        live: Name of an empty group above the curves, which the page's script fills.
    """
    parts = [*_frame(plot)]
    if plot.iso_f:
        parts += [*_iso_lines(plot)]
    parts += [_curve(plot, series) for series in plot.series]
    parts += [_mark(plot, mark) for mark in sorted(plot.marks, key=lambda mark: mark.kind)]
    box = f'data-plot="{LEFT} {TOP} {WIDTH - LEFT - RIGHT} {HEIGHT - TOP - BOTTOM}"'
    if live:
        parts.append(f'<g id="{escape(live)}" {box}></g>')
    return (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(plot.alt)}">{"".join(parts)}</svg>'
    )


def style(colour: int | None, dotted: bool = False) -> str:
    """The classes of a curve: its colour, and a dash pattern that tells it without colour."""
    if colour is None:
        return "quiet dotted" if dotted else "quiet"
    dash = "dotted" if dotted else f"d{colour % _LINE_COUNT}"
    return f"c{colour % COLOURS} {dash}"


def ticks(low: float, high: float) -> Floats:
    """Round values along an axis.

    >>> ticks(0.0, 1.0).tolist()
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    step = nice_step(high - low)
    first = int(np.ceil(low / step - 1e-9))
    last = int(np.floor(high / step + 1e-9))
    return np.round(np.arange(first, last + 1) * step, 10)


def _key(series: Series) -> str:
    path = f'<path class="{style(series.colour, series.dotted)}" d="M1 4H25"/>'
    line = f'<svg viewBox="0 0 26 8" aria-hidden="true">{path}</svg>'
    return f"<li>{line}{escape(series.label)}</li>"


def _frame(plot: Plot) -> Iterable[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for value in ticks(*plot.x_range):
        x = _x(plot, value)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{value:g}</text>'
    for value in ticks(*plot.y_range):
        y = _y(plot, value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>'
        yield f'<text x="{LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    yield f'<path class="axis" d="M{LEFT} {bottom}H{right}"/>'
    middle = (LEFT + right) / 2
    yield (
        f'<text class="name" x="{middle:g}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"{escape(plot.x_label)}</text>"
    )
    centre = (TOP + bottom) / 2
    yield (
        f'<text class="name" transform="translate(12 {centre:g}) rotate(-90)"'
        f' text-anchor="middle">{escape(plot.y_label)}</text>'
    )


def _iso_lines(plot: Plot) -> Iterable[str]:
    for f in ISO_F:
        recall, precision = iso_f_line(f)
        yield f'<path class="iso" d="{_path(plot, recall, precision)}"/>'
        x, y = _x(plot, 1.0) - 3, _y(plot, float(precision[-1])) - 3
        yield f'<text class="iso" x="{x:.1f}" y="{y:.1f}" text-anchor="end">{f:g}</text>'


def _curve(plot: Plot, series: Series) -> str:
    path = _path(plot, series.x, series.y)
    return f'<path class="curve {style(series.colour, series.dotted)}" d="{path}"/>'


def _mark(plot: Plot, mark: Mark) -> str:
    x, y = _x(plot, mark.x), _y(plot, mark.y)
    shape = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
        if mark.kind == "fixed"
        else f'<path d="M{x:.1f} {y - 6:.1f}l5.5 6 -5.5 6 -5.5 -6z"/>'
    )
    colour = style(mark.colour).split()[0]
    return f'<g class="mark {mark.kind} {colour}"><title>{escape(mark.label)}</title>{shape}</g>'


def _path(plot: Plot, x: Floats, y: Floats) -> str:
    points = [f"{_x(plot, a):.1f} {_y(plot, b):.1f}" for a, b in zip(x, y, strict=True)]
    if len(points) == 1:  # a dot is a line of no length with round ends
        points *= 2
    return "M" + "L".join(points)


def _x(plot: Plot, value: float) -> float:
    low, high = plot.x_range
    return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def _y(plot: Plot, value: float) -> float:
    low, high = plot.y_range
    return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)
