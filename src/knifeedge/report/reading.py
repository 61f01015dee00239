"""Finding runs below a folder, and reading them into `Contents`.

What a folder is shows in its files:

| files | it is |
| --- | --- |
| `table.json`, or protocol folders below `runs/` | an experiment |
| `result.json`, `pretrain-*/`, or `config.json` of the kind "protocol" | a protocol |
| `config.json` or `log.csv` | a training run |

Anything else is searched for such folders. Whatever cannot be read becomes a `Fault`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from knifeedge.errors import DataError
from knifeedge.report.files import (
    entries,
    fraction,
    plain_name,
    read_curve,
    read_log,
    read_record,
    read_scored,
    read_summary,
)
from knifeedge.report.loss_names import folder_of
from knifeedge.report.records import (
    Calibration,
    Contents,
    Experiment,
    Fault,
    Outcome,
    ProtocolRun,
    Record,
    Scored,
    Training,
)

RESULT_FORMAT = "knifeedge-result-1"
EXPERIMENT_FORMAT = "knifeedge-experiment-1"
CONFIG_FORMAT = 1
DEEPEST = 6  # folders below the one that was named
# The summary in result.json is rounded by nobody, so that it must equal the counts' scores.
AGREEMENT = 1e-9

P = ParamSpec("P")
T = TypeVar("T")


def read_runs(paths: Sequence[Path]) -> Contents:
    """Read every run in or below the given folders.

    Args:
        paths: Folders: experiments, protocols, training runs, or folders that hold such.

    Raises:
        DataError: Nothing usable was found.
    """
    contents = Contents()
    for path in paths:
        if not path.is_dir():
            problem = "is no folder" if path.exists() else "does not exist"
            contents.faults.append(Fault(path.name or str(path), "damaged", f"it {problem}"))
            continue
        name = path.name or path.resolve().name
        _Reader(contents).search(path, name, 0)
    if not contents:
        reasons = "; ".join(f"{fault.where}: {fault.reason}" for fault in contents.faults)
        names = ", ".join(map(str, paths)) or "no folder"
        raise DataError(
            f"nothing to report on in {names}"
            + (f" ({reasons})" if reasons else "")
            + "; name the folder of a protocol, an experiment or a training run"
        )
    return contents


class _Reader:
    """Reads folders into contents; a method a kind of folder."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents

    def search(self, folder: Path, name: str, depth: int) -> None:
        """Read what a folder is, or look below it."""
        if (folder / "table.json").exists():
            self.experiment(folder, name)
        elif _is_protocol(folder):
            self.protocol(folder, name)
        elif (folder / "config.json").exists() or (folder / "log.csv").exists():
            self.training(folder, name)
        elif depth < DEEPEST:
            for below in _folders(folder):
                self.search(below, f"{name}/{below.name}", depth + 1)

    def experiment(self, folder: Path, name: str) -> None:
        """Read an experiment's table and the protocols below it."""
        table = self.attempt(name, read_record, folder / "table.json", format=EXPERIMENT_FORMAT)
        if table is not None:

            def listed(key: str) -> list[Any]:
                return self.attempt(name, entries, table, key, "table.json") or []

            records = [row for row in listed("rows") if isinstance(row, dict)]
            title, baseline = str(table.get("title") or name), str(table.get("baseline") or "")
            self.contents.experiments.append(Experiment(name, title, baseline, tuple(records)))
            for failed in listed("failed"):
                if isinstance(failed, dict):
                    reason = str(failed.get("error", "no reason was recorded"))
                    where = f"{name}/{failed.get('run')}"
                    self.contents.faults.append(Fault(where, "failed", reason))
            for run in listed("unfinished"):
                reason = "the experiment has not finished it"
                self.contents.faults.append(Fault(f"{name}/{run}", "unfinished", reason))
        for below in _folders(folder):
            self.search(below, f"{name}/{below.name}", 1)

    def protocol(self, folder: Path, name: str) -> None:
        """Read a protocol: what is finished of it."""
        config = self.attempt(name, read_record, folder / "config.json", format=CONFIG_FORMAT) or {}
        result = None
        if (folder / "result.json").exists():
            result = self.attempt(name, read_record, folder / "result.json", format=RESULT_FORMAT)
            if not config and result and isinstance(result.get("config"), dict):
                config = result["config"]
        else:
            self.fault(name, "unfinished", "result.json, written last, is not there")
        pretraining = [
            (below.name.removeprefix("pretrain-"), below)
            for below in _folders(folder)
            if below.name.startswith("pretrain-")
        ]
        run = ProtocolRun(
            name,
            folder,
            config,
            result,
            tuple(self.outcomes(folder, name, config, result)),
            tuple(self.calibrations(name, pretraining)),
            tuple(
                training
                for base, below in pretraining
                if (training := self.read_training(below, f"{name}/{below.name}")) is not None
            ),
            tuple(self.gallery(folder, name, result)),
        )
        if config or result or run.outcomes:
            self.contents.runs.append(run)

    def training(self, folder: Path, name: str) -> None:
        """Read a training run that stands alone."""
        training = self.read_training(folder, name)
        if training is not None:
            self.contents.trainings.append(training)

    def read_training(self, folder: Path, name: str) -> Training | None:
        """A training run's configuration and log; None where neither can be read."""
        config = self.attempt(name, read_record, folder / "config.json", format=CONFIG_FORMAT)
        log = self.attempt(name, read_log, folder / "log.csv")
        if not (folder / "model.safetensors").exists():
            self.fault(name, "unfinished", "model.safetensors, written last, is not there")
        return None if config is None and log is None else Training(name, config or {}, log)

    def outcomes(
        self, folder: Path, name: str, config: Record, result: Record | None
    ) -> list[Outcome]:
        """What each loss gave, from the result or, while there is none, from the folders."""
        entries: list[object] = []
        if result is not None and isinstance(result.get("losses"), list):
            entries = result["losses"]
        elif isinstance(config.get("losses"), list):
            entries = [{"loss": loss, "run": folder_of(str(loss))} for loss in config["losses"]]
        found = (self.attempt(name, self.outcome, folder, name, entry) for entry in entries)
        return [outcome for outcome in found if outcome is not None]

    def outcome(self, folder: Path, name: str, entry: object) -> Outcome | None:
        """One loss: its scores by protocol, its training run."""
        if not isinstance(entry, dict) or not entry.get("loss"):
            raise DataError("result.json: an entry of losses has no loss")
        loss = str(entry["loss"])
        below = folder / plain_name(entry.get("run") or folder_of(loss), "result.json")
        where = f"{name}/{below.name}"
        if not below.is_dir():
            kind: Literal["damaged", "unfinished"] = (
                "damaged" if "scores" in entry else "unfinished"
            )
            self.fault(where, kind, "the folder is missing")
        summaries = entry.get("scores")
        summaries = summaries if isinstance(summaries, dict) else {}
        files = {path.stem.removeprefix("scores-"): path for path in below.glob("scores-*.json")}
        scored = {}
        for protocol in sorted({*summaries, *files}):
            one = self.scored(where, protocol, summaries.get(protocol), files.get(protocol))
            if one is not None:
                scored[protocol] = one
        threshold = None
        if entry.get("threshold") is not None:
            threshold = fraction(entry, "threshold", f"result.json, {loss}")
        elif scored:
            at = next(iter(scored.values())).at
            threshold = at.threshold if at else None
        training = self.read_training(below, where) if below.is_dir() else None
        return Outcome(
            loss,
            below,
            threshold,
            str(entry.get("threshold_from") or "unknown"),
            training or Training(where, {}, None),
            scored,
        )

    def scored(
        self, where: str, protocol: str, summary: object, path: Path | None
    ) -> Scored | None:
        """One loss under one protocol: the counts' scores, else what result.json kept of them."""
        whole = None if path is None else self.attempt(where, read_scored, path)
        if summary is None:
            return whole
        place = f"result.json, {protocol}"
        short = self.attempt(where, read_summary, summary, place)
        if path is None:
            self.fault(where, "damaged", f"scores-{protocol}.json is missing")
        if whole is None or short is None:
            return whole or short
        for key, value in short.summary.items():
            if abs(value - whole.summary[key]) > AGREEMENT:
                reason = f"{place}: {key} is {value:.6f}, by the counts {whole.summary[key]:.6f}"
                self.fault(where, "damaged", reason)
        return Scored(whole.summary, whole.at or short.at, whole.scores)

    def calibrations(self, name: str, folders: Sequence[tuple[str, Path]]) -> list[Calibration]:
        """The thresholds that were found on validation images."""

        def read(base: str, below: Path) -> Calibration:
            record = read_record(below / "calibration.json")
            threshold, score = (
                fraction(record, key, "calibration.json") for key in ("threshold", "score")
            )
            return Calibration(base, threshold, score, read_curve(record.get("curve")))

        found = (self.attempt(f"{name}/{below.name}", read, base, below) for base, below in folders)
        return [calibration for calibration in found if calibration is not None]

    def gallery(self, folder: Path, name: str, result: Record | None) -> list[str]:
        """The images to look at: those of the result, else those that are there."""
        known = result.get("gallery") if result else None
        if isinstance(known, list):
            checked = (
                self.attempt(name, plain_name, entry, "result.json, gallery") for entry in known
            )
            return [entry for entry in checked if entry is not None]
        found = (folder / "gallery").glob("*.image.png")
        return sorted(path.name.removesuffix(".image.png") for path in found)

    def attempt(
        self, where: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """What `read` gives; an error becomes a fault."""
        try:
            return read(*args, **kwargs)
        except DataError as error:
            kind: Literal["damaged", "unfinished"] = (
                "unfinished" if "no epochs yet" in str(error) else "damaged"
            )
            self.fault(where, kind, str(error))
        except OSError as error:
            self.fault(where, "damaged", f"it cannot be read: {error.strerror}")
        return None

    def fault(self, where: str, kind: Literal["damaged", "unfinished"], reason: str) -> None:
        """Note a fault, once."""
        fault = Fault(where, kind, reason)
        if fault not in self.contents.faults:
            self.contents.faults.append(fault)


def _is_protocol(folder: Path) -> bool:
    if (folder / "result.json").exists() or any(folder.glob("pretrain-*/")):
        return True
    try:
        return read_record(folder / "config.json").get("kind") == "protocol"
    except DataError:
        return False


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir())
    except OSError:
        return []
