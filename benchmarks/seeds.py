"""What the losses differ by over several seeds: mean, deviation, and the paired 95 % interval.

    python benchmarks/seeds.py                             # results/demo-*.json
    python benchmarks/seeds.py results/uded-hed-*.json     # or other result files

A seed gives every loss the same first weights and the same crops, so that scores are compared seed
by seed. The interval is Student's t: mean ± t(0.975, n-1) s / sqrt(n). ODS is tuned on the test
images; F is that at the threshold fixed without them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from knifeedge.experiments.table import Difference, Spread

RESULTS = Path(__file__).parents[1] / "results"
COLUMNS = ("loss", "ODS", "difference", "F at the fixed threshold", "difference")


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """The records of one configuration, each seed once."""
    if len(paths) < 2:
        raise SystemExit("an interval needs at least two result files")
    records = [json.loads(path.read_text()) for path in paths]
    alike = [{**record["config"], "seed": None} for record in records]
    if any(config != alike[0] for config in alike):
        raise SystemExit("the result files are of different configurations")
    seeds = [record["config"]["seed"] for record in records]
    if len(set(seeds)) < len(seeds):
        raise SystemExit(f"a seed comes twice among {seeds}")
    return records


def values(records: list[dict[str, Any]], protocol: str) -> dict[str, tuple[list[float], ...]]:
    """ODS, and F at the fixed threshold, of each loss, seed by seed."""
    found: dict[str, tuple[list[float], ...]] = {}
    for record in records:
        for entry in record["losses"]:
            scores = entry["scores"][protocol]
            ods, at = found.setdefault(entry["loss"], ([], []))
            ods.append(scores["ods"])
            at.append(scores["at"]["f"])
    return found


def table(records: list[dict[str, Any]], protocol: str) -> list[tuple[str, ...]]:
    """One row a loss; the first is what the others are compared with."""
    found = values(records, protocol)
    base = next(iter(found.values()))
    rows = []
    for loss, numbers in found.items():
        cells = [loss]
        for own, others in zip(numbers, base, strict=True):
            spread = Spread.of(own)
            cells.append(f"{spread.mean:.4f} (sd {spread.std:.4f})")
            difference = Difference.of(own, others)
            half = (difference.high - difference.low) / 2
            cells.append("" if numbers is base else f"{difference.mean:+.4f} ± {half:.4f}")
        rows.append(tuple(cells))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    given = parser.parse_args()
    records = read(sorted(given.files or RESULTS.glob("demo-*.json")))
    for protocol in records[0]["config"]["scoring"]:
        config = records[0]["config"]
        name = f"{config['model']['name']} on {config['data']['name']}"
        print(f"{name}, {protocol}, {len(records)} seeds, {records[0]['images']['test']} images")
        rows = [COLUMNS, *table(records, protocol)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            print("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    main()
