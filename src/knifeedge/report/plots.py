"""The plots of a report as plain records; `svg` draws them into the page, `drawing` into files.

| plot | what it shows |
| --- | --- |
| precision and recall | a curve a loss, over lines of equal F |
| F against the threshold | the fixed and the best threshold marked, and the validation curve |
| loss while training | a curve a training run |
| validation ODS | the same, where it was measured |
| threshold while training | where a loss finds it then, and the calibrated one beside it |
| weight of the adjuster | by the prediction, for an edge and for a non-edge |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from knifeedge.metrics.counts import THRESHOLDS
from knifeedge.metrics.curves import Floats
from knifeedge.report.loss_names import adjuster_settings
from knifeedge.report.records import Calibration, ProtocolRun, Training

ISO_F = tuple(n / 10 for n in range(1, 10))
_LARGEST = np.finfo(np.float32).max  # losses are computed in float32; an axis beyond overflows
MOST_POINTS = 400  # of a loss curve; more cannot be seen
_LEAST_SPAN = 1e-9  # of an axis, as a share of its numbers; steps are rounded to 12 digits
TRAINING_NOTES = {
    "loss": "Losses of different kinds are not on one scale.",
    "validation": "",
    "online": "Found by the loss itself; dotted: calibrated on validation images, for comparison.",
}


@dataclass(frozen=True)
class Series:
    """A curve; `colour` is an index into the palette, None the colour of quiet things."""

    label: str
    x: Floats
    y: Floats
    colour: int | None = None
    dotted: bool = False


@dataclass(frozen=True)
class Mark:
    """A point on a curve: "fixed" (a disc) or "best" (a diamond)."""

    label: str
    x: float
    y: float
    kind: str
    colour: int | None


@dataclass(frozen=True)
class Plot:
    """One plot.

    Attributes:
        key: Its name in file names.
        title: Its heading.
        note: What to know when reading it.
        alt: The plot in words, with its main numbers.
        x_label: Name of the horizontal axis.
        y_label: Name of the vertical axis.
        x_range: Ends of the horizontal axis.
        y_range: Ends of the vertical axis.
        series: The curves.
        marks: Points on them.
        iso_f: Draw lines of equal F beneath.
    """

    key: str
    title: str
    note: str
    alt: str
    x_label: str
    y_label: str
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    iso_f: bool = False


def protocol_plots(run: ProtocolRun) -> list[Plot]:
    """All plots of a protocol's folder, as far as its files go."""
    plots = []
    for protocol in run.protocols:
        plots += [*_curves(run, protocol)]
    trainings = [*run.pretraining, *(outcome.training for outcome in run.outcomes)]
    plots += training_plots(trainings, _training_colours(run), run.calibrations)
    weights = _weights(run)
    return [*plots, weights] if weights else plots


def training_plots(
    trainings: Sequence[Training],
    colours: Sequence[int | None] | None = None,
    calibrations: Sequence[Calibration] = (),
) -> list[Plot]:
    """Loss, and what else was measured, of some training runs by epoch."""
    chosen = list(range(len(trainings))) if colours is None else colours
    logged = [(t, c) for t, c in zip(trainings, chosen, strict=True) if t.log is not None]
    plots = []
    for key, title, y_label, value in (
        ("loss", "Loss while training", "loss", "loss"),
        ("validation", "Validation ODS while training", "ODS", "validation_ods"),
        ("online", "Threshold while training", "threshold", "threshold"),
    ):
        series = []
        for training, colour in logged:
            x, y = training.log.epoch, getattr(training.log, value)  # type: ignore[union-attr]
            kept = np.flatnonzero((np.abs(x) < _LARGEST) & (np.abs(y) < _LARGEST))  # not NaN either
            kept = (
                kept[np.unique(np.linspace(0, len(kept) - 1, MOST_POINTS).astype(int))]
                if len(kept)
                else kept
            )
            if len(kept):
                name = training.name.rpartition("/")[2]
                dotted = name.startswith("pretrain-")
                series.append(Series(name, x[kept], y[kept], colour, dotted))
        if not series:
            continue
        if key == "online":
            for found in calibrations:
                x, name = series[0].x[[0, -1]], f"calibrated with {found.base}"
                series.append(Series(name, x, np.full(2, found.threshold), None, dotted=True))
        top = max(float(one.y.max()) for one in series)
        low = 0.0 if key == "loss" else min(float(one.y.min()) for one in series)
        ends = "; ".join(f"{one.label} ends at {one.y[-1]:.4g}" for one in series)
        last = max(float(one.x.max()) for one in series)
        first = min(1.0, *(float(one.x.min()) for one in series))
        plots.append(
            Plot(
                key=key,
                title=title,
                note=TRAINING_NOTES[key],
                alt=f"{title} by epoch. {ends}.",
                x_label="epoch",
                y_label=y_label,
                x_range=(first, max(last, first + 1)),
                y_range=nice_range(low, top),
                series=tuple(series),
            )
        )
    return plots


def nice_range(low: float, high: float) -> tuple[float, float]:
    """A range of round ends around some values.

    >>> nice_range(0.0, 0.137)
    (0.0, 0.15)
    """
    if not high - low > _LEAST_SPAN * max(1.0, abs(high)):
        half = max(0.5, 1e-6 * abs(high))  # of a number whose neighbours are farther apart
        return high - half, high + half
    step = nice_step(high - low)
    start, end = np.floor(low / step + 1e-9) * step, np.ceil(high / step - 1e-9) * step
    return round(float(start), 10), round(float(end), 10)


def nice_step(span: float, count: int = 5) -> float:
    """A step of 1, 2 or 5 times a power of ten that cuts a span into about `count` parts.

    >>> nice_step(1.0), nice_step(199.0)
    (0.2, 50.0)
    """
    raw = span / count
    power = 10.0 ** np.floor(np.log10(raw))
    factor = next(f for f in (1.0, 2.0, 5.0, 10.0) if raw <= f * power * (1 + 1e-9))
    return float(round(factor * power, 12))


def iso_f_line(f: float) -> tuple[Floats, Floats]:
    """Recall and precision along a line of equal F.

    >>> recall, precision = iso_f_line(0.5)
    >>> round(float(recall[0]), 6), round(float(precision[0]), 6)
    (0.333333, 1.0)
    """
    recall = np.linspace(f / (2 - f), 1.0, 60)
    return recall, f * recall / (2 * recall - f)


def _curves(run: ProtocolRun, protocol: str) -> Iterable[Plot]:
    """Precision and recall, and F by threshold, under one scoring protocol."""
    pr, by_threshold = [], []
    pr_marks, threshold_marks, words = [], [], []
    for number, outcome in enumerate(run.outcomes):
        scored = outcome.scored.get(protocol)
        if scored is None or scored.scores is None:
            continue
        scores = scored.scores
        seen = scores.counts.sum(axis=0)[:, 3] > 0  # an empty map has no precision to speak of
        pr.append(
            Series(outcome.loss, scores.curves.recall[seen], scores.curves.precision[seen], number)
        )
        by_threshold.append(Series(outcome.loss, THRESHOLDS, scores.curves.f, number))
        best = f"{outcome.loss}: best F {scores.ods:.3f} at {scores.threshold:.2f}"
        pr_marks.append(Mark(best, scores.recall, scores.precision, "best", number))
        threshold_marks.append(Mark(best, scores.threshold, scores.ods, "best", number))
        words.append(best)
        if scored.at is not None:
            at = scored.at
            fixed = f"{outcome.loss}: F {at.f:.3f} at {at.threshold:.2f}, fixed beforehand"
            pr_marks.append(Mark(fixed, at.recall, at.precision, "fixed", number))
            threshold_marks.append(Mark(fixed, at.threshold, at.f, "fixed", number))
            words.append(fixed)
    if not pr:
        return
    summary = "; ".join(words)
    note = "Disc: the threshold fixed without test images. Diamond: the best on them."
    yield Plot(
        key=f"precision-recall-{protocol}",
        title=f"Precision and recall, {protocol}",
        note=f"Faint lines: equal F. {note}",
        alt=f"Precision against recall of the test images under {protocol}. {summary}.",
        x_label="recall",
        y_label="precision",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        series=tuple(pr),
        marks=tuple(pr_marks),
        iso_f=True,
    )
    for calibration in run.calibrations:
        if calibration.curve is not None:
            name = f"{calibration.base} on validation images"
            by_threshold.append(Series(name, THRESHOLDS, calibration.curve, None, dotted=True))
            found = f"calibrated: {calibration.threshold:.2f}, F {calibration.score:.3f} there"
            threshold_marks.append(
                Mark(found, calibration.threshold, calibration.score, "fixed", None)
            )
    yield Plot(
        key=f"threshold-{protocol}",
        title=f"F against the threshold, {protocol}",
        note=note,
        alt=f"F of the test images at each threshold under {protocol}. {summary}.",
        x_label="threshold",
        y_label="F",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        series=tuple(by_threshold),
        marks=tuple(threshold_marks),
    )


def _training_colours(run: ProtocolRun) -> list[int | None]:
    """The colours of the losses; a pre-training has that of nothing."""
    return [*(None for _ in run.pretraining), *range(len(run.outcomes))]


def _weights(run: ProtocolRun) -> Plot | None:
    """The adjuster's weight by the prediction, for each adjusted loss."""
    import torch  # the only plot that needs it

    from knifeedge.adjuster import adjuster_weight

    series, words = [], []
    prob = torch.linspace(0, 1, 401, dtype=torch.float64)
    for number, outcome in enumerate(run.outcomes):
        settings = adjuster_settings(outcome.loss)
        if settings is None:
            continue
        threshold = settings.threshold if settings.threshold is not None else outcome.threshold
        if threshold is None:
            continue
        for kind, target in (("edge", torch.ones_like(prob)), ("no edge", torch.zeros_like(prob))):
            weight = adjuster_weight(
                prob, target, threshold=threshold, window=settings.window, decay=settings.decay
            )
            name = f"{outcome.loss}, {kind}"
            series.append(Series(name, prob.numpy(), weight.numpy(), number, kind != "edge"))
        words.append(
            f"{outcome.loss}: threshold {threshold:g}, window {settings.window:g},"
            f" decay {settings.decay:g}"
        )
    if not series:
        return None
    return Plot(
        key="weight",
        title="Weight of the adjuster",
        note="A wrong decision weighs 1; a right one loses weight as it leaves the threshold.",
        alt=f"Weight against the prediction, for an edge and for no edge. {'; '.join(words)}.",
        x_label="prediction",
        y_label="weight",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.05),
        series=tuple(series),
    )
