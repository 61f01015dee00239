"""The losses of a training as it goes: kept on the device, looked at now and then, passed on.

Reading a number from a GPU waits for it. So a step only stores its loss; once a second, and before
anything is saved, all of them are read together and checked.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from knifeedge.config import TrainConfig
from knifeedge.data.pool import CropPool
from knifeedge.engine.checkpoint import CHECKPOINT, Progress
from knifeedge.engine.logs import Callback, EpochRecord, Standing
from knifeedge.errors import KnifeEdgeError

LOOK_SECONDS = 1.0


class NonFiniteError(KnifeEdgeError):
    """A loss that is no number any more; a checkpoint, where there is one, is from before it."""


def after_nonfinite(folder: Path) -> str:
    """What can be done then: the same steps come to the same end.

    >>> after_nonfinite(Path("runs/a"))
    'train anew in another folder (--out), with a lower learning rate; no checkpoint was saved'
    """
    saved = (folder / CHECKPOINT).is_file()
    kept = f"{CHECKPOINT} is from before it" if saved else "no checkpoint was saved"
    return f"train anew in another folder (--out), with a lower learning rate; {kept}"


class Journal:
    """Losses, times and who wants to hear of them.

    Args:
        config: Of the training.
        folder: Of the training.
        pool: What it trains on.
        names: Of the images in the pool.
        done: Where the training goes on.
        callbacks: Who hears of it.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: Path,
        pool: CropPool,
        names: Sequence[str],
        done: Progress,
        callbacks: Sequence[Callback],
    ) -> None:
        self.steps = pool.steps * (config.epochs or 0)
        self.step = done.step
        self._in_epoch, self._folder = pool.steps, folder
        self._pool, self._names, self._callbacks = pool, names, callbacks
        self._before, self._began = done.seconds, time.perf_counter()
        self._first = self._epoch_first = done.step
        self._epoch_began = self._looked = self._began
        self._losses = torch.zeros(pool.steps, dtype=torch.float64, device=pool.device)
        self._losses[: len(done.losses)] = torch.tensor(done.losses, dtype=torch.float64)
        for callback in callbacks:
            callback.on_start(config, folder, self.step, self.steps)

    @property
    def seconds(self) -> float:
        """Time of the training, without that when it was interrupted."""
        return self._before + time.perf_counter() - self._began

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.step // self._in_epoch

    @property
    def epoch_is_over(self) -> bool:
        """Whether the last step was the last of its epoch."""
        return self.step % self._in_epoch == 0

    def add(self, loss: Tensor) -> None:
        """One more step."""
        self._losses[self.step % self._in_epoch] = loss.detach()
        self.step += 1

    def time_to_look(self) -> bool:
        """Whether a second has passed since the last look."""
        return time.perf_counter() - self._looked >= LOOK_SECONDS

    def look(self) -> list[float]:
        """The losses of the epoch under way, or just over; tells how the training stands.

        Raises:
            NonFiniteError: One of them is no number.
        """
        count = (self.step - 1) % self._in_epoch + 1 if self.step else 0
        losses: list[float] = self._losses[:count].tolist()
        self._looked = time.perf_counter()
        for number, loss in enumerate(losses, start=self.step - count):
            if not abs(loss) < float("inf"):
                raise NonFiniteError(
                    f"the loss of step {number + 1} is {loss}, with the images"
                    f" {', '.join(self._images(number))}; look at these, or"
                    f" {after_nonfinite(self._folder)}"
                )
        speed = (self.step - self._first) / max(self._looked - self._began, 1e-9)
        standing = Standing(
            step=self.step,
            steps=self.steps,
            loss=sum(losses) / max(count, 1),
            images_per_second=speed * len(self._pool) / self._in_epoch,
            seconds_left=(self.steps - self.step) / max(speed, 1e-9),
        )
        for callback in self._callbacks:
            callback.on_progress(standing)
        return losses

    def end_epoch(
        self,
        losses: list[float],
        validation: tuple[float, float] | None,
        threshold: float | None = None,
    ) -> None:
        """An epoch is over: one more row in the log."""
        now = time.perf_counter()
        share = (self.step - self._epoch_first) / self._in_epoch
        record = EpochRecord(
            epoch=self.epoch,
            step=self.step,
            loss=sum(losses) / len(losses),
            seconds=self.seconds,
            images_per_second=share * len(self._pool) / max(now - self._epoch_began, 1e-9),
            validation_ods=validation[0] if validation else None,
            validation_threshold=validation[1] if validation else None,
            threshold=threshold,
        )
        self._epoch_began, self._epoch_first = now, self.step
        for callback in self._callbacks:
            callback.on_epoch(record, losses)

    def _images(self, step: int) -> list[str]:
        """The images of a step, each once."""
        plan, (epoch, part) = self._pool.plan, divmod(step, self._in_epoch)
        pieces = plan.crops(epoch, plan.batch(epoch, part)).piece
        return list(dict.fromkeys(self._names[plan.pieces[piece][0]] for piece in pieces))

    def progress(self) -> Progress:
        """What a checkpoint keeps; looks at the losses first."""
        losses = self.look()
        return Progress(self.step, self.seconds, () if self.epoch_is_over else tuple(losses))

    def end(self) -> None:
        """The training is over and its weights are written."""
        for callback in self._callbacks:
            callback.on_end(self._folder)

    def __enter__(self) -> "Journal":
        """While it is entered, whoever listens is told of a training that stops by an exception."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """See `__enter__`."""
        if kind is not None:
            for callback in self._callbacks:
                callback.on_stop(self._folder)
