"""The model card docs/weights.md, from the records in results/ and nothing else."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from page.records import FALSE_BORDERS, WITH_FALSE_BORDERS
from shipping.images import SETS, shares
from shipping.scoring import EVERYBODY, HED_LOSS, SHOWN, THREADS, WITHOUT_NMS

WEIGHTS = "src/knifeedge/engine/tiny.safetensors"
RECORD = "results/weights.json"
FOLDS = "results/weights-folds.json"
REFERENCE = "results/reference.json"  # other detectors, entered by hand
CARD = "docs/weights.md"

TITLES = {name: f"`{name}`" for name in SHOWN} | {EVERYBODY: "`bsds`, all annotators"}


def card(
    record: Mapping[str, Any],
    folds: Sequence[Mapping[str, Any]] = (),
    others: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> str:
    """The page, of the weights' record, the settings cross-validated, and other detectors."""
    if "scores" not in record:
        raise ValueError(f"{RECORD} has no scores yet: `python benchmarks/weights.py score card`")
    sections = [_head(record), _data(record), _scores(record), _others(record, others)]
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
is made from `{RECORD}`, `{FOLDS}` and `{REFERENCE}` by `python benchmarks/weights.py`, which \
makes the weights, too.

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
{validated} validation images, by all annotators and averaged over the two sets, is greatest. Each \
set's own best: {own}. Then the network was trained anew on all training images."""


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
annotator, as in the paper, and by all of them, as in the field; of the field's 200 images to test \
on only 40 are among these, and others were trained on: its published scores are no comparison. \
UDED has few test images: a difference of 0.01 there means nothing."""


def _others(record: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [_own("tiny, these weights", record, "tiny", "both")]
    for name, other in others.items():
        cells = [f"{other['parameters']:,}", str(other["trained on"])]
        scores = [f"{other['ods'][key]:.3f}" if key in other["ods"] else "" for key in SHOWN]
        rows.append([name, *cells, *scores, f"{other['seconds']:.2f}"])
    elsewhere = note = ""
    if others:
        elsewhere = (
            f"{' and '.join(others)} have their authors' weights, scored by this benchmark and"
            " timed elsewhere. "
        )
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

{elsewhere}Our times were taken on {record["cpu"]}.{note} Sobel is the gradient of grey values \
smoothed with a Gaussian of 2 pixels, divided by its maximum in each image.

Against Sobel on both sets:

{_against_sobel(record)}"""


def _against_sobel(record: Mapping[str, Any]) -> str:
    tiny, sobel = (record["scores"][key] for key in ("tiny", "sobel"))
    rows, lower = [], {"ods": 0, "ap": 0}
    for name in tiny:
        for protocol in tiny[name]:
            found = tiny[name][protocol], sobel[name][protocol]
            cells = [f"{one[key]:.3f}" for key in ("ods", "ap") for one in found]
            rows.append([name, TITLES[protocol], *cells])
            lower["ods"] += found[0]["ods"] < found[1]["ods"]
            lower["ap"] += found[0]["ap"] < found[1]["ap"]
    columns = ("~ODS, tiny", "~ODS, Sobel", "~AP, tiny", "~AP, Sobel")
    return f"""\
{table(("test images", "protocol", *columns), rows)}

The ODS of the weights is lower than Sobel's in {lower["ods"]} of {len(rows)} rows, their AP in \
{lower["ap"]}: they are for a decision at one threshold, and AP averages over all recalls. \
BSDS500's annotators outlined objects and left out many edges, which both detectors find."""


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
        cells += [f"`{settings['loss']}`", entry["version"]]
        rows.append([*cells, *(f"{value:.3f}" for value in ods)])
    columns = ("steps", "~rate", "~share of UDED", "annotator", "noiseless", "~jitter", "loss")
    before = ""
    if any(entry["version"] == FALSE_BORDERS for entry in folds):
        before = (
            f" Version {FALSE_BORDERS} saw [false edges along two borders](models.md#borders),"
            " which lowered its scores, those of all settings alike."
        )
    return f"""\
## How the setting was chosen

Without the test images, by cross-validation over UDED's training images in four folds; ODS, \
`paper-strict`, of the images that a network has not seen, all folds together. Of BSDS500 it is \
the mean over the networks, on its validation images. The rate is the learning rate's peak; \
jitter, how far light, colours and noise of a picture are changed.{before}

{table((*columns, "version", "~UDED", "~BSDS500"), rows)}"""


def _false_borders(versions: Iterable[str]) -> str:
    """A sentence where scores are of the version that saw edges along two borders."""
    if FALSE_BORDERS not in versions:
        return ""
    return f" {WITH_FALSE_BORDERS}"


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
