"""The runs that the page wants, the commands that give them, and which of them are not there."""

from collections.abc import Mapping
from dataclasses import dataclass

from page.cells import MODELS, listed, table
from page.records import Group

from knifeedge.data.splits import FOLDS

SCRIPT = "python benchmarks/reproduce.py"


@dataclass(frozen=True)
class Wanted:
    """Records of one name: `seeds` of them, and what gives them."""

    what: str
    name: str
    seeds: int
    arguments: str

    def missing(self, groups: Mapping[str, Group]) -> list[int]:
        there = groups[self.name].records if self.name in groups else {}
        return [seed for seed in range(self.seeds) if seed not in there]

    def command(self, seeds: list[int] | None = None) -> str:
        numbers = ",".join(map(str, range(self.seeds) if seeds is None else seeds))
        return f"{SCRIPT} {self.arguments} --seeds {numbers}"


def _plain(data: str, model: str, seeds: int, epochs: int | None = None) -> Wanted:
    name, given = f"{data.lower()}-{model}", "" if epochs is None else f" --epochs {epochs}"
    arguments = f"--data {data} --model {model}{given}"
    return Wanted(f"{MODELS[model]} on {data}", name, seeds, arguments)


# HED on UDED has the paper's 200 epochs. The rest has fewer: time on a GPU is short, and many seeds
# say more than long trainings. Records that are there are of these epochs: a test sees to it.
FOLD_RUNS = tuple(
    Wanted(
        f"cross-validation, HED on UDED, fold {fold}",
        f"uded-hed-fold{fold}",
        3,
        f"--data UDED --model hed --epochs 40 --fold {fold}",
    )
    for fold in range(FOLDS)
)
_SHORT = "--data UDED --model hed --epochs 20"
SHORT = Wanted(
    "HED on UDED, 20 epochs",
    "uded-hed-short",
    5,
    f"{_SHORT} --losses wbce,baa-0.7 --name short",
)
FLOAT32 = Wanted(
    "HED on UDED, 20 epochs in float32",
    "uded-hed-fp32",
    5,
    f"{_SHORT} --losses baa-0.7 --precision 32-true --name fp32",
)
ATTENTION = Wanted(
    "EES3-Double with attention on UDED",
    "uded-ees3-double-attention",
    1,
    "--data UDED --model ees3-double --epochs 10 --losses baa-0.7"
    " --model-options '{\"attention\": true}' --name attention",
)
ABLATION = Wanted(
    "ablation, HED on UDED",
    "uded-hed-ablation",
    3,
    f"{_SHORT} --losses ablation --name ablation",
)
_UDED = (
    _plain("UDED", "hed", 8),
    _plain("UDED", "dexined", 3, epochs=25),
    _plain("UDED", "bdcn", 3, epochs=25),
    _plain("UDED", "ees3-double", 1, epochs=10),
)
_BSDS500 = tuple(_plain("BSDS500", model, 1, epochs=8) for model in MODELS)
TABLES = (*_UDED, *_BSDS500)
# The longest first, so that none is left alone at the end; large networks on BSDS500 where time is
# left.
PLANNED = (*reversed(_UDED), ATTENTION, *FOLD_RUNS, FLOAT32, SHORT, ABLATION, *_BSDS500)
ELSEWHERE = tuple(_plain(data, model, 1) for data in ("BRIND", "BIPED2") for model in MODELS)


def not_run(wanted: Wanted) -> str:
    """What a section says where there is nothing to show."""
    return f"Not run. The records come from `{wanted.command()}`."


def missing_section(groups: Mapping[str, Group]) -> str:
    """What is missing, and why."""
    rows = []
    for wanted in PLANNED:
        seeds = wanted.missing(groups)
        if seeds:
            there = f"{wanted.seeds - len(seeds)} of {wanted.seeds}"
            rows.append((wanted.what, there, f"`{wanted.command(seeds)}`"))
    parts = ["## Not run"]
    if rows:
        parts += [
            f"For want of time on a GPU; each command goes on where it was stopped, and `{SCRIPT}"
            " --missing --jobs 6` does all of them, six runs at a time:",
            table(("what", "seeds there", "the command"), rows),
        ]
    away = [wanted for wanted in ELSEWHERE if wanted.missing(groups)]
    if away:
        sets = listed(list(dict.fromkeys(wanted.what.split(" on ")[1] for wanted in away)))
        parts.append(
            f"{sets}: these images have no direct address to fetch them from, and were not at hand"
            " (`knifeedge data download NAME` says where they are). With them,"
            f" `{away[0].command()}` and the like give the rest of the paper's tables."
        )
    if len(parts) == 1:
        parts.append("Nothing of what was planned.")
    return "\n\n".join(parts)
