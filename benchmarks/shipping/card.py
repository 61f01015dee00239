"""The model card docs/weights.md, from the records in results/ and nothing else."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from page.records import FALSE_BORDERS
from shipping.images import SETS, shares
from shipping.scoring import HED_LOSS, SHOWN, THREADS, WITHOUT_NMS

WEIGHTS = "src/knifeedge/engine/tiny.safetensors"
RECORD = "results/weights.json"
FOLDS = "results/weights-folds.json"
CARD = "docs/weights.md"

STRICT, RELAXED, PLAIN = SHOWN
TITLES = {STRICT: "`paper-strict`", RELAXED: "`paper-relaxed`", PLAIN: f"`{WITHOUT_NMS.name}`"}
# Scored by this benchmark on the same images, with the weights of their authors.
OTHERS = {
    "LDC": {
        "parameters": 674_500,
        "trained": "BIPED",
        STRICT: 0.729,
        PLAIN: 0.782,
        "seconds": 0.24,
    },
    "PiDiNet-tiny": {
        **{"parameters": 84_477, "trained": "BSDS500", STRICT: 0.442, PLAIN: 0.535},
        "seconds": 0.53,
    },
}


def card(record: Mapping[str, Any], folds: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page, of the weights' record and of the settings that were cross-validated."""
    if "scores" not in record:
        raise ValueError(f"{RECORD} has no scores yet: `python benchmarks/weights.py score card`")
    sections = [_head(record), _data(record), _scores(record), _others(record)]
    sections += [_choice(folds)] if folds else []
    return "\n\n".join([*sections, _making(record), LICENCE]) + "\n"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Markdown's; `~` before a column's name sets its numbers to the right."""
    names = list(columns)
    rule = ["---:" if name.startswith("~") else "---" for name in names]
    lines = [[name.lstrip("~") for name in names], rule, *rows]
    return "\n".join("".join(f"| {c} " if c else "| " for c in line) + "|" for line in lines)


def _head(record: Mapping[str, Any]) -> str:
    settings = record["settings"]
    facts = {
        "network": f"[`tiny`](models.md), {record['parameters']:,} parameters",
        "file": f"safetensors, {record['bytes'] / 1000:.0f} kB, with the threshold in it",
        "input": "RGB of any size, in tiles; see [predict](predict.md#tiles)",
        "output": "the probability of an edge at each pixel",
        "threshold": f"{record['threshold']:g}, for `--binary`",
        "loss": f"`{settings['loss']}`",
        "training": f"{record['steps']:,} steps of {settings['batch_size']} crops of"
        f" {settings['crop']}, learning rate {settings['learning_rate']:g} falling to 0,"
        f" {settings['precision']}, seed {settings['seed']}; {record['seconds']:.0f} s on"
        f" {record['device']}, torch {record['torch']}",
    }
    return f"""\
# The weights that ship

`knifeedge predict photo.jpg` and `ke.load_model()` use these where no others are named. This page \
is made from `{RECORD}` by `python benchmarks/weights.py`, which makes the weights, too.

{table(("", ""), ([key, value] for key, value in facts.items()))}"""


def _data(record: Mapping[str, Any]) -> str:
    batch = record["settings"]["batch_size"]
    parts = dict(zip(SETS, shares(batch, record["settings"]["share"]), strict=True))
    annotator = _annotator(record["settings"])
    who = "all annotators, merged" if annotator == "all" else f"annotator {annotator}"
    rows = []
    for name, count in record["images"].items():
        labels = who if name == "BSDS500" else "its own"
        rows.append(
            [name, f"{count['train']}", f"{count['test']}", f"{parts[name]} of {batch}", labels]
        )
    own = ", ".join(
        f"{found['threshold']:g} on {name} (F {found['f']:.3f}; {found['f_at']:.3f} at"
        f" {record['threshold']:g})"
        for name, found in record["calibration"].items()
    )
    pretrained, validated = (
        " and ".join(f"{count[split]}" for count in record["images"].values())
        for split in ("pretrain", "validation")
    )
    return f"""\
## Data

{table(("", "~to train", "~to test", "~of a batch", "labels to learn"), rows)}

The splits are those of [data](data.md#data-sets). No picture to test on was trained on: some \
pictures of UDED are BSDS500's, so that all are compared with all, at any size and turn.

The threshold is from a network trained in the same way on {pretrained} images, where F on the \
{validated} validation images, averaged over the two sets, is greatest. Each set's own best: \
{own}. Then the network was trained anew on all training images."""


def _scores(record: Mapping[str, Any]) -> str:
    rows = []
    for name, by_protocol in record["scores"]["tiny"].items():
        for protocol, found in by_protocol.items():
            at = found["at"]
            rows.append(
                [
                    f"{name}, {record['images'][name]['test']} images",
                    TITLES[protocol],
                    f"{found['ods']:.3f}",
                    f"{found['threshold']:.2f}",
                    *(f"{at[key]:.3f}" for key in ("f", "precision", "recall")),
                    f"{found['ois']:.3f}",
                    f"{found['ap']:.3f}",
                ]
            )
    at = f"at {record['threshold']:g}"
    columns = ("test images", "protocol", "~ODS", "~its threshold", f"~F {at}", "~precision")
    return f"""\
## Scores

{table((*columns, "~recall", "~OIS", "~AP"), rows)}

ODS and OIS choose their thresholds on the test images; F, precision and recall are at the stored \
one. `{WITHOUT_NMS.name}` matches within {WITHOUT_NMS.max_dist:g} of the diagonal, thinned, \
without NMS. The maps are tiled, of 8 bits, and not stretched. BSDS500 is judged by its first \
annotator, as in the paper: the field's scores are against all of them. UDED has few test images: \
a difference of 0.01 there means nothing."""


def _others(record: Mapping[str, Any]) -> str:
    rows = [_own("tiny, these weights", record, "tiny", "both")]
    for name, other in OTHERS.items():
        cells = [f"{other['parameters']:,}", str(other["trained"])]
        scores = [f"{other[key]:.3f}" if key in other else "" for key in SHOWN]
        rows.append([name, *cells, *scores, f"{other['seconds']:.2f}"])
    note = ""
    if hed := record["hed"]:
        scores = [f"{hed['ods'][key]:.3f}" if key in hed["ods"] else "" for key in SHOWN]
        rows.append(["HED", f"{hed['parameters']:,}", "UDED", *scores, ""])
        note = (
            f" HED's are the means of {hed['seeds']} seeds with `{HED_LOSS}`, trained on UDED"
            f" alone: [reproduction](reproduction.md).{_false_borders(hed['versions'])}"
        )
    rows.append(_own("Sobel", record, "sobel", ""))
    columns = ("detector", "~parameters", "trained on", *(f"~{TITLES[key]}" for key in SHOWN))
    return f"""\
## Beside others

ODS on the {record["images"]["UDED"]["test"]} test images of UDED, and seconds an image with \
{THREADS} threads of a CPU:

{table((*columns, "~s"), rows)}

LDC's and PiDiNet's are with their authors' weights, scored by this benchmark; their times were \
taken elsewhere, ours on {record["cpu"]}.{note} Sobel is the gradient of grey values \
smoothed with a Gaussian of 2 pixels, divided by its maximum in each image."""


def _own(title: str, record: Mapping[str, Any], key: str, trained: str) -> list[str]:
    scores = record["scores"][key]["UDED"]
    parameters = f"{record['parameters']:,}" if key != "sobel" else "0"
    seconds = f"{record['seconds_an_image'][key]:.2f}"
    return [title, parameters, trained, *(f"{scores[p]['ods']:.3f}" for p in SHOWN), seconds]


def _choice(folds: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for entry in sorted(folds, key=lambda one: -one["UDED"]["ods"] - one["BSDS500"]["ods"]):
        settings = entry["settings"]
        size = f"{settings['steps']:,} of {settings['batch_size']} x {settings['crop']}²"
        cells = [size, *(f"{settings[key]:g}" for key in ("learning_rate", "share"))]
        cells.append(_annotator(settings))
        cells += ["yes" if settings["noiseless"] else "no", f"{settings.get('jitter', 0):g}"]
        ods = (entry[name]["ods"] for name in ("UDED", "BSDS500"))
        rows.append([*cells, f"`{settings['loss']}`", *(f"{value:.3f}" for value in ods)])
    columns = ("steps", "~rate", "~share of UDED", "annotator", "noiseless", "~jitter", "loss")
    before = _false_borders(entry["version"] for entry in folds)
    return f"""\
## How the setting was chosen

Without the test images, by cross-validation over UDED's training images in four folds; ODS, \
`paper-strict`, of the images that a network has not seen, all folds together. Of BSDS500 it is \
the mean over the networks, on its validation images. The rate is the learning rate's peak; \
jitter, how far light, colours and noise of a picture are changed.{before}

{table((*columns, "~UDED", "~BSDS500"), rows)}"""


def _false_borders(versions: Iterable[str]) -> str:
    """A sentence where scores are of the version that saw edges along two borders."""
    if FALSE_BORDERS not in versions:
        return ""
    return (
        f" These scores are of version {FALSE_BORDERS}, which saw [false edges along two"
        " borders](models.md#borders) and so lowered the strict scores."
    )


def _annotator(settings: Mapping[str, Any]) -> str:
    return "all" if settings["annotator"] == "merged" else str(settings["annotator"] + 1)


def _making(record: Mapping[str, Any]) -> str:
    settings = dict(record["settings"])
    if settings["steps"]:
        settings.pop("epochs")
    else:
        settings.pop("steps")
    noiseless = settings.pop("noiseless")
    options = [
        f"--{key.replace('_', '-')} {shlex.quote(str(value))}" for key, value in settings.items()
    ]
    options.append("--noiseless" if noiseless else "--no-noiseless")
    return f"""\
## Making them, and larger ones

```
python benchmarks/weights.py {" ".join(options)}
```

HED, 60 MB, for a GPU: `knifeedge train --data UDED --model hed --loss baa-0.7 --precision \
bf16-mixed --out runs/hed`, then `knifeedge predict photo.jpg --weights runs/hed`. With pictures \
of your own: [your own folder](own-folder.md)."""


LICENCE = """\
## Use

The code is Apache-2.0. The weights were learnt from pictures that are not ours: BSDS500 is given \
for non-commercial research and education, and UDED collects pictures of several data sets, each \
under its own terms. Take the weights as for research; for anything else, train on pictures of \
your own. They find edges in photographs; drawings, scans and medical images were not looked at."""
