"""BAA-Online beside BAA-SA: one training against two."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from page.cells import difference_cell, listed, mean_cell, table, verdict
from page.records import BASELINE, STRICT, Group, Record, column, compare


def online_section(groups: Mapping[str, Group]) -> str:
    """BAA-Online against BAA-SA with HED on UDED."""
    parts = [
        "## BAA-Online against BAA-SA",
        "HED on UDED, the paper's setting: BAA-SA takes a pre-training, a calibration and a"
        " training; BAA-Online one training.",
    ]
    main, other = groups.get("uded-hed"), groups.get("uded-hed-online")
    if main is None or other is None:
        command = "python benchmarks/reproduce.py --losses baa-online --name online --seeds 0,1,2"
        return "\n\n".join([*parts, f"Not run; the records come from `{command}`."])
    rows, said = [], []
    for key, name in (("ods", "ODS"), ("f", "F at the threshold each has")):
        values = [
            column(group.runs, loss, STRICT, key)
            for group, loss in ((main, "baa-sa"), (other, "baa-online"))
        ]
        shared = [{s: v[s] for s in v if s in values[0] and s in values[1]} for v in values]
        found = compare(values[1], values[0])
        if found is None:
            return "\n\n".join([*parts, "The two have no seed in common."])
        cells = (mean_cell(shared[0]), mean_cell(shared[1]), difference_cell(found))
        rows.append((name, str(found.n), *cells))
        said.append(f"{name}: {verdict(found, 'with BAA-Online than with BAA-SA')}.")
    head = ("`paper-strict`", "seeds", "BAA-SA", "BAA-Online", "difference")
    seeds = [seed for seed in other.records if seed in main.records]
    calibrated = [main.records[seed]["calibrations"][0]["threshold"] for seed in seeds]
    runs = {
        loss: [_entry(group.records[seed], loss) for seed in seeds]
        for group, loss in ((main, BASELINE), (other, "baa-online"))
    }
    found = [entry["threshold"] for entry in runs["baa-online"]]
    best = {
        loss: [entry["scores"][STRICT]["threshold"] for entry in entries]
        for loss, entries in runs.items()
    }
    fastest = {loss: min(e["seconds"] for e in entries) for loss, entries in runs.items()}
    shown = listed([f"{b:.2f} ({a:.2f})" for a, b in zip(calibrated, found, strict=True)])
    thresholds = (
        f"The thresholds found, and in brackets those calibrated for BAA-SA: {shown}; at most"
        f" {_gap(max, found, calibrated):.2f} apart. The calibrated one is the best of a network"
        " trained without the validation images, on those few images, and changes with the seed."
        " On the test images the best threshold of BAA-Online is on average"
        f" {_gap(fmean, found, best['baa-online']):.2f} from the one found; that of WBCE is"
        f" {_gap(fmean, calibrated, best[BASELINE]):.2f} from the calibrated one."
    )
    times = (
        f"The fastest training took {fastest[BASELINE]:.1f} s with WBCE and"
        f" {fastest['baa-online']:.1f} s with BAA-Online,"
        f" {fastest['baa-online'] / fastest[BASELINE]:.2f} times as long, on"
        f" {next(iter(other.records.values()))['device']}; BAA-SA needs a second one before."
    )
    return "\n\n".join([*parts, table(head, rows), " ".join(said), thresholds, times])


def _entry(record: Record, loss: str) -> Record:
    """What a record says of one loss."""
    return next(entry for entry in record["losses"] if entry["loss"] == loss)


def _gap(of: Callable[[list[float]], float], one: Sequence[float], other: Sequence[float]) -> float:
    """The greatest or mean distance of pairs."""
    return of([abs(a - b) for a, b in zip(one, other, strict=True)])
