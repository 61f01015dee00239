"""What a training tells while it runs: callbacks, `log.csv` and TensorBoard."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from knifeedge.config import TrainConfig
from knifeedge.disk import write_atomically

LOG = "log.csv"

_NUMBERS = ("loss", "seconds", "images_per_second")


@dataclass(frozen=True)
class Standing:
    """How a training stands, at most once a second.

    Args:
        step: Steps done, of `steps`.
        steps: Steps of the whole training.
        loss: Mean over the epoch so far.
        images_per_second: Since this process began.
        seconds_left: At that speed.
    """

    step: int
    steps: int
    loss: float
    images_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class EpochRecord:
    """One row of `log.csv`.

    Args:
        epoch: Counted from 1.
        step: Steps done.
        loss: Mean over the epoch.
        seconds: Since the training began, without the time it was interrupted.
        images_per_second: Over the epoch, or what of it this process did.
        validation_ods: Where the epoch ended with a validation.
        validation_threshold: The threshold of that ODS.
        threshold: The one in force, where the loss finds it while training.
    """

    epoch: int
    step: int
    loss: float
    seconds: float
    images_per_second: float
    validation_ods: float | None = None
    validation_threshold: float | None = None
    threshold: float | None = None


class Callback:
    """Base of one's own logging: override what is of interest.

    >>> class Say(Callback):
    ...     def on_epoch(self, record: EpochRecord, losses: Sequence[float]) -> None:
    ...         print(record.epoch, record.loss)
    """

    def on_start(self, config: TrainConfig, folder: Path, step: int, steps: int) -> None:
        """The training begins, or goes on after `step` of its `steps`."""

    def on_progress(self, standing: Standing) -> None:
        """At most once a second, and at the end of each epoch."""

    def on_epoch(self, record: EpochRecord, losses: Sequence[float]) -> None:
        """An epoch ended; `losses` are those of its steps."""

    def on_end(self, folder: Path) -> None:
        """The weights are written."""

    def on_stop(self, folder: Path) -> None:
        """It stops before its end: interrupted, or by an error."""


class CsvLog(Callback):
    """`log.csv`: one row an epoch. A resumed training drops the rows it does again."""

    _columns = tuple(entry.name for entry in fields(EpochRecord))

    def on_start(self, config: TrainConfig, folder: Path, step: int, steps: int) -> None:
        """See `Callback`."""
        self._path = folder / LOG
        kept = [row for row in read_log(folder) if row.step <= step]
        write_atomically(self._path, self._text([self._columns, *map(self._row, kept)]).encode())

    def on_epoch(self, record: EpochRecord, losses: Sequence[float]) -> None:
        """See `Callback`."""
        with self._path.open("a", newline="") as file:
            file.write(self._text([self._row(record)]))

    def _row(self, record: EpochRecord) -> list[object]:
        return ["" if value is None else value for value in asdict(record).values()]

    def _text(self, rows: Sequence[Sequence[object]]) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        return buffer.getvalue()


def read_log(folder: Path) -> list[EpochRecord]:
    """The rows of a run's `log.csv`; a line that is unfinished or no row is skipped."""
    path = folder / LOG
    if not path.is_file():
        return []
    rows = []
    lines = path.read_text("utf-8", errors="replace").splitlines(keepends=True)
    # A number may be cut short and still be one: a line ends with its line break.
    for row in csv.DictReader(line for line in lines if line.endswith("\n")):
        try:
            whole = {name: int(row.pop(name)) for name in ("epoch", "step")}
            numbers = {name: float(row.pop(name)) for name in _NUMBERS}
            rest = {name: float(value) if value else None for name, value in row.items()}
            rows.append(EpochRecord(**whole, **numbers, **rest))  # type: ignore[arg-type]
        except (TypeError, ValueError, KeyError):
            continue
    return rows


class TensorBoardLog(Callback):
    """The loss of every step, and the validation scores, as TensorBoard events."""

    def on_start(self, config: TrainConfig, folder: Path, step: int, steps: int) -> None:
        """See `Callback`."""
        from torch.utils.tensorboard import SummaryWriter  # takes seconds to import

        # What an earlier process wrote after its last checkpoint is done again: from step + 1 on.
        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def on_epoch(self, record: EpochRecord, losses: Sequence[float]) -> None:
        """See `Callback`."""
        add = self._writer.add_scalar
        for step, loss in enumerate(losses, start=record.step - len(losses) + 1):
            add("loss", loss, step)
        add("images per second", record.images_per_second, record.step)
        if record.validation_ods is not None:
            add("validation ODS", record.validation_ods, record.step)
        if record.threshold is not None:
            add("threshold", record.threshold, record.step)
        self._writer.flush()

    def on_end(self, folder: Path) -> None:
        """See `Callback`."""
        self._writer.close()

    def on_stop(self, folder: Path) -> None:
        """See `Callback`."""
        self._writer.close()
