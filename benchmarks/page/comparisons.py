"""What the paper does not have: cross-validation, precisions, attention; and its ablation."""

from collections.abc import Callable, Mapping

from page.cells import difference_cell, excludes_zero, listed, mean_cell, seeds_of, table, verdict
from page.missing import ABLATION, ATTENTION, FLOAT32, FOLD_RUNS, SHORT, not_run
from page.records import (
    BASELINE,
    RELAXED,
    STRICT,
    Group,
    Runs,
    column,
    compare,
    pooled,
    spread,
)
from page.tables import HEAD, loss_rows, loss_words, losses_of

from knifeedge.experiments.reading import read_experiment
from knifeedge.experiments.table import Difference
from knifeedge.losses.names import parse_loss

Groups = Mapping[str, Group]
Place = tuple[float, float]  # decay, window
DEFAULT: Place = (16.0, 0.2)


def fold_runs(groups: Groups) -> Runs:
    """The scores over the images of all folds, of the seeds that have all of them."""
    folds = [groups[wanted.name] for wanted in FOLD_RUNS if wanted.name in groups]
    return pooled(folds) if len(folds) == len(FOLD_RUNS) else {}


def folds_section(groups: Groups) -> str:
    """Cross-validation, pooled over the folds."""
    parts = [
        "## Cross-validation",
        "Seven test images are few. So the 28 usable images of UDED are shuffled once, by a fixed"
        " seed, and dealt into four folds (`load_dataset(..., fold=K)`): each fold tests once, and"
        " the other 21 images train, 16 of them before calibration and 5 to validate. The counts"
        " of all 28 are then summed, and scored as if one run had tested them. F is that at each"
        " fold's own threshold.",
    ]
    folds = [groups[wanted.name] for wanted in FOLD_RUNS if wanted.name in groups]
    runs = fold_runs(groups)
    if not runs:
        rest = f"and with `--fold 1` to `{len(FOLD_RUNS) - 1}`"
        what = "No seed has all four folds" if folds else "Not run"
        return "\n\n".join(
            [*parts, f"{what}. The records come from `{FOLD_RUNS[0].command()}` {rest}."]
        )
    parts.append(f"{_epochs(folds[0])}:".capitalize())
    for protocol in (STRICT, RELAXED):
        rows = list(loss_rows(runs, protocol, {}))
        words = "\n".join(loss_words("All 28 images", runs, protocol, {}))
        parts += [f"### By `{protocol}`", table(HEAD, rows), words]
    partial = sorted({seed for fold in folds for seed in fold.records} - set(runs))
    if partial:
        parts.append(f"Not all folds were run with seed {listed(list(map(str, partial)))}.")
    return "\n\n".join(parts)


def short_section(groups: Groups) -> str:
    """What a loss gives where there is time for few epochs."""
    parts = [
        "## Short trainings",
        "What the losses give where there is no time for the paper's 200 epochs.",
    ]
    group = groups.get(SHORT.name)
    if group is None:
        return "\n\n".join([*parts, not_run(SHORT)])
    parts.append(f"HED on UDED, {_epochs(group)}:")
    for protocol in (STRICT, RELAXED):
        rows = list(loss_rows(group.runs, protocol, {}))
        words = "\n".join(loss_words("HED", group.runs, protocol, {}))
        parts += [f"### By `{protocol}`", table(HEAD, rows), words]
    return "\n\n".join(parts)


def precision_difference(groups: Groups, protocol: str) -> Difference | None:
    """bfloat16 minus float32, of the mean ODS of the losses, seed by seed."""
    half = _beside(groups, FLOAT32.name)
    if not half:
        return None
    full = groups[FLOAT32.name].runs
    return compare(_mean_ods(half, full, protocol), _mean_ods(full, half, protocol))


def precision_section(groups: Groups) -> str:
    """bfloat16 against float32."""
    parts = ["## bfloat16 against float32"]
    if precision_difference(groups, STRICT) is None:
        return "\n\n".join([*parts, not_run(FLOAT32)])
    half, full = _beside(groups, FLOAT32.name), groups[FLOAT32.name].runs
    parts.append(
        f"HED on UDED, {_epochs(groups[FLOAT32.name])}, the same seeds trained in both; the"
        " difference is bfloat16 minus float32, of the ODS, paired by seed. The last row has each"
        " seed's mean over the losses."
    )
    for protocol in (STRICT, RELAXED):
        rows = []
        for loss in losses_of(full, protocol):
            own = {n: column(runs, loss, protocol, "ods") for n, runs in enumerate((half, full))}
            shared = {n: {s: own[n][s] for s in own[n] if s in own[1 - n]} for n in own}
            cells = (mean_cell(shared[0]), mean_cell(shared[1]))
            found = compare(own[0], own[1])
            rows.append((loss.upper(), str(len(shared[0])), *cells, difference_cell(found)))
        means = (_mean_ods(half, full, protocol), _mean_ods(full, half, protocol))
        found = compare(*means)
        if found is None:
            continue
        cells = (mean_cell(means[0]), mean_cell(means[1]), difference_cell(found))
        rows.append(("mean of the losses", str(found.n), *cells))
        head = (f"`{protocol}`", "seeds", "bfloat16", "float32", "difference")
        parts += [table(head, rows), f"Mean of the losses: {verdict(found, 'than in float32')}."]
    return "\n\n".join(parts)


def attention_section(groups: Groups) -> str:
    """EES3's selector with its attention at work."""
    parts = [
        "## EES3-Double with attention",
        "In the author's runs the selector's transformer layers did not reach the output: the"
        " paper's EES3-Double is the convolutional selector. With `attention=True` they do.",
    ]
    plain, other = (groups.get(name) for name in ("uded-ees3-double", ATTENTION.name))
    if plain is None or other is None or not other.beside(plain):
        return "\n\n".join([*parts, not_run(ATTENTION)])
    both = plain.beside(other), other.beside(plain)
    parts.append(f"{_epochs(other)}:".capitalize())
    rows = []
    for protocol in (STRICT, RELAXED):
        for loss in losses_of(other.runs, protocol):
            values = [column(runs, loss, protocol, "ods") for runs in both]
            found = compare(values[1], values[0])
            cells = (mean_cell(values[0]), mean_cell(values[1]), difference_cell(found))
            rows.append((f"`{protocol}`", loss.upper(), *cells))
    head = ("UDED, ODS", "loss", "convolutional", "with attention", "difference")
    parts.append(table(head, rows))
    if len(both[0]) == 1:
        parts.append("One seed has no interval: nothing is shown by these differences.")
    return "\n\n".join(parts)


def ablation_section(groups: Groups) -> str:
    """Windows and decays."""
    parts = ["## Ablation: window and decay"]
    group = groups.get(ABLATION.name)
    if group is None:
        return "\n\n".join([*parts, not_run(ABLATION)])
    runs = group.runs
    grid = {place: column(runs, loss, STRICT, "ods") for place, loss in _places(runs).items()}
    main = _beside(groups, ABLATION.name)
    base = column(runs, BASELINE, STRICT, "ods") or column(main, BASELINE, STRICT, "ods")
    paper = {
        (settings.decay, settings.window): row.ods or 0.0
        for row in read_experiment("ablation").paper
        if (settings := parse_loss(row.loss).settings) and parse_loss(row.loss).adjuster
    }
    parts += [
        f"HED on UDED at threshold 0.7, {_epochs(group)}, ODS by `paper-strict`,"
        f" {seeds_of(list(runs))}: the mean, and the paired difference to WBCE of the same seeds.",
        _grid(grid, lambda place: f"{mean_cell(grid[place])}; {_apart(grid[place], base)}"),
        "The paper's, EES3-Double on BRIND, one run each:",
        _grid(grid, lambda place: f"{paper[place]:.3f}" if place in paper else ""),
    ]
    means = {place: spread(values).mean for place, values in grid.items()}
    best, worst = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    said = [
        f"The means span {means[best] - means[worst]:.4f}, from decay {worst[0]:g}, window"
        f" {worst[1]:g} to decay {best[0]:g}, window {best[1]:g}."
    ]
    seeds = [max(values.values()) - min(values.values()) for values in grid.values()]
    if len(runs) > 1:
        more = "no more than" if means[best] - means[worst] <= max(seeds) else "more than"
        said.append(
            f"That is {more} the widest span of one setting over its seeds, {max(seeds):.4f}."
        )
    apart = [found for values in grid.values() if (found := compare(values, base)) is not None]
    shown = sum(map(excludes_zero, apart))
    said.append(f"Of {len(apart)} intervals of the difference to WBCE {shown} exclude 0.")
    again = compare(grid.get(DEFAULT, {}), column(main, "baa-0.7", STRICT, "ods"))
    if again is not None:
        said.append(
            f"Decay 16, window 0.2 is BAA-0.7, trained here a second time with the same"
            f" seeds: its mean differs from the first by {again.mean:+.4f}."
        )
    return "\n\n".join([*parts, " ".join(said)])


def _beside(groups: Groups, name: str) -> Runs:
    """HED on UDED in bfloat16, trained for as many epochs as the records of this name."""
    if name not in groups:
        return {}
    found = (groups[key] for key in ("uded-hed", SHORT.name) if key in groups)
    same = (one.beside(groups[name]) for one in found if _epochs(one) == _epochs(groups[name]))
    return next(same, {})


def _epochs(group: Group) -> str:
    return f"{group.config['epochs']} epochs"


def _mean_ods(runs: Runs, others: Runs, protocol: str) -> dict[int, float]:
    """Mean ODS of the losses that both have at a seed."""
    found = {}
    for seed in runs.keys() & others.keys():
        shared = [e for e in runs[seed] if e in others[seed] and e[1] == protocol]
        if shared:
            found[seed] = sum(runs[seed][entry]["ods"] for entry in shared) / len(shared)
    return dict(sorted(found.items()))


def _places(runs: Runs) -> dict[Place, str]:
    """The adjusted losses by decay and window."""
    names = {loss: parse_loss(loss) for loss in losses_of(runs, STRICT)}
    return {
        (name.settings.decay, name.settings.window): loss
        for loss, name in names.items()
        if name.adjuster is not None
    }


def _grid(grid: Mapping[Place, object], cell: Callable[[Place], str]) -> str:
    decays, windows = (sorted({place[n] for place in grid}) for n in (0, 1))
    rows = [
        (
            f"decay {decay:g}",
            *(cell((decay, window)) if (decay, window) in grid else "" for window in windows),
        )
        for decay in decays
    ]
    return table(("", *(f"window {window:g}" for window in windows)), rows)


def _apart(values: dict[int, float], base: dict[int, float]) -> str:
    return difference_cell(compare(values, base)) or "no WBCE of these seeds"
