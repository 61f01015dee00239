"""The verb `train`: one network, one data set, one loss."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knifeedge.cli import training as options
from knifeedge.errors import ConfigError


def train(
    data: options.Data = None,
    model: options.Model = None,
    loss: Annotated[
        str | None,
        options.option("loss", "wbce, swbce, ebt, bce, focal, baa-0.7, baa(base=..,threshold=..)."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run's folder.", show_default="runs/..."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Go on with the run there, by its own configuration."),
    ] = None,
    config: options.ConfigFile = None,
    root: options.Root = None,
    split: options.Split = None,
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
) -> None:
    """Train a network; the defaults are the paper's.

    Example: [bold]knifeedge train --data UDED --model hed --loss baa-0.7[/bold]
    """
    given = dict(locals())
    from knifeedge.config import TrainConfig
    from knifeedge.engine import resume_run, train as run_training
    from knifeedge.engine.devices import rank

    bar = options.training_bar()
    machine = {name: given.pop(name) for name in ("accelerator", "devices", "nodes")}
    if given.pop("resume") is not None:
        if any(value is not None for value in given.values()):
            raise ConfigError(
                f"--resume goes on with the configuration in {resume}; leave out the other options"
            )
        run = resume_run(resume, callbacks=[bar], **machine)  # type: ignore[arg-type]
    else:
        chosen = options.build(TrainConfig, config, given)
        run = run_training(chosen, out, callbacks=[bar], **machine)
    if rank() > 0:
        return
    last = f"{run.log[-1].step} steps, loss {run.log[-1].loss:.4f}" if run.log else "no log"
    print(f"{run.folder / 'model.safetensors'}: {last}")
