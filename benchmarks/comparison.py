"""Which loss to take: docs/comparison.md, from the records in results/.

    python benchmarks/comparison.py --collect runs/comparison    # keep the runs of an experiment
    python benchmarks/comparison.py                              # write the page
    python benchmarks/comparison.py --check                      # exit 1 if it is not up to date

`knifeedge experiment comparison` and `comparison-uded` give the runs on edges,
`benchmarks/tasks.py` the two other tasks, and `benchmarks/reproduce.py --losses baa-online --name
online` those of HED.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from page.cells import flow
from page.choice import (
    READING,
    TASKS,
    adjuster_section,
    choice_section,
    read_tasks,
    summary,
    task_section,
)
from page.online import online_section
from page.records import RESULTS, read_groups

from knifeedge.disk import write_atomically, write_json
from knifeedge.results import RESULT

PAGE = RESULTS.parent / "docs" / "comparison.md"
INTRODUCTION = """\
# Which loss

What to take where a yes or no is wanted: the adjusted losses beside what one would otherwise pick,
each with the same network, the same samples and the same settings, over several seeds. Nothing is
tuned for a loss: all have their defaults, but soft F1 a steeper slope, since with its own it is
Dice."""
ADVICE = """\
## When to use which

Written by hand from the tables below; read it again when they change.

- **Calibrate.** Where a threshold is calibrated on images kept back, as it should be, start with
WBCE. Around it the adjuster is told apart from it in none of the four tasks, in either direction;
on photographs, both with `tiny` here and with HED, the mean F of BAA-0.7 and of BAA-Online is
higher and their seeds differ less, and with `tiny` the best F of BAA-0.7 is told apart, higher. On
images that costs next to nothing, so take BAA-0.7 for edges, and look at more than one seed.
- **No images to keep back, or no second training:** BAA-Online. It brings its threshold out of the
one training. With HED its F at that threshold differs by 0.004 between seeds, where WBCE's at a
calibrated one differs by 0.03.
- **BAA-SA** is not told apart from WBCE either, and takes two trainings: for reproducing the paper.
- **The best order, and a threshold afterwards:** `ap` has the highest mean in the table and on the
curves, told apart from WBCE, and on photographs, where it is not. It sorts all pixels of a batch,
which costs time, and has no threshold of its own: at 0.5 it is worse than WBCE in two tasks, and
better in none.
- **The threshold must stay 0.5, and training is long:** soft F1 with a steep slope, or the
score-oriented loss: better than WBCE at 0.5 in three tasks. On photographs, after 264 steps, they
and Dice, AnyLoss and Heaviside F1 are far behind: sums over the whole batch learn slowly. There
WBCE or BAA-0.7 are the ones to cut at 0.5.
- **Tversky** leads on made-up scenes and trails in the table and on the curves: worth a trial of
its own, no default.
- **SWBCE and EBT:** the adjuster with an online threshold lifts SWBCE in the table and on the
curves; elsewhere it is not told apart. Calibrated, none of them is better than WBCE.
- **Not for rare positives:** plain BCE and the focal loss, worse than WBCE in all four tasks. On
edges, not the Lovász hinge, which does well in the table alone."""


def collect(experiment: Path, results: Path) -> None:
    """Keep the finished runs of an experiment as comparison-DATA-SEED.json."""
    found = sorted(experiment.glob(f"runs/*/{RESULT}"))
    if not found:
        raise SystemExit(f"there is no finished run in {experiment}")
    for path in found:
        record = json.loads(path.read_text())
        data, seed = record["config"]["data"], record["config"]["seed"]
        data["root"] = None  # where it was on that machine
        write_json(results / f"comparison-{data['name'].lower()}-{seed}.json", record)


def make_page(results: Path = RESULTS) -> str:
    """The text of the page."""
    groups, tasks = read_groups(results.glob("*.json")), read_tasks(results)
    sections = [task_section(task) for task in tasks]
    parts = [
        flow(INTRODUCTION),
        summary(tasks),
        flow(ADVICE) if len(tasks) == TASKS else "",
        flow(READING),
        choice_section(tasks),
        adjuster_section(tasks),
        *sections,
        online_section(groups),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collect", type=Path, metavar="RUNS")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args(arguments)
    if given.collect is not None:
        collect(given.collect, given.results)
    text = make_page(given.results)
    if not given.check:
        write_atomically(given.out, text.encode())
    elif not given.out.is_file() or given.out.read_text() != text:
        raise SystemExit(f"{given.out} is not what the results give; run this without --check")


if __name__ == "__main__":
    main()
