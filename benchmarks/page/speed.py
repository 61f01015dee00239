"""Speeds from results/gpu.json, beside the author's and those wanted."""

from collections.abc import Mapping
from typing import Any

from page.cells import MODELS, table
from page.tables import Groups

SCRIPT = "python benchmarks/gpu.py"
# Of the loss: called by itself, the host's time counts; in a captured step, the card's alone.
WAYS = {"called": "", "in a captured step": " captured"}
SIZES = {"8x1x320x320": "8 x 320 x 320", "64x1x1024x1024": "64 x 1024 x 1024"}
Numbers = Mapping[str, Any]


def met_goals(measured: Numbers, wanted: Numbers) -> tuple[int, int]:
    """How many of the goals that were measured are met, and how many were measured."""
    pairs = [
        (entry["ms"], wanted["step_ms"][model])
        for model, entry in measured.get("steps", {}).items()
        if model in wanted["step_ms"]
    ]
    pairs += [
        (entry["GB"], wanted["step_gb"][model])
        for model, entry in measured.get("steps", {}).items()
        if model in wanted["step_gb"]
    ]
    for size, entry in measured.get("loss", {}).items():
        pairs += [
            (entry[f"baa{way}"], _loss_goal(size, entry, wanted, way))
            for way in WAYS.values()
            if f"baa{way}" in entry
        ]
    if (seconds := run_seconds(measured)) is not None:
        pairs.append((seconds, wanted["run_seconds"]))
    return sum(value <= goal for value, goal in pairs), len(pairs)


def speed_section(measured: Numbers, reference: Mapping[str, Numbers], groups: Groups) -> str:
    """Steps, the loss, a whole run, prediction."""
    author, wanted = reference["author"], reference["wanted"]
    parts = ["## Speed"]
    if measured:
        parts.append(
            f"On an {measured['device']} with PyTorch {measured['torch']}; the author's program on"
            f" the same kind of card. `{SCRIPT}` measures it. What is wanted was set beforehand, in"
            " `results/reference.json`."
        )
    parts += [_steps(measured, author, wanted), _loss(measured, author, wanted)]
    parts += [_run(measured, author, wanted, groups), _predict(measured)]
    return "\n\n".join(parts)


def run_seconds(measured: Numbers) -> float | None:
    """Seconds from the start of a training to its test score, where that was measured."""
    seconds = measured.get("whole", {}).get("seconds")
    return None if seconds is None else float(seconds)


def _steps(measured: Numbers, author: Numbers, wanted: Numbers) -> str:
    steps, sources = measured.get("steps", {}), (author, wanted)
    rows = []
    for model, theirs in author["step_ms"].items():
        goal, ours, memory, said = wanted["step_ms"][model], "not measured", "", ""
        if model in steps:
            ms = steps[model]["ms"]
            ours, memory = f"{ms:.2f}", f"{steps[model]['GB']:.2f}"
            said = f"{theirs / ms:.1f}; {_met(ms, goal)}"
        others = [f"{e['step_gb'][model]:g}" if model in e["step_gb"] else "" for e in sources]
        rows.append((MODELS[model], f"{theirs:g}", ours, f"{goal:g}", said, memory, *others))
    head = ("model", "the author's, ms", "ours, ms", "wanted, ms", "times as fast; goal")
    return (
        "A training step, batch 8 of 320 x 320, forward, backward and Adam, after warm-up:\n\n"
        + table((*head, "ours, GB", "the author's, GB", "wanted, GB"), rows)
    )


def _loss(measured: Numbers, author: Numbers, wanted: Numbers) -> str:
    found = measured.get("loss", {})
    rows = []
    for size, theirs in author["loss_ms"].items():
        entry = found.get(size, {})
        for title, way in WAYS.items():
            if f"baa{way}" not in entry:
                rows.append((SIZES[size], title, "", "not measured", "", "", "", ""))
                continue
            ours, goal = entry[f"baa{way}"], _loss_goal(size, entry, wanted, way)
            beside = ("", "") if way else (f"{theirs:g}", f"{entry['baa eager']:.3f}")
            times = (f"{ours:.3f}", beside[1], f"{entry[f'bce{way}']:.3f}", f"{goal:.3g}")
            rows.append((SIZES[size], title, beside[0], *times, _met(ours, goal)))
    head = ("size", "", "the author's, ms", "ours, ms", "ours, plain operations in turn, ms")
    head += ("PyTorch's BCE with logits, ms", "wanted, ms", "goal")
    return (
        "BAA-WBCE alone, forward and backward from logits. Called from Python, the host's time "
        "counts, and with it how busy that machine was; a training captures its step, and has the "
        "card's time alone:\n\n" + table(head, rows)
    )


def _run(measured: Numbers, author: Numbers, wanted: Numbers, groups: Groups) -> str:
    seconds = run_seconds(measured)
    theirs, goal = author["run_seconds"], wanted["run_seconds"]
    text = (
        "A whole run, HED on UDED, 200 epochs, from the start to the test score: "
        f"the author's program about {theirs:g} s with two runs sharing the card; wanted are"
        f" {goal:g} s; "
    )
    if seconds is not None:
        return (
            f"{text}ours {seconds:.0f} s in a new process with nothing compiled,"
            f" {_met(seconds, goal)}."
        )
    text += f"ours was not measured as a whole (`{SCRIPT} --parts whole`)."
    if "uded-hed" in groups:
        times = [
            entry["seconds"]
            for record in groups["uded-hed"].records.values()
            for entry in record["losses"]
        ]
        text += (
            f" The trainings of the records above took {min(times):.0f} to {max(times):.0f} s,"
            " several of them sharing the card."
        )
    return text


def _predict(measured: Numbers) -> str:
    speeds = measured.get("predict")
    if not speeds:
        return f"Prediction: not measured (`{SCRIPT} --parts predict`)."
    slow = speeds["one tile at a time"]
    rows = [(name, f"{speed:.1f}", f"{speed / slow:.2f}") for name, speed in speeds.items()]
    return "HED over 321 x 481 pictures, tiled, from files to files:\n\n" + table(
        ("", "pictures a second", "times one tile at a time"), rows
    )


def _loss_goal(size: str, entry: Numbers, wanted: Numbers, way: str) -> float:
    """The time wanted; where none is given, that of the plain loss beside it."""
    return float(wanted["loss_ms"].get(size, entry[f"bce{way}"]))


def _met(value: float, goal: float) -> str:
    return "met" if value <= goal else f"missed, {value / goal:.2f} times the time wanted"
