"""The runs that the page wants, the commands that give them, and which of them are not there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from page.cells import MODELS, listed, table
from page.records import FALSE_BORDERS, Group

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
        """The seeds without a record."""
        there = groups[self.name].records if self.name in groups else {}
        return [seed for seed in range(self.seeds) if seed not in there]

    def outdated(self, groups: Mapping[str, Group]) -> list[int]:
        """The seeds whose record a later version would write otherwise."""
        return groups[self.name].outdated if self.name in groups else []

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
ONLINE = Wanted(
    "BAA-Online, HED on UDED",
    "uded-hed-online",
    6,
    "--data UDED --model hed --losses baa-online --name online",
)
_UDED = (
    _plain("UDED", "hed", 8),
    _plain("UDED", "dexined", 3, epochs=25),
    _plain("UDED", "bdcn", 3, epochs=25),
    _plain("UDED", "ees3-double", 1, epochs=10),
)
_BSDS500 = tuple(_plain("BSDS500", model, 1, epochs=8) for model in MODELS)
TABLES = (*_UDED, *_BSDS500)
# In the order of their worth; large networks on BSDS500 where time is left.
PLANNED = (
    *(_UDED[0], ONLINE, _BSDS500[0], *_UDED[1:], ATTENTION, *FOLD_RUNS, SHORT, FLOAT32, ABLATION),
    *_BSDS500[1:],
)
ELSEWHERE = tuple(_plain(data, model, 1) for data in ("BRIND", "BIPED2") for model in MODELS)


def not_run(wanted: Wanted) -> str:
    """What a section says where there is nothing to show."""
    return f"Not run. The records come from `{wanted.command()}`."


def missing_section(groups: Mapping[str, Group]) -> str:
    """What is missing, and why."""
    parts = ["## Not run"]
    if rows := _rows(groups, Wanted.missing):
        parts += [
            f"For want of time on a GPU; each command goes on where it was stopped, and `{SCRIPT}"
            " --missing --jobs 6` does all of them, six runs at a time:",
            table(("what", "runs", "the command"), rows),
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
    if rows := _rows(groups, Wanted.outdated):
        parts += [
            "## To be run again",
            f"Records of version {FALSE_BORDERS}, whose maps have [false edges along two"
            f" borders](models.md#borders). `{SCRIPT} --outdated --jobs 6` replaces them:",
            table(("what", "runs", "the command"), rows),
        ]
    return "\n\n".join(parts)


def borders_note(groups: Mapping[str, Group]) -> str:
    """What is wrong with outdated records, if there are any: a list entry."""
    if not any(wanted.outdated(groups) for wanted in PLANNED):
        return ""
    return (
        f"\n- Version {FALSE_BORDERS} saw false edges along the right and lower border of images"
        " that are no multiples of 16 pixels, which all of BSDS500's are, and four of UDED's seven"
        " test images. Its strict scores are somewhat too low, those of all losses alike; its"
        " relaxed ones hardly. [By how much](models.md#borders), and [which they"
        " are](#to-be-run-again)."
    )


def _rows(
    groups: Mapping[str, Group], chosen: Callable[[Wanted, Mapping[str, Group]], list[int]]
) -> list[tuple[str, str, str]]:
    """What is planned and not as it should be: what, how many seeds, the command."""
    found = [(wanted, chosen(wanted, groups)) for wanted in PLANNED]
    return [
        (wanted.what, f"{len(seeds)} of {wanted.seeds}", f"`{wanted.command(seeds)}`")
        for wanted, seeds in found
        if seeds
    ]
