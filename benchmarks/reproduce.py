"""The paper's tables on real data: protocol runs, seed by seed, kept as small files in results/.

    python benchmarks/reproduce.py --data UDED --model hed --seeds 0,1,2 [--epochs 200]

Each seed is one run of the three-step protocol: its losses start from the same weights and see the
same samples in the same order, so that their scores are paired. The record of a seed holds the
configuration, the scores under both of the paper's protocols, and the ODS after the author's
stretching of each map to its own range. A run that was stopped goes on when the same command is
given again.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from knifeedge.config import DataConfig, ModelConfig, ProtocolConfig
from knifeedge.data import load_dataset
from knifeedge.disk import write_json
from knifeedge.engine.predict import labels_of
from knifeedge.metrics import evaluate
from knifeedge.protocol import run_protocol
from knifeedge.results import RESULT, ProtocolResult

SCORING = ("paper-strict", "paper-relaxed")


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
        found = evaluate(maps, labels, protocol="paper-strict", scale="stretch")
        scores[entry.loss] = {"ods": found.ods, "ois": found.ois, "threshold": found.threshold}
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="UDED")
    parser.add_argument("--root")
    parser.add_argument("--model", default="hed")
    parser.add_argument("--losses", default="wbce,baa-0.7,baa-sa")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--precision", default="bf16-mixed")
    parser.add_argument("--name", default="", help="a word in the files' names")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    config = ProtocolConfig(
        DataConfig(given.data, root=given.root),
        ModelConfig(given.model),
        epochs=given.epochs,
        precision=given.precision,
        losses=tuple(given.losses.split(",")),
        scoring=SCORING,
    )
    for seed in map(int, given.seeds.split(",")):
        word = "-".join(part for part in (given.data.lower(), given.model, given.name) if part)
        name = f"{word}-{seed}"
        print(f"{name}: begins", flush=True)
        result = run_protocol(
            replace(config, seed=seed),
            given.runs / name,
            accelerator=given.accelerator,
            on_stage=lambda what, number, count: print(f"  [{number}/{count}] {what}", flush=True),
        )
        record = json.loads((given.runs / name / RESULT).read_text())
        record["config"]["data"]["root"] = None  # where it was on that machine
        write_json(given.out / f"{name}.json", record | {"stretched": stretched(result)})
        shown = {e.loss: round(e.scores["paper-strict"].ods, 4) for e in result.losses}
        print(f"{name}: ODS {shown}", flush=True)


if __name__ == "__main__":
    main()
