"""The verb `demo`: the whole way, from images to a table, on what comes with the package."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the picture goes.")
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the network and of the crops.")] = 0,
) -> None:
    """Train a small network with two losses on made-up images, and score both exactly.

    Example: [bold]knifeedge demo[/bold]
    """
    from rich.console import Console
    from rich.table import Table

    from knifeedge.demo import PROTOCOL, run

    rows = run(folder, seed=seed, tell=lambda line: print(line, file=sys.stderr, flush=True))
    table = Table(title=f"synthetic scenes, {PROTOCOL}")
    for column in ("loss", "calibrated threshold", "F there", "ODS", "OIS"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for row in rows:
        numbers = (f"{row.threshold:.2f}", f"{row.f:.4f}", f"{row.ods:.4f}", f"{row.ois:.4f}")
        table.add_row(row.loss, *numbers)
    Console().print(table)
    print("The threshold is calibrated on validation scenes, the scores are of test scenes.")
    print("One run with one seed does not tell which loss is better; it shows the way.")
    print(f"image, label and maps: {folder / 'demo.png'}")
