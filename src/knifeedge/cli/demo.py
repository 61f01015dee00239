"""The verb `demo`: the whole way, from images to a table, on what comes with the package."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    folder: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where all files go.")
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the networks and of the crops.")] = 0,
) -> None:
    """Train a small network with three losses on made-up images, and score them exactly.

    The paper's whole protocol. The same command goes on where it was interrupted.

    Example: [bold]knifeedge demo[/bold]
    """
    from knifeedge.cli.protocol import print_result, tell_stage
    from knifeedge.cli.training import training_bar
    from knifeedge.demo import PICTURE, REPORT, run

    result = run(folder, seed=seed, callbacks=[training_bar()], on_stage=tell_stage)
    print_result(result)
    print(
        "One run proves nothing: another seed moves these scores by more than the losses differ."
        " docs/demo.md has the mean difference over seeds, with its interval."
    )
    print(f"report: {folder / REPORT}")
    print(f"image, label and maps of {', '.join(result.config.losses)}: {folder / PICTURE}")
