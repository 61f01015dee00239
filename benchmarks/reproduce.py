"""The paper's tables on real data: protocol runs, seed by seed, kept as small files in results/.

    python benchmarks/reproduce.py --data UDED --model hed --seeds 0,1,2 [--epochs 200]
    python benchmarks/reproduce.py --data UDED --model hed --fold 0        # of cross-validation
    python benchmarks/reproduce.py --data UDED --model hed --name ablation --losses ablation
    python benchmarks/reproduce.py --data UDED --model ees3-double --name attention
        --model-options '{"attention": true}'
    timeout 500 python benchmarks/reproduce.py --missing --jobs 6   # all that the page still wants
    timeout 500 python benchmarks/reproduce.py --outdated --jobs 6  # what a later version mended

Each seed is one run of the three-step protocol: its losses start from the same weights and see the
same samples in the same order, so that their scores are paired. The record of a seed holds the
configuration, the scores under both of the paper's protocols, and the ODS after the author's
stretching of each map to its own range; that of a fold also the counts that it takes to score the
images of all folds together. Small networks do not fill a card: --jobs has several runs share it,
in turns, or at once where `nvidia-cuda-mps-control -d` was started before.
Runs that were stopped, by Ctrl-C or SIGTERM as `timeout` sends it, go on when the same command is
given again. `python benchmarks/reproduction.py` writes the page of all records.
"""

import argparse
import itertools
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from page.missing import PLANNED, SCRIPT
from page.records import RELAXED, STRICT, counts_record, read_groups, unlike
from PIL import Image

from knifeedge.cli.training import split_commas
from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig
from knifeedge.data import load_dataset
from knifeedge.data.splits import FOLDS
from knifeedge.disk import write_atomically
from knifeedge.engine.predict import labels_of
from knifeedge.engine.signals import Interrupted
from knifeedge.errors import ConfigError, KnifeEdgeError
from knifeedge.experiments.processes import run_in_processes
from knifeedge.metrics import evaluate
from knifeedge.protocol import run_protocol
from knifeedge.results import RESULT, ProtocolResult, config_record

SCORING = (STRICT, RELAXED)
# The paper's windows are 0.1 to 0.7 by 0.1; WBCE has the runs without a name.
ABLATION = tuple(
    f"baa(threshold=0.7,window={window:g},decay={decay})"
    for decay, window in itertools.product((8, 16, 32), (0.1, 0.2, 0.5))
)


def stretched(result: ProtocolResult) -> dict[str, dict[str, float]]:
    """ODS and OIS of each loss where each map is stretched to its own range first."""
    data = result.config.data
    labels = labels_of(load_dataset(data.name, "test", root=data.root, **data.options))
    scores = {}
    for entry in result.losses:
        maps = {}
        for name in labels:
            with Image.open(entry.folder / "predictions" / f"{name}.png") as picture:
                maps[name] = np.asarray(picture, dtype=np.float64) / 255
        found = evaluate(maps, labels, protocol=STRICT, scale="stretch")
        scores[entry.loss] = {"ods": found.ods, "ois": found.ois, "threshold": found.threshold}
    return scores


def record_of(result: ProtocolResult) -> dict[str, Any]:
    """What is kept of a run."""
    record = json.loads((result.folder / RESULT).read_text())
    record["config"]["data"]["root"] = None  # where it was on that machine
    record["stretched"] = stretched(result)
    if "fold" in result.config.data.options:
        record["counts"] = {
            entry.loss: {name: counts_record(scores) for name, scores in entry.scores.items()}
            for entry in result.losses
        }
    return record


def to_text(record: dict[str, Any]) -> str:
    """JSON, indented, with a list of whole numbers on one line."""
    text = json.dumps(record, indent=1, allow_nan=False) + "\n"
    return re.sub(r"\[\s*(\d+(?:,\s*\d+)*)\s*\]", lambda m: f"[{' '.join(m[1].split())}]", text)


def table(text: str) -> dict[str, Any]:
    """Options as JSON."""
    content = json.loads(text)
    if not isinstance(content, dict):
        raise ValueError(text)
    return content


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="UDED")
    parser.add_argument(
        "--root", help="folder of the data set; with --missing or --outdated, of all of them"
    )
    parser.add_argument(
        "--fold", type=int, choices=range(FOLDS), help="of cross-validation over all images"
    )
    parser.add_argument("--model", default="hed")
    parser.add_argument("--model-options", type=table, default={}, metavar="JSON")
    parser.add_argument(
        "--losses", default="wbce,baa-0.7,baa-sa", help="by name, or ablation: windows x decays"
    )
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--name", default="", help="a word in the files' names")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument(
        "--missing", action="store_true", help="what docs/reproduction.md wants and has not got"
    )
    chosen.add_argument(
        "--outdated", action="store_true", help="what it has from a version whose maps were wrong"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args(arguments)
    if given.jobs < 1:
        parser.error(f"--jobs must be at least 1, got {given.jobs}")
    return given


def plan(given: argparse.Namespace) -> dict[str, ProtocolConfig]:
    """The runs by name; a name whose record is of other settings is refused before any begins."""
    fold = {} if given.fold is None else {"fold": given.fold}
    losses = ABLATION if given.losses == "ablation" else split_commas(given.losses)
    config = ProtocolConfig(
        DataConfig(given.data, root=given.root, options=fold),
        ModelConfig(given.model, given.model_options),
        epochs=given.epochs,
        precision=given.precision,
        losses=tuple(losses),
        scoring=SCORING,
    ).resolved()
    words = [given.data.lower(), given.model, given.name, *(f"fold{n}" for n in fold.values())]
    name = "-".join(filter(None, words))
    runs = {f"{name}-{s}": replace(config, seed=s) for s in map(int, given.seeds.split(","))}
    for run, one in runs.items():
        path, settings = given.out / f"{run}.json", config_record(one)
        settings["data"]["root"] = None
        if path.is_file() and (key := unlike(json.loads(path.read_text())["config"], settings)):
            raise ConfigError(f"{path} is a record of another {key}; give a --name of its own")
    return runs


def plan_page(given: argparse.Namespace) -> dict[str, ProtocolConfig]:
    """The runs whose records are not there, or outdated; first those that the page needs most."""
    there, runs = read_groups(given.out.glob("*.json")), {}
    for wanted in PLANNED:
        if seeds := wanted.outdated(there) if given.outdated else wanted.missing(there):
            one = parse(shlex.split(wanted.command(seeds).removeprefix(SCRIPT)))
            one.root, one.out = given.root and str(Path(given.root, one.data)), given.out
            runs |= plan(one)
    return runs


def run(name: str, config: ProtocolConfig, given: argparse.Namespace) -> bool:
    """Do a run and keep its record; False if it failed, which is said."""
    print(f"{name}: begins", flush=True)
    try:
        result = run_protocol(
            config,
            given.runs / name,
            accelerator=given.accelerator,
            on_stage=lambda what, k, count: print(f"{name}: [{k}/{count}] {what}", flush=True),
        )
        write_atomically(given.out / f"{name}.json", to_text(record_of(result)).encode())
    except (KnifeEdgeError, RuntimeError) as error:  # the device's memory may be full
        print(f"error: {name}: {error}", flush=True)
        return False
    shown = {e.loss: round(e.scores[STRICT].ods, 4) for e in result.losses}
    print(f"{name}: ODS {shown}", flush=True)
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    given = parse(arguments)
    ended: list[bool] = []
    try:
        runs = plan_page(given) if given.missing or given.outdated else plan(given)
        if given.jobs == 1:
            ended += [run(name, config, given) for name, config in runs.items()]
        else:
            run_in_processes(
                given.jobs,
                list(runs.items()),
                lambda item: partial(run, *item, given),
                ended.append,
                lambda item: bool(print(f"error: {item[0]}: its process was killed", flush=True)),
            )
    except KnifeEdgeError as error:
        raise SystemExit(f"error: {error}") from None
    except Interrupted as stop:
        print(stop if given.jobs == 1 else f"{stop}; the same command goes on", flush=True)
        raise SystemExit(128 + stop.number) from None
    if not all(ended):
        raise SystemExit(f"error: {ended.count(False)} of {len(runs)} runs failed, as said above")


if __name__ == "__main__":
    main()
