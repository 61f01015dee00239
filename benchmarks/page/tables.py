"""The paper's tables, ours beside: thresholds, three losses by two protocols, stretched maps."""

from collections.abc import Iterator, Mapping
from typing import Any

from page.cells import (
    ABSENT,
    DATA,
    MODELS,
    beside_paper,
    difference_cell,
    listed,
    mean_cell,
    seeds_of,
    table,
    verdict,
)
from page.records import BASELINE, STRICT, Group, Runs, column, compare, spread

from knifeedge.experiments.reading import read_experiment
from knifeedge.experiments.settings import PaperRow

Groups = Mapping[str, Group]
TITLES = {
    STRICT: "Tables 2 and 3: strict scores",
    "paper-relaxed": "Tables 4 and 5: relaxed scores",
}
HEAD = (
    *("loss", "seeds", "ODS", "difference to WBCE", "OIS"),
    *("F at the fixed threshold", "difference to WBCE"),
)
PAPER_HEAD = ("the paper: ODS", "difference", "OIS")


def of_tables(groups: Groups, data: str) -> dict[str, Group]:
    """The groups of one data set that the paper's tables have, by model."""
    named = {model: f"{data.lower()}-{model}" for model in MODELS}
    return {model: groups[name] for model, name in named.items() if name in groups}


def thresholds_section(groups: Groups) -> str:
    """Table 1."""
    paper = read_experiment("table-1")
    rows = []
    for model, label in MODELS.items():
        cells = [label]
        for data in DATA:
            published = paper.published(model, data, BASELINE, STRICT)
            group = of_tables(groups, data).get(model)
            ours = ABSENT if group is None else mean_cell(_calibrated(group), 2)
            seeds = "" if group is None else f", {seeds_of(list(group.records))}"
            theirs = "" if published is None else f"{published.threshold:.2f}"
            cells.append(f"{ours}{seeds}; {theirs}")
        rows.append(cells)
    parts = [
        "## Table 1: thresholds",
        "The best threshold on the validation images after training on the pre-training images"
        " with WBCE, by `paper-strict`: ours, mean (sd) over the seeds; the paper's, one run.",
        table(("model", *DATA), rows),
    ]
    for data in DATA:
        for model, group in of_tables(groups, data).items():
            published = paper.published(model, data, BASELINE, STRICT)
            parts.append(_threshold_words(f"{MODELS[model]} on {data}", group, published))
    return "\n\n".join(filter(None, parts))


def scores_section(groups: Groups, protocol: str) -> str:
    """Tables 2 and 3, or 4 and 5."""
    paper = read_experiment("tables-2-5")
    parts = [f"## {TITLES[protocol]}"]
    for data in DATA:
        found = of_tables(groups, data)
        if not found:
            continue
        rows, words = [], []
        for model, group in found.items():
            published = {
                loss: paper.published(model, data, loss, protocol) for loss in paper.all_losses
            }
            for first, row in enumerate(loss_rows(group.runs, protocol, published)):
                rows.append((MODELS[model] if first == 0 else "", *row))
            words += loss_words(MODELS[model], group.runs, protocol, published)
        head = ("model", *HEAD, *PAPER_HEAD)
        parts += [f"### {data}", table(head, rows), "\n".join(words)]
        parts.append("\n".join(_made_on(MODELS[model], group) for model, group in found.items()))
    away = [data for data in DATA if not of_tables(groups, data)]
    if away:
        parts.append(f"{listed(away)}: [not run](#not-run).")
    return "\n\n".join(parts)


def loss_rows(
    runs: Runs, protocol: str, published: Mapping[str, PaperRow | None]
) -> Iterator[tuple[str, ...]]:
    """A row a loss; the paper's columns only where `published` is not empty."""
    for loss in losses_of(runs, protocol):
        own = {key: column(runs, loss, protocol, key) for key in ("ods", "ois", "f")}
        base = {key: column(runs, BASELINE, protocol, key) for key in own}
        apart = {
            key: "" if loss == BASELINE else difference_cell(compare(own[key], base[key]))
            for key in ("ods", "f")
        }
        row = (loss.upper(), str(len(own["ods"])), mean_cell(own["ods"]), apart["ods"])
        row += (mean_cell(own["ois"]), mean_cell(own["f"]), apart["f"])
        yield (*row, *_paper_cells(loss, published)) if published else row


def loss_words(
    what: str, runs: Runs, protocol: str, published: Mapping[str, PaperRow | None]
) -> list[str]:
    """A list entry a loss: what its intervals show."""
    words = []
    base = {key: column(runs, BASELINE, protocol, key) for key in ("ods", "f")}
    for loss in losses_of(runs, protocol):
        if loss == BASELINE:
            continue
        ods = compare(column(runs, loss, protocol, "ods"), base["ods"])
        fixed = compare(column(runs, loss, protocol, "f"), base["f"])
        if ods is None or fixed is None:
            continue
        apart = _paper_difference(loss, published)
        said = [f"- {what}, {loss.upper()}. ODS: {verdict(ods)}."]
        said += [] if apart is None else [beside_paper(ods, apart)]
        if fixed.low is not None:
            said.append(f"F at the fixed threshold: {verdict(fixed)}.")
        words.append(" ".join(filter(None, said)))
    single = base["ods"].values()
    apart = [abs(found) for loss in published if (found := _paper_difference(loss, published))]
    if len(single) > 1 and apart and max(single) - min(single) > max(apart):
        words.append(
            f"- {what}: single runs with WBCE reach from {min(single):.3f} to {max(single):.3f}."
            f" One run of each loss, as in the paper's tables, cannot show a difference of"
            f" {max(apart):.3f}."
        )
    return words


def stretch_section(groups: Groups) -> str:
    """Scores of maps that are stretched, as the author does it, beside the raw ones."""
    rows, most = [], 0.0
    for data in DATA:
        for model, group in of_tables(groups, data).items():
            for loss in losses_of(group.runs, STRICT):
                raw = column(group.runs, loss, STRICT, "ods")
                far = stretched(group, loss)
                if far:
                    changes = [far[seed] - raw[seed] for seed in far]
                    most = max(most, *map(abs, changes))
                    cells = (mean_cell(raw), mean_cell(far), f"{sum(changes) / len(far):+.4f}")
                    name = f"{MODELS[model]} on {data}"
                    rows.append((name, loss.upper(), str(len(far)), *cells))
    parts = [
        "## Stretched maps",
        "The author stretches each map to its own minimum and maximum before it is scored; here"
        " probabilities are scored as they are. The same maps both ways, by `paper-strict`:",
    ]
    if not rows:
        return "\n\n".join([*parts, "Not run."])
    head = ("", "loss", "seeds", "ODS, raw", "ODS, stretched", "mean change")
    parts += [table(head, rows), f"The largest change of a single run is {most:.4f}."]
    return "\n\n".join(parts)


def author_section(groups: Groups, author: Mapping[str, Any]) -> str:
    """The author's program on our split, and whether our means reach its."""
    measured = author["uded-hed"]
    rows = [
        (
            f"{entry['loss'].upper()}, {entry['seed']}",
            *(f"{entry['ods']:.4f}", f"{entry['threshold']:.2f}"),
            f"{entry['ois']:.4f} / {entry['ois_mean']:.4f}",
            *(f"{entry['ods_one_pixel']:.4f}", f"{entry['ods_relaxed_without_nms']:.4f}"),
        )
        for entry in measured
    ]
    head = ("loss, seed", "ODS, 0.003", "its threshold", "OIS, summed / mean", "ODS, 1 pixel")
    parts = [
        "## The author's program on our split",
        "HED on UDED, 200 epochs, two seeds, maps stretched, scored by our benchmark:",
        table((*head, "ODS, 0.0075 without NMS"), rows),
    ]
    said = []
    by_loss: dict[str, dict[int, float]] = {}
    for entry in measured:
        by_loss.setdefault(entry["loss"], {})[entry["seed"]] = entry["ods"]
    for loss, values in by_loss.items():
        ours = stretched(groups["uded-hed"], loss) if "uded-hed" in groups else {}
        if ours:
            theirs, mean = spread(values).mean, spread(ours).mean
            place = "at or above" if mean >= theirs else "below"
            said.append(f"{loss.upper()} {mean:.3f}, {place} the author's {theirs:.3f}")
    if said:
        parts.append(f"Our means over the seeds, maps stretched likewise: {'; '.join(said)}.")
    apart = [by_loss["baa-0.7"][seed] - base for seed, base in by_loss[BASELINE].items()]
    parts.append(
        "From WBCE to BAA-0.7 its ODS changes by"
        f" {listed([f'{found:+.3f}' for found in apart])}: a single seed tells little."
    )
    return "\n\n".join(parts)


def stretched(group: Group, loss: str) -> dict[int, float]:
    """ODS of stretched maps by seed, where it was measured."""
    found = {seed: record.get("stretched", {}) for seed, record in group.records.items()}
    return {seed: scores[loss]["ods"] for seed, scores in found.items() if loss in scores}


def losses_of(runs: Runs, protocol: str) -> list[str]:
    """The losses scored by a protocol in any run, the baseline first."""
    names = {loss: None for scores in runs.values() for loss, by in scores if by == protocol}
    return sorted(names, key=lambda loss: loss != BASELINE)


def _calibrated(group: Group) -> dict[int, float]:
    return {
        seed: entry["threshold"]
        for seed, record in group.records.items()
        for entry in record["calibrations"]
        if entry["base"] == BASELINE
    }


def _threshold_words(what: str, group: Group, published: PaperRow | None) -> str:
    values = _calibrated(group).values()
    if len(values) < 2 or published is None or published.threshold is None:
        return ""
    low, high = min(values), max(values)
    inside = "lies within" if low <= published.threshold <= high else "lies outside"
    return (
        f"{what}: {low:.2f} to {high:.2f} over {len(values)} seeds; the paper's"
        f" {published.threshold:.2f} {inside} that range."
    )


def _paper_cells(loss: str, published: Mapping[str, PaperRow | None]) -> tuple[str, ...]:
    row, apart = published.get(loss), _paper_difference(loss, published)
    if row is None:
        return ("", "", "")
    return (f"{row.ods:.3f}", "" if apart is None else f"{apart:+.3f}", f"{row.ois:.3f}")


def _paper_difference(loss: str, published: Mapping[str, PaperRow | None]) -> float | None:
    row, base = published.get(loss), published.get(BASELINE)
    if row is None or base is None or loss == BASELINE or row.ods is None or base.ods is None:
        return None
    return row.ods - base.ods


def _made_on(label: str, group: Group) -> str:
    """A list entry: how the runs of a group were made."""
    images, config = group.first["images"], group.config
    where = listed(sorted({record["device"] for record in group.records.values()}))
    torch = listed(sorted({record["torch"] for record in group.records.values()}))
    precision = {"bf16-mixed": "bfloat16", "32-true": "float32"}[config["precision"]]
    return (
        f"- {label}: {config['epochs']} epochs, {images['train']} images to train and"
        f" {images['test']} to test, {precision}, on {where} with PyTorch {torch}."
    )
