"""What the verbs that train share: their options, and how a training is shown."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from knifeedge.config import Config, ProtocolConfig, TrainConfig, from_mapping, read_config
from knifeedge.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Container

    from knifeedge.engine import Callback

LINE_SECONDS = 15  # between lines where there is no terminal

_DEFAULTS = {
    entry.name: entry.default
    for config in (TrainConfig, ProtocolConfig)
    for entry in dataclasses.fields(config)
}


def option(name: str, help_text: str, *flags: str, **more: Any) -> Any:
    """An option whose default is the configuration's, shown from there."""
    return typer.Option(*flags, help=help_text, show_default=str(_DEFAULTS[name]), **more)


Data = Annotated[
    str | None, typer.Option(help="BSDS500, BRIND, UDED, BIPED2, folder or synthetic.")
]
Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Its folder; else $KNIFEEDGE_DATA/NAME, else data/NAME."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option("--data-option", metavar="KEY=VALUE", help="An option of the data set."),
]
Model = Annotated[str | None, typer.Option(help="See `knifeedge models`.")]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model-option", metavar="KEY=VALUE", help="An option of the model."),
]
Split = Annotated[str | None, typer.Option(help="Which of its images.", show_default="train")]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Passes over the samples.", show_default="200 on UDED, 50 elsewhere"),
]
Seed = Annotated[int | None, option("seed", "Of weights, order and crops.", min=0)]
BatchSize = Annotated[int | None, option("batch_size", "Samples a step.", min=1)]
Crop = Annotated[int | None, option("crop", "Side of a training sample.", min=1)]
Refresh = Annotated[int | None, option("refresh", "Epochs that keep the same crops.", min=1)]
Turns = Annotated[
    bool | None, option("turns", "Eight turns and flips of each image.", "--turns/--no-turns")
]
Noiseless = Annotated[
    bool | None, option("noiseless", "Labels as images too.", "--noiseless/--no-noiseless")
]
LearningRate = Annotated[float | None, option("learning_rate", "Of Adam.")]
WeightDecay = Annotated[float | None, option("weight_decay", "Of Adam.")]
PrecisionName = Annotated[
    str | None, option("precision", "Of the network.", metavar="32-true|bf16-mixed")
]
ValidateEvery = Annotated[
    int | None, option("validate_every", "Epochs between validation scores; 0 for none.", min=0)
]
CheckpointSeconds = Annotated[
    float | None, option("checkpoint_seconds", "Time between checkpoints.", min=0)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="TOML or JSON; options given here go before it."),
]
Accelerator = Annotated[str, typer.Option(metavar="auto|cpu|cuda", help="Where to train.")]
Devices = Annotated[int, typer.Option(min=1, help="Devices on each machine.")]
Nodes = Annotated[int, typer.Option(min=1, help="Machines; start them with torchrun.")]


def build(cls: type[Config], config: Path | None, given: dict[str, Any]) -> Config:
    """A configuration: a file's, with what the command line gives instead.

    Args:
        cls: Which configuration.
        config: The file, if any.
        given: All of the verb's arguments; those that are fields and not None are taken. `data`,
            `split`, `root`, `data_option`, `model` and `model_option` go into their tables.
    """

    def change(content: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(content, dict):
            return content  # `from_mapping` refuses it
        for table, inside in _TABLES.items():
            values = {field: given[option] for option, field in inside.items() if given.get(option)}
            before = content.get(table, {})
            options = read_options(table, values, before, given.get(f"{table}_option"))
            merged = merge(before, values, options)
            if isinstance(merged, dict) and "name" not in merged:
                raise ConfigError(f"the {table} is not named; give --{table}")
            content[table] = merged
        fields = {entry.name for entry in dataclasses.fields(cls)} - set(_TABLES)  # type: ignore[arg-type]
        return content | {k: given[k] for k in fields if given.get(k) is not None}

    if config is not None:
        return read_config(cls, config, change)
    return from_mapping(cls, change({}))


_TABLES = {
    "data": {"data": "name", "split": "split", "root": "root"},
    "model": {"model": "name"},
}


def merge(table: dict[str, Any], values: dict[str, Any], options: dict[str, Any]) -> Any:
    """A table with values and options put in; another name does away with the options before."""
    if not isinstance(table, dict) or not isinstance(table.get("options", {}), dict):
        return table  # `from_mapping` refuses it
    before = table.get("options", {}) if values.get("name") in (None, table.get("name")) else {}
    merged = table | {key: str(value) for key, value in values.items()}
    return merged | {"options": {**before, **options}}


def training_bar() -> Callback:
    """Shows a training on stderr: a bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from knifeedge.engine import Callback, Standing

    console = Console(stderr=True)

    class Bar(Callback):
        """One bar a training."""

        def on_start(self, config: TrainConfig, folder: Path, step: int, steps: int) -> None:
            self._name, self._told = folder.name, time.monotonic()
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[about]}"),
                console=console,
                disable=not console.is_terminal,
            )
            self._bar.start()
            self._task = self._bar.add_task(folder.name, total=steps, completed=step, about="")

        def on_progress(self, standing: Standing) -> None:
            left = time.strftime("%H:%M:%S", time.gmtime(standing.seconds_left))
            about = (
                f"loss {standing.loss:.4f}, {standing.images_per_second:.0f} images/s, {left} left"
            )
            self._bar.update(self._task, completed=standing.step, about=about)
            if not console.is_terminal and time.monotonic() - self._told > LINE_SECONDS:
                self._told = time.monotonic()
                where = f"{self._name}: step {standing.step} of {standing.steps}"
                print(f"{where}, {about}", file=sys.stderr, flush=True)

        def on_end(self, folder: Path) -> None:
            self._bar.stop()

        on_stop = on_end

    return Bar()


def split_commas(text: str | None) -> list[str] | None:
    """A list with commas between; those inside brackets belong to an entry.

    >>> split_commas("wbce, baa(threshold=0.6,base=ebt(radius=3))")
    ['wbce', 'baa(threshold=0.6,base=ebt(radius=3))']
    """
    if text is None:
        return None
    entries, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            entries.append("")
        else:
            entries[-1] += character
    return [entry.strip() for entry in entries]


def read_options(
    table: str, values: dict[str, Any], before: Any, entries: list[str] | None
) -> dict[str, Any]:
    """The `--data-option` or `--model-option` of a command line.

    Args:
        table: data or model.
        values: What else the command line says of it.
        before: What is known of it otherwise.
        entries: As they are written.
    """
    if not entries:
        return {}
    name = values.get("name") or (before.get("name") if isinstance(before, dict) else None)
    return pairs(entries, f"--{table}-option", _texts(table, str(name)))


def pairs(entries: list[str], option: str, texts: Container[str] = ()) -> dict[str, Any]:
    """`key=value` options; a value that is JSON or Python's True, False or None is that.

    Any other is a text, and so is every one of `texts`: a folder may be called 2024.

    >>> pairs(["count=4", "invert=False", "images=2024", "annotator=merged"], "", ["images"])
    {'count': 4, 'invert': False, 'images': '2024', 'annotator': 'merged'}
    """
    pairs: dict[str, Any] = {}
    for entry in entries:
        key, equals, text = entry.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} must be KEY=VALUE, got {entry!r}")
        pairs[key] = text
        if key not in texts:
            with contextlib.suppress(ValueError, RecursionError):
                pairs[key] = _PYTHON[text] if text in _PYTHON else json.loads(text)
    return pairs


_PYTHON = {"True": True, "False": False, "None": None}


def _texts(table: str, name: str) -> list[str]:
    """The options of a data set or network that take a path or another text."""
    from knifeedge.data.datasets import data_options, proper_name
    from knifeedge.models import model_entry

    try:
        kinds = data_options(proper_name(name)) if table == "data" else model_entry(name).kinds
    except ConfigError:  # said again, and better, when it is opened
        return []
    return [o for o, kind in kinds.items() if {str, Path} & {kind, *get_args(kind)}]
