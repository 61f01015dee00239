"""The verb `protocol`: the paper's three steps, resumable at any point."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knifeedge.cli import training as options

if TYPE_CHECKING:
    from knifeedge.results import ProtocolResult


def protocol(
    data: options.Data = None,
    model: options.Model = None,
    losses: Annotated[
        str | None,
        options.option("losses", "By name, with commas between.", metavar="wbce,baa-0.7,.."),
    ] = None,
    scoring: Annotated[
        str | None,
        options.option("scoring", "How to score, with commas between.", metavar="paper-strict,.."),
    ] = None,
    retrain: Annotated[
        bool | None,
        options.option(
            "retrain",
            "Train on the validation images too, in a second training.",
            "--retrain/--no-retrain",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where all files go.", show_default="runs/..."),
    ] = None,
    config: options.ConfigFile = None,
    root: options.Root = None,
    epochs: options.Epochs = None,
    seed: options.Seed = None,
    batch_size: options.BatchSize = None,
    crop: options.Crop = None,
    refresh: options.Refresh = None,
    turns: options.Turns = None,
    noiseless: options.Noiseless = None,
    learning_rate: options.LearningRate = None,
    weight_decay: options.WeightDecay = None,
    precision: options.PrecisionName = None,
    validate_every: options.ValidateEvery = None,
    checkpoint_seconds: options.CheckpointSeconds = None,
    data_option: options.DataOption = None,
    model_option: options.ModelOption = None,
    accelerator: options.Accelerator = "auto",
    devices: options.Devices = 1,
    nodes: options.Nodes = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json instead.")] = False,
) -> None:
    """Pre-train and calibrate, retrain with each loss, test; done stages are not done again.

    The same command goes on where it was interrupted or killed.

    Example: [bold]knifeedge protocol --data UDED --model hed --losses wbce,baa-0.7,baa-sa[/bold]
    """
    given = dict(locals())
    from knifeedge.config import ProtocolConfig
    from knifeedge.engine.devices import rank
    from knifeedge.protocol import run_protocol
    from knifeedge.results import RESULT

    for name in ("losses", "scoring"):
        given[name] = options.split_commas(given[name])
    chosen = options.build(ProtocolConfig, config, given)
    named = f"{chosen.model.name}-{chosen.data.name.lower()}-{chosen.seed}"
    folder = out or Path("runs") / named
    result = run_protocol(
        chosen,
        folder,
        accelerator=accelerator,
        devices=devices,
        nodes=nodes,
        callbacks=[options.training_bar()],
        on_stage=tell_stage,
    )
    if rank() > 0:
        return
    if as_json:
        print(json.dumps(json.loads((folder / RESULT).read_text()), indent=1))
        return
    print_result(result)
    print(f"all files: {folder}")


def tell_stage(what: str, number: int, count: int) -> None:
    """A line on stderr when a stage begins."""
    print(f"[{number}/{count}] {what}", file=sys.stderr, flush=True)


def print_result(result: ProtocolResult) -> None:
    """The table of scores, and the thresholds."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    for scoring in result.config.scoring:
        table = Table(
            title=escape(f"{result.config.model.name} on {result.config.data.name}, {scoring}"),
            caption="threshold: fixed without the test images; ODS and OIS are tuned on them",
        )
        table.add_column("loss")
        for column in ("threshold", "F there", "ODS", "OIS", "OIS mean", "AP"):
            table.add_column(column, justify="right")
        for entry in result.losses:
            scores = entry.scores[scoring]
            values = (scores.at(entry.threshold).f, scores.ods, scores.ois, scores.ois_mean)
            cells = (f"{entry.threshold:.2f}", *(f"{v:.4f}" for v in (*values, scores.ap)))
            table.add_row(escape(entry.loss), *cells)
        Console().print(table)
    for base, threshold in result.thresholds.items():
        print(f"threshold of {base}, calibrated on validation images: {threshold:.2f}")
