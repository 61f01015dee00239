"""How the page puts numbers: cells of tables, and sentences that follow from an interval."""

import re
from collections.abc import Sequence

from page.records import spread

from knifeedge.experiments.table import Difference

ABSENT = "not run"
MODELS = {"hed": "HED", "bdcn": "BDCN", "dexined": "DexiNed", "ees3-double": "EES3-Double"}
DATA = ("BRIND", "BSDS500", "UDED", "BIPED2")


def flow(text: str) -> str:
    """A wrapped text with each paragraph and each list entry on a line of its own."""
    return re.sub(r"(?<!\n)\n(?![\n#-]) *", " ", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def mean_cell(values: dict[int, float], digits: int = 4) -> str:
    """Mean (deviation) over the seeds; one seed has no deviation."""
    if not values:
        return ""
    found = spread(values)
    deviation = "" if found.std is None else f" ({found.std:.{digits}f})"
    return f"{found.mean:.{digits}f}{deviation}"


def difference_cell(found: Difference | None) -> str:
    """Mean ± half the 95 % interval; one pair has no interval."""
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.mean:+.4f}"
    return f"{found.mean:+.4f} ± {(found.high - found.low) / 2:.4f}"


def excludes_zero(found: Difference) -> bool:
    """Whether there is an interval, and 0 is not in it."""
    if found.low is None or found.high is None:
        return False
    return not found.low <= 0 <= found.high


def verdict(found: Difference, than: str = "than with WBCE") -> str:
    """What an interval shows, in words."""
    if found.low is None or found.high is None:
        return "one seed has no interval and shows nothing"
    if found.low > 0:
        return f"the interval lies above 0: with {found.n} seeds it is higher {than}"
    if found.high < 0:
        return f"the interval lies below 0: with {found.n} seeds it is lower {than}"
    return f"the interval contains 0: no effect is shown with {found.n} seeds"


def beside_paper(found: Difference, published: float) -> str:
    """Whether the paper's difference can be told from ours; empty without an interval."""
    if found.low is None or found.high is None:
        return ""
    if not found.low <= published <= found.high:
        return f"The paper's {published:+.3f} lies outside it."
    if excludes_zero(found):
        return f"The paper's {published:+.3f} lies within it, too."
    return f"The paper's {published:+.3f} lies within it as well: it is not refuted either."


def seeds_of(seeds: Sequence[int]) -> str:
    """How many seeds, in words."""
    return "1 seed" if len(seeds) == 1 else f"{len(seeds)} seeds"


def listed(words: Sequence[str]) -> str:
    """Words with commas, and `and` before the last."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
