"""The verb `calibrate`: a threshold for trained weights, from a validation set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from knifeedge.cli import training as options
from knifeedge.cli.console import progress_bar
from knifeedge.errors import ConfigError


def calibrate(
    weights: Annotated[Path, typer.Argument(help="A run's folder or its model.safetensors.")],
    data: options.Data = None,
    split: Annotated[str, typer.Option(help="Which of its images.")] = "validation",
    root: options.Root = None,
    data_option: options.DataOption = None,
    protocol: Annotated[
        str, typer.Option(help="How maps are matched with labels.")
    ] = "paper-strict",
    pixels: Annotated[
        bool, typer.Option("--pixels", help="Judge each pixel by itself instead: fast.")
    ] = False,
    beta: Annotated[
        float, typer.Option(help="With --pixels: how many times recall weighs as precision.")
    ] = 1.0,
    on_test_images: Annotated[
        bool,
        typer.Option("--on-test-images", help="Allow --split test or all; scores are void then."),
    ] = False,
    accelerator: options.Accelerator = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON with the curve.")] = False,
) -> None:
    """Find the threshold that serves best and store it with the weights; predict uses it.

    Without --data it is the validation split of the data set the weights were trained on.

    Example: [bold]knifeedge calibrate runs/pretrained --data UDED[/bold]
    """
    from knifeedge.config import DataConfig, from_mapping
    from knifeedge.engine.calibrate import calibrate_weights
    from knifeedge.engine.checkpoint import read_info
    from knifeedge.engine.devices import find_device

    trained = dict(read_info(weights).training.get("data", {}))
    if data is not None and data.lower() == str(trained.get("name", "")).lower():
        data = None  # the same, in whatever case
    elif data is not None:
        trained = {}
    elif not trained:
        raise ConfigError(f"{weights} does not say what it was trained on; give --data")
    given = {"name": data, "root": root and str(root), "split": split}
    given = {key: value for key, value in given.items() if value}
    read = options.read_options("data", given, trained, data_option)
    table = options.merge(trained, given, read)
    with progress_bar("predicting") as progress:
        found = calibrate_weights(
            weights,
            from_mapping(DataConfig, table),
            protocol=None if pixels else protocol,
            beta=beta,
            on_test_images=on_test_images,
            device=find_device(accelerator),
            progress=progress,
        )
    if as_json:
        print(json.dumps(found.to_dict(), indent=1))
        return
    name = f"pixel F{found.beta:g}" if pixels else f"F by {found.protocol.name}"
    print(f"threshold {found.threshold:.2f}: {name} {found.score:.4f}, stored in {weights}")
    near = [(i + 1) / 100 for i in range(4, 99, 10)]
    print("  ".join(f"{t:.2f}: {found.curve[round(t * 100) - 1]:.3f}" for t in near))
