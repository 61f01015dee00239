"""The page docs/reproduction.md, from the records in results/ and the paper's numbers.

    python benchmarks/reproduction.py            # writes the page
    python benchmarks/reproduction.py --check    # exits 1 where the page is another

Every number on the page is from a file: the records, results/reference.json, and the paper's tables
in src/knifeedge/experiment_files. So is what it says of them: a sentence on an effect follows from
an interval. Records that are missing are named with the command that gives them.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from page.cells import DATA, MODELS, difference_cell, excludes_zero, flow, listed, verdict
from page.comparisons import (
    ablation_section,
    attention_section,
    fold_runs,
    folds_section,
    precision_difference,
    precision_section,
    short_section,
)
from page.missing import ELSEWHERE, SHORT, TABLES, borders_note, missing_section
from page.records import BASELINE, RELAXED, RESULTS, STRICT, Runs, column, compare, read_groups
from page.speed import met_goals, speed_section
from page.tables import (
    Groups,
    author_section,
    losses_of,
    of_tables,
    scores_section,
    stretch_section,
    thresholds_section,
)

from knifeedge.disk import write_atomically
from knifeedge.errors import KnifeEdgeError
from knifeedge.experiments.table import Difference

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"
INTRODUCTION = """\
# Reproduction

What the method is worth on real data: the paper's tables run again, over several seeds, beside the
paper's single runs. Where a loss makes no difference, this page says so."""
READING = """\
## How to read it

- A seed decides first weights, order and crops, for all losses alike, so that losses are compared
  seed by seed. `a ± b` is the mean of that difference and half its 95 % interval (Student's t); in
  brackets is the standard deviation over the seeds.
- The interval is over seeds. The test images are the same in all of them: it says nothing about
  other images, for which there is the [cross-validation](#cross-validation).
- ODS and OIS choose their threshold on the test images. F at the fixed threshold is what a user
  gets who cannot: BAA-0.7 is cut at 0.7, the others at the threshold calibrated on validation
  images.
- The paper does not say what images it tested on: compare its differences with ours, not its
  levels.
- The records are in `results/`, one file a seed. `python benchmarks/reproduction.py` makes this
  page of them; it is not written by hand. What is done otherwise than in the paper is in
  [departures](deviations.md)."""


def compared(groups: Groups) -> dict[str, Runs]:
    """Everything in which losses are compared with WBCE, by what it is."""
    found = {
        f"{MODELS[model]} on {data}": group.runs
        for data in DATA
        for model, group in of_tables(groups, data).items()
    }
    if SHORT.name in groups:
        found[SHORT.what] = groups[SHORT.name].runs
    return found | {"HED on UDED, all 28 images": fold_runs(groups)}


def differences(groups: Groups, key: str) -> dict[str, Difference]:
    """Every paired difference to WBCE that has an interval, by what it is."""
    found = {}
    for what, runs in compared(groups).items():
        for protocol in (STRICT, RELAXED):
            base = column(runs, BASELINE, protocol, key)
            for loss in losses_of(runs, protocol):
                apart = compare(column(runs, loss, protocol, key), base)
                if loss != BASELINE and apart is not None and apart.low is not None:
                    found[f"{what}, {loss.upper()}, `{protocol}`"] = apart
    return found


def effect(groups: Groups, key: str, name: str) -> str:
    """A list entry: how many intervals exclude 0, and which."""
    apart = differences(groups, key)
    if not apart:
        return f"- {name}: nothing was run with two seeds, so there is no interval."
    shown = [f"{what}: {difference_cell(d)}" for what, d in apart.items() if excludes_zero(d)]
    start = f"- {name}: there are {len(apart)} paired differences to WBCE with an interval."
    if not shown:
        return f"{start} All of them contain 0: no effect of the adjuster is shown."
    exclude = "excludes" if len(shown) == 1 else "exclude"
    return (
        f"{start} {len(shown)} of them {exclude} 0, where {len(apart) / 20:.1f} would by chance:"
        f" {'; '.join(shown)}."
    )


def summary(groups: Groups, speed: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The page in a few lines."""
    lines = [effect(groups, "ods", "ODS"), effect(groups, "f", "F at the fixed threshold")]
    precision = precision_difference(groups, STRICT)
    said = "not run"
    if precision is not None:
        said = f"{difference_cell(precision)}; {verdict(precision, 'in bfloat16')}"
    met, goals = met_goals(speed, wanted)
    there = [entry.what for entry in (*TABLES, *ELSEWHERE) if entry.name in groups]
    pairs = len(MODELS) * len(DATA)
    lines += [
        f"- bfloat16 against float32: {said}.",
        f"- Speed: goals met, {met} of the {goals} that were measured.",
        f"- Of the paper's {pairs} pairs of model and data set there are {len(there)}:"
        f" {listed(there) or 'none'}. The others were [not run](#not-run).",
    ]
    return "\n".join(["## In short", "", *lines])


def make_page(results: Path = RESULTS) -> str:
    """The text of the page."""
    groups = read_groups(results.glob("*.json"))
    reference = json.loads((RESULTS / "reference.json").read_text())
    path = results / "gpu.json"
    speed = json.loads(path.read_text()) if path.is_file() else {}
    parts = [
        flow(INTRODUCTION),
        summary(groups, speed, reference["wanted"]),
        flow(READING) + borders_note(groups),
        thresholds_section(groups),
        scores_section(groups, STRICT),
        scores_section(groups, RELAXED),
        author_section(groups, reference["author"]),
        stretch_section(groups),
        folds_section(groups),
        short_section(groups),
        precision_section(groups),
        attention_section(groups),
        ablation_section(groups),
        speed_section(speed, reference, groups),
        missing_section(groups),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args(arguments)
    try:
        text = make_page(given.results)
        if not given.check:
            write_atomically(given.out, text.encode())
            return
    except KnifeEdgeError as error:
        raise SystemExit(f"error: {error}") from None
    if not given.out.is_file() or given.out.read_text() != text:
        raise SystemExit(f"{given.out} is not what the results give; run this without --check")


if __name__ == "__main__":
    main()
