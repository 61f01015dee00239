"""The losses of several tasks beside each other: tables, and what their intervals say."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from page.cells import difference_cell, listed, mean_cell, seeds_of, table
from page.records import BASELINE, STRICT, Group, compare, read_groups, spread

from knifeedge.experiments.table import Difference
from knifeedge.losses.names import parse_loss

Groups = Mapping[str, Group]
Values = dict[int, float]  # by seed

READING = """\
## How to read it

- A user has no test labels. So the first number is F on the test set at a threshold calibrated on
the validation set; then F at 0.5, for those who calibrate nothing; last the best F on the test set
itself (ODS for edges), which benchmarks report and nobody can have.
- A seed gives every loss the same first weights and the same samples: differences to WBCE are taken
seed by seed. `a ± b` is their mean and half its 95 % interval (Student's t). Over many losses, one
interval in twenty excludes 0 by chance.
- Time is that of the training, as a multiple of WBCE's (in the table and the curves with data and
predictions). BAA-SA is counted with the training that finds its threshold. Where the machine had
other work beside there is none."""
HEAD = (
    *("loss", "F, calibrated", "difference to WBCE", "F at 0.5", "difference to WBCE"),
    *("best F", "difference to WBCE", "threshold", "time"),
)
# File of the records, protocol, title, what the task is, and whether the trainings had the machine
# to themselves: where they had not, their times say nothing.
EDGES = (
    (
        "comparison-synthetic",
        "one-pixel",
        "Edges of made-up scenes",
        "`tiny`, 8 epochs, trained on 24 scenes; F with a tolerance of one pixel, after thinning;"
        " `knifeedge experiment comparison`.",
        True,
    ),
    (
        "comparison-uded",
        STRICT,
        "Edges of UDED",
        "`tiny`, 6 epochs of crops of 160, trained on 15 photographs, tested on 7; `paper-strict`;"
        " `knifeedge experiment comparison-uded`.",
        False,
    ),
)
OTHERS = (
    (
        "digits",
        "Rare positives in a table",
        "Is this digit an 8? One row in ten is; twelve pixels of scikit-learn's digits, a small"
        " network; each row judged by itself; `python benchmarks/tasks.py`.",
    ),
    (
        "curves",
        "Thin curves in noise",
        "Circles one pixel thick, about 5 % of the pixels; each pixel judged by itself;"
        " `python benchmarks/tasks.py`.",
    ),
)
TASKS = len(EDGES) + len(OTHERS)


@dataclass(frozen=True)
class Task:
    """What came of the losses in one task: by loss and number (f, half, best, ...), by seed."""

    title: str
    about: str
    losses: Mapping[str, Mapping[str, Values]]
    timed: bool = True

    def apart(self, loss: str, key: str, base: str = BASELINE) -> Difference | None:
        """The difference to a base; none for the base itself, or one that was not run."""
        if loss == base or base not in self.losses:
            return None
        return compare(self.losses[loss][key], self.losses[base][key])

    @property
    def ranked(self) -> list[str]:
        """The losses, best F at the calibrated threshold first; of equals the first by name."""
        return sorted(self.losses, key=lambda loss: (-self.mean(loss, "f"), loss))

    def mean(self, loss: str, key: str) -> float:
        return spread(self.losses[loss][key]).mean


def read_tasks(results: Path) -> list[Task]:
    """The tasks that there are records of."""
    groups, tasks = read_groups(results.glob("comparison-*.json")), []
    for name, protocol, title, about, timed in EDGES:
        if name in groups:
            tasks.append(Task(title, about, _of_group(groups[name], protocol), timed))
    path = results / "tasks.json"
    found = json.loads(path.read_text())["tasks"] if path.is_file() else {}
    for name, title, about in OTHERS:
        if name in found:
            losses = {
                loss: {
                    key: {seed: row[key] for seed, row in enumerate(rows)}
                    for key in ("f", "half", "best", "threshold", "seconds")
                }
                for loss, rows in found[name].items()
            }
            tasks.append(Task(title, about, losses))
    return tasks


def summary(tasks: Sequence[Task]) -> str:
    """A line a task."""
    lines = []
    for task in tasks:
        seeds = seeds_of(list(task.losses[BASELINE]["f"]))
        first = task.ranked[0]
        lines.append(
            f"- {task.title}, {seeds}, F at a calibrated threshold: the highest mean has"
            f" {_name(first)}, {task.mean(first, 'f'):.3f}, and WBCE"
            f" {task.mean(BASELINE, 'f'):.3f}. {_said(task, 'f')}"
        )
    if missing := TASKS - len(tasks):
        lines.append(f"- {missing} of {TASKS} tasks were not run yet.")
    return "\n".join(["## In short", "", *lines])


def choice_section(tasks: Sequence[Task]) -> str:
    """All losses over all tasks: where an interval lies above or below 0."""
    if not tasks:
        return ""
    losses = list(dict.fromkeys(loss for task in tasks for loss in task.losses))
    rows = []
    for loss in losses:
        if loss == BASELINE:
            continue
        own = [task for task in tasks if loss in task.losses]
        cells = [_tally([task.apart(loss, key) for task in own]) for key in ("f", "half", "best")]
        apart = [d.mean for task in own if (d := task.apart(loss, "f")) is not None]
        mean = sum(apart) / len(apart)
        rows.append((mean, (_name(loss), f"{len(own)}", *cells, f"{mean:+.4f}")))
    rows.sort(key=lambda row: (-row[0], row[1]))
    head = ("loss", "tasks", "F, calibrated", "F at 0.5", "best F", "mean difference, calibrated")
    return "\n\n".join(
        [
            "## Over all tasks",
            "In how many tasks a loss is better or worse than WBCE, its interval excluding 0; the"
            " rest is not told apart.",
            table(head, [cells for _, cells in rows]),
        ]
    )


def adjuster_section(tasks: Sequence[Task]) -> str:
    """Each adjusted loss against the loss that it adjusts."""
    losses = list(dict.fromkeys(loss for task in tasks for loss in task.losses))
    adjusted = {loss: parse_loss(loss) for loss in losses if parse_loss(loss).adjuster is not None}
    rows = []
    for loss, name in adjusted.items():
        base = str(name.baseline)
        for key, what in (("f", "F, calibrated"), ("best", "best F")):
            cells = [
                difference_cell(task.apart(loss, key, base)) if loss in task.losses else ""
                for task in tasks
            ]
            rows.append((_name(loss), _name(base), what, *cells))
    if not rows:
        return ""
    return "\n\n".join(
        [
            "## The adjuster against the loss it is around",
            "What the adjuster alone changes, seed by seed:",
            table(("loss", "less", "", *(task.title for task in tasks)), rows),
        ]
    )


def task_section(task: Task) -> str:
    """The table of one task, and what it says."""
    rows, base = [], task.losses[BASELINE]
    for loss in task.ranked:
        own = task.losses[loss]
        cells = []
        for key in ("f", "half", "best"):
            cells += [mean_cell(own[key], 3), difference_cell(task.apart(loss, key))]
        cells.append(f"{task.mean(loss, 'threshold'):.2f}")
        if task.timed:
            needed = [loss, BASELINE] if parse_loss(loss).needs_threshold else [loss]
            seconds = sum(task.mean(each, "seconds") for each in needed)
            cells.append(f"{seconds / task.mean(BASELINE, 'seconds'):.2f}")
        rows.append((_name(loss), *cells))
    said = [f"F at the calibrated threshold: {_said(task, 'f')}"]
    said += [f"F at 0.5: {_said(task, 'half')}", f"Best F: {_said(task, 'best')}"]
    return "\n\n".join(
        [
            f"## {task.title}",
            f"{task.about} {seeds_of(list(base['f'])).capitalize()}; in brackets the standard"
            " deviation over them.",
            table(HEAD if task.timed else HEAD[:-1], rows),
            "\n".join(f"- {line}" for line in said),
        ]
    )


def _of_group(group: Group, protocol: str) -> dict[str, dict[str, Values]]:
    found: dict[str, dict[str, Values]] = {}
    for seed, record in group.records.items():
        for entry in record["losses"]:
            scores = entry["scores"][protocol]
            row = {
                "f": scores["at"]["f"],
                "half": scores["at_half"]["f"],
                "best": scores["ods"],
                "threshold": entry["threshold"],
                "seconds": entry["seconds"],
            }
            for key, value in row.items():
                found.setdefault(entry["loss"], {}).setdefault(key, {})[seed] = value
    return found


def _said(task: Task, key: str) -> str:
    """Which losses are told apart from WBCE."""
    apart = {loss: task.apart(loss, key) for loss in task.ranked}
    above = [_name(loss) for loss, d in apart.items() if d and d.low is not None and d.low > 0]
    below = [_name(loss) for loss, d in apart.items() if d and d.high is not None and d.high < 0]
    if next(iter(task.losses[BASELINE][key]), None) is None or len(task.losses[BASELINE][key]) < 2:
        return "One seed shows nothing."
    return (
        f"Better than WBCE: {listed(above) or 'none'}. Worse: {listed(below) or 'none'}."
        " The others are not told apart from it."
    )


def _tally(apart: Sequence[Difference | None]) -> str:
    better = sum(d is not None and d.low is not None and d.low > 0 for d in apart)
    worse = sum(d is not None and d.high is not None and d.high < 0 for d in apart)
    words = [f"{better} better"] * bool(better) + [f"{worse} worse"] * bool(worse)
    return ", ".join(words) or "none told apart"


def _name(loss: str) -> str:
    """A loss as the page writes it."""
    short = {"baa-0.7": "BAA-0.7", "baa-sa": "BAA-SA", "baa-online": "BAA-Online", "wbce": "WBCE"}
    return short.get(loss, f"`{loss}`")
