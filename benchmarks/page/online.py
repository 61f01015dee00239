"""BAA-Online with HED on UDED, beside the losses of the paper."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from page.cells import difference_cell, listed, mean_cell, seeds_of, table, verdict
from page.missing import ONLINE as WANTED, not_run
from page.records import (
    BASELINE,
    STRICT,
    WITH_FALSE_BORDERS,
    Group,
    Record,
    column,
    compare,
)

ONLINE = "baa-online"
BESIDE = {BASELINE: "WBCE", "baa-0.7": "BAA-0.7", "baa-sa": "BAA-SA"}
SCORES = (("ods", "ODS"), ("f", "F at its threshold"))


def online_section(groups: Mapping[str, Group]) -> str:
    """Scores, thresholds and times over the seeds that there are of both."""
    parts = [
        "## BAA-Online on HED",
        "HED on UDED, the paper's setting. BAA-SA takes a pre-training, a calibration and a"
        " training; BAA-Online one training.",
    ]
    main, other = groups.get("uded-hed"), groups.get("uded-hed-online")
    seeds = list(other.beside(main)) if main and other else []
    if main is None or other is None or not seeds:
        return "\n\n".join([*parts, not_run(WANTED)])
    if other.outdated:
        parts.append(WITH_FALSE_BORDERS)
    runs = {loss: [_entry(main.records[seed], loss) for seed in seeds] for loss in BESIDE}
    runs[ONLINE] = [_entry(other.records[seed], ONLINE) for seed in seeds]
    parts += [_scores(main, other, seeds), _thresholds(main, runs, seeds)]
    device = other.records[seeds[0]]["device"]
    return "\n\n".join([*parts, f"{_times(runs)} ({device}). BAA-SA needs a second one before."])


def _scores(main: Group, other: Group, seeds: Sequence[int]) -> str:
    """A row a loss, and what the intervals against BAA-SA say."""
    cells: dict[str, list[str]] = {loss: [] for loss in (*BESIDE, ONLINE)}
    said = []
    for key, name in SCORES:
        online = column(other.runs, ONLINE, STRICT, key)
        online = {seed: online[seed] for seed in seeds}
        cells[ONLINE] += [mean_cell(online), ""]
        for loss, shown in BESIDE.items():
            values = column(main.runs, loss, STRICT, key)
            values = {seed: values[seed] for seed in seeds}
            found = compare(online, values)
            cells[loss] += [mean_cell(values), difference_cell(found)]
            if loss == "baa-sa" and found is not None:
                than = f"with BAA-Online than with {shown}"
                said.append(f"{name}, against {shown}: {verdict(found, than)}.")
    names = {**BESIDE, ONLINE: "BAA-Online"}
    head = [f"`{STRICT}`, {seeds_of(seeds)}"]
    for _, name in SCORES:
        head += [name, "BAA-Online less it"]
    rows = [(names[loss], *row) for loss, row in cells.items()]
    return "\n\n".join([table(head, rows), " ".join(said)])


def _thresholds(main: Group, runs: Mapping[str, list[Record]], seeds: Sequence[int]) -> str:
    """How far those found are from those calibrated, and both from the best on the test images."""
    calibrated = [main.records[seed]["calibrations"][0]["threshold"] for seed in seeds]
    found = [entry["threshold"] for entry in runs[ONLINE]]
    best = {
        loss: [entry["scores"][STRICT]["threshold"] for entry in runs[loss]]
        for loss in (BASELINE, ONLINE)
    }
    shown = listed([f"{b:.2f} ({a:.2f})" for a, b in zip(calibrated, found, strict=True)])
    return (
        f"The thresholds found, and in brackets those calibrated for BAA-SA: {shown}; at most"
        f" {max(_gaps(found, calibrated)):.2f} apart. The calibrated one is the best on a few"
        " validation images of a network trained without them, and changes with the seed. On the"
        f" test images the best threshold of BAA-Online is on average"
        f" {fmean(_gaps(found, best[ONLINE])):.2f} from the one found; that of WBCE is"
        f" {fmean(_gaps(calibrated, best[BASELINE])):.2f} from the calibrated one."
    )


def _times(runs: Mapping[str, list[Record]]) -> str:
    """Of the fastest runs: others had the device to themselves only in part."""
    fastest = {loss: min(e["seconds"] for e in runs[loss]) for loss in (BASELINE, ONLINE)}
    ratio = fastest[ONLINE] / fastest[BASELINE]
    return (
        f"The fastest training took {fastest[BASELINE]:.1f} s with WBCE and"
        f" {fastest[ONLINE]:.1f} s with BAA-Online, {ratio:.3f} times as long"
    )


def _entry(record: Record, loss: str) -> Record:
    """What a record says of one loss."""
    return next(entry for entry in record["losses"] if entry["loss"] == loss)


def _gaps(one: Sequence[float], other: Sequence[float]) -> list[float]:
    return [abs(a - b) for a, b in zip(one, other, strict=True)]
