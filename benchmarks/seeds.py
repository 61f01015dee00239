"""What the losses differ by over several seeds: mean, deviation, and the paired 95 % interval.

    python benchmarks/seeds.py                             # results/demo-*.json
    python benchmarks/seeds.py results/uded-hed-*.json     # or other result files

A seed gives every loss the same first weights and the same crops, so that scores are compared seed
by seed. The interval is Student's t: mean ± t(0.975, n-1) s / sqrt(n). ODS is tuned on the test
images; F is that at the threshold fixed without them. Files of several names have a table each.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from page.cells import difference_cell
from page.records import RESULTS, Group, Runs, column, compare, read_groups, spread

from knifeedge.errors import KnifeEdgeError

COLUMNS = ("loss", "ODS", "difference", "F at the fixed threshold", "difference")


def table(runs: Runs, protocol: str) -> list[tuple[str, ...]]:
    """One row a loss; the first is what the others are compared with."""
    losses = dict.fromkeys(
        loss for scores in runs.values() for loss, by in scores if by == protocol
    )
    base, rows = next(iter(losses)), []
    for loss in losses:
        cells = [loss]
        for key in ("ods", "f"):
            own = column(runs, loss, protocol, key)
            found = spread(own)
            cells.append(f"{found.mean:.4f} (sd {found.std or 0:.4f})")
            difference = compare(own, column(runs, base, protocol, key))
            cells.append("" if loss == base else difference_cell(difference))
        rows.append(tuple(cells))
    return rows


def show(group: Group) -> None:
    config, images = group.config, group.first["images"]["test"]
    name = f"{config['model']['name']} on {config['data']['name']}"
    for protocol in config["scoring"]:
        print(f"{name}, {protocol}, {len(group.records)} seeds, {images} images")
        rows = [COLUMNS, *table(group.runs, protocol)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    given = parser.parse_args(arguments)
    try:
        groups = read_groups(given.files or RESULTS.glob("demo-*.json"))
    except KnifeEdgeError as error:
        raise SystemExit(f"error: {error}") from None
    several = [group for group in groups.values() if len(group.records) > 1]
    if not several:
        raise SystemExit("an interval needs at least two result files NAME-SEED.json of one name")
    for group in several:
        show(group)


if __name__ == "__main__":
    main()
