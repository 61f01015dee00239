"""Training: configuration, data, model, loop, in this order.

Every step is a function of the weights before it and of (seed, step): samples, crops and what a
model draws at random follow from these numbers alone. So a run that was killed at any moment goes
on from its last checkpoint and, on a CPU, ends with the very weights it would have had.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from knifeedge.config import DataConfig, TrainConfig, check_config, read_config, to_mapping
from knifeedge.data.datasets import load_dataset
from knifeedge.data.plan import CropSettings
from knifeedge.data.pool import CropPool
from knifeedge.data.samples import EdgeSet
from knifeedge.disk import remove_leftovers, write_json
from knifeedge.engine.checkpoint import (
    CHECKPOINT,
    WEIGHTS,
    Progress,
    WeightsInfo,
    build,
    load_checkpoint,
    load_model,
    save_checkpoint,
    save_model,
)
from knifeedge.engine.devices import all_agree, open_fabric, prepare, share
from knifeedge.engine.journal import Journal, NonFiniteError, after_nonfinite
from knifeedge.engine.logs import Callback, CsvLog, EpochRecord, TensorBoardLog, read_log
from knifeedge.engine.run_folder import (
    CONFIG,
    PROTOCOL,
    check_folder,
    check_space,
    default_folder,
    holds_protocol,
)
from knifeedge.engine.signals import Interrupted, StopSignals
from knifeedge.engine.stepping import make_optimiser, make_step
from knifeedge.engine.validate import validate
from knifeedge.errors import ConfigError, DataError
from knifeedge.losses.names import parse_loss
from knifeedge.losses.online import OnlineThreshold
from knifeedge.metrics.protocols import get_protocol
from knifeedge.models.registry import create_model, model_entry
from knifeedge.models.weights import first_few

AGREE_EVERY = 10  # steps; several processes must look at their losses and stop at the same one


@dataclass(frozen=True)
class Run:
    """A finished training.

    Attributes:
        folder: Where its files are.
        config: What was trained.
        log: One record an epoch.
    """

    folder: Path
    config: TrainConfig
    log: tuple[EpochRecord, ...]

    def model(self) -> nn.Module:
        """The trained network, in evaluation mode."""
        return load_model(self.folder)[0]


def train(
    config: TrainConfig,
    folder: str | Path | None = None,
    *,
    resume: bool = False,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Train a network.

    Args:
        config: What to train; see `TrainConfig`.
        folder: Where the run's files go; runs/MODEL-DATA-LOSS-SEED if none is given.
        resume: Go on with the run in the folder, where there is one.
        accelerator: auto, cpu or cuda.
        devices: How many of them on each machine; under torchrun, torchrun's number.
        nodes: How many machines, likewise.
        callbacks: Who is told how it goes; see `Callback`.

    Returns:
        The finished run.

    Raises:
        Interrupted: SIGINT or SIGTERM came; a checkpoint was saved first.
        NonFiniteError: The loss is no number any more.

    >>> import tempfile
    >>> from knifeedge.config import DataConfig, ModelConfig
    >>> data = DataConfig("synthetic", options={"count": 2, "size": 32})
    >>> config = TrainConfig(data, ModelConfig("tiny"), epochs=1, crop=32, loss="baa-0.7")
    >>> run = train(config, tempfile.mkdtemp())
    >>> len(run.log), run.log[0].step
    (1, 4)
    """
    # Configuration
    check_config(config, TrainConfig)
    config = config.resolved()
    loss = parse_loss(config.loss).build()
    get_protocol(config.validation_protocol)  # refuses an unknown one before the first validation
    folder = Path(folder) if folder is not None else default_folder(config)
    fabric = open_fabric(accelerator, devices, nodes, config.precision)
    first = fabric.global_rank == 0
    check_folder(folder, config, resume)
    if (folder / WEIGHTS).is_file():
        if first:  # it may have been killed between its last two acts
            (folder / CHECKPOINT).unlink(missing_ok=True)
        return Run(folder, config, tuple(read_log(folder)))

    with torch.random.fork_rng(devices=[fabric.device] if fabric.device.type == "cuda" else []):
        # Data
        dataset = _open_data(config.data)
        pool = CropPool(dataset, _crop_settings(config), device=fabric.device)
        _check_batch(pool, config, fabric.world_size)
        validation = _validation_set(config, dataset)

        # Model
        torch.manual_seed(config.seed)
        goes_on = (folder / CHECKPOINT).is_file()  # it has all weights, also those to start from
        model = config.model
        network = build(model) if goes_on else create_model(model.name, **model.options)
        _check_frozen(network, config)
        check_space(folder, network)
        network, loss = prepare(fabric, network), loss.to(fabric.device)
        optimiser = make_optimiser(fabric, network, config.learning_rate, config.weight_decay)
        done = Progress()
        if goes_on:
            done = load_checkpoint(folder / CHECKPOINT, network, optimiser, config, loss)
        step = make_step(fabric, network, optimiser, loss)

        # Loop
        if first:
            write_json(folder / CONFIG, to_mapping(config))
            remove_leftovers(folder)
        listeners = [CsvLog(), TensorBoardLog(), *callbacks] if first else []
        journal = Journal(config, folder, pool, dataset.names, done, listeners)
        saved = time.perf_counter()
        with StopSignals() as signals, journal:
            while journal.step < journal.steps:
                epoch, part = divmod(journal.step, pool.steps)
                image, target, mask = share(fabric, pool, epoch, pool.plan.batch(epoch, part))
                torch.manual_seed(_step_seed(config.seed, journal.step, fabric.global_rank))
                journal.add(fabric.all_reduce(step(image, target, mask), reduce_op="mean"))

                if journal.epoch_is_over:
                    losses, scores = journal.look(), None
                    if validation and journal.epoch % config.validate_every == 0:
                        scores = validate(fabric, network, validation, config.validation_protocol)
                    journal.end_epoch(losses, scores, _found_threshold(loss))
                stop, look = signals.received is not None, journal.time_to_look()
                if fabric.world_size > 1:
                    agreed = journal.step % AGREE_EVERY == 0
                    look, stop = agreed, agreed and all_agree(fabric, stop)
                if look:
                    journal.look()
                due = time.perf_counter() - saved >= config.checkpoint_seconds
                if first and (stop or due):
                    done = journal.progress()
                    _check_finite(folder, network, done.step)
                    save_checkpoint(folder / CHECKPOINT, network, optimiser, config, done, loss)
                    saved = time.perf_counter()
                if stop:
                    raise Interrupted(
                        f"stopped after step {journal.step} of {journal.steps} and saved; continue"
                        f" with `knifeedge train --resume {folder}`",
                        signals.received or 0,
                    )
        if first:
            with journal:
                _check_finite(folder, network, journal.step)
                info = WeightsInfo(model, training=to_mapping(config), trained_on=dataset.names)
                if (threshold := _found_threshold(loss)) is not None:
                    info = replace(info, threshold=threshold, calibration={"from": "training"})
                save_model(folder / WEIGHTS, network, info)
                (folder / CHECKPOINT).unlink(missing_ok=True)
            journal.end()
        fabric.barrier()
    return Run(folder, config, tuple(read_log(folder)))


def resume_run(folder: str | Path, **options: object) -> Run:
    """Go on with a run that was interrupted or killed, by its own configuration.

    Args:
        folder: Of the run.
        options: As `train` takes them: accelerator, devices, nodes, callbacks.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} holds no run: there is no {CONFIG} in it")
    if holds_protocol(folder):
        raise ConfigError(f"{folder} holds {PROTOCOL}")
    config = read_config(TrainConfig, folder / CONFIG)
    return train(config, folder, resume=True, **options)  # type: ignore[arg-type]


def _open_data(data: DataConfig) -> EdgeSet:
    dataset = load_dataset(data.name, data.split, root=data.root, **data.options)
    if len(dataset) == 0:
        raise DataError(f"the {data.split} split of {data.name} has no images")
    if data.split == "test":
        warnings.warn(
            f"these are the test images of {data.name}: a network that was trained on them says"
            " nothing by its scores there",
            stacklevel=2,
        )
    return dataset


def _validation_set(config: TrainConfig, trained_on: EdgeSet) -> EdgeSet | None:
    """The images to validate on, none of which may be trained on."""
    if not config.validate_every:
        return None
    if config.validation_split == "test":
        raise ConfigError("validation_split must not be test: a choice made by it would be tuned")
    split = config.validation_split
    images = _open_data(replace(config.data, split=split))
    seen = sorted(set(images.names) & set(trained_on.names))
    if seen:
        raise ConfigError(
            f"{len(seen)} of the {len(images)} images to validate on are trained on, {seen[0]}"
            " among them: train on the split pretrain (--split pretrain), or do not validate"
        )
    return images


def _crop_settings(config: TrainConfig) -> CropSettings:
    return CropSettings(
        crop=config.crop,
        batch_size=config.batch_size,
        seed=config.seed,
        refresh=config.refresh,
        turns=config.turns,
        noiseless=config.noiseless,
    )


def _check_batch(pool: CropPool, config: TrainConfig, processes: int) -> None:
    if config.batch_size > len(pool):
        raise ConfigError(
            f"batch_size must not be larger than the set's {len(pool)} samples, got"
            f" {config.batch_size}; lower it (--batch-size)"
        )
    if config.batch_size < processes:
        raise ConfigError(
            f"batch_size must be at least 1 for each of the {processes} processes, got"
            f" {config.batch_size}; raise it (--batch-size)"
        )
    if not pool.has_edges:
        raise DataError(
            f"no label of {config.data.name}, split {config.data.split}, has an edge: there is"
            " nothing to learn; look at it with `knifeedge data show`"
        )


def _check_frozen(network: nn.Module, config: TrainConfig) -> None:
    """Refuse to train on top of frozen parts with random weights."""
    if all(p.requires_grad for p in network.parameters()):
        return
    name = config.model.name
    missing = [o for o in model_entry(name).weight_options if not config.model.options.get(o)]
    if missing:
        raise ConfigError(
            f"{name} trains on top of frozen networks: give their weights (model options"
            f" {', '.join(missing)}), or let `knifeedge protocol` train them first"
        )


def _check_finite(folder: Path, network: nn.Module, step: int) -> None:
    """Refuse to save weights that are no numbers: a finite loss may have had another gradient."""
    bad = [name for name, value in network.state_dict().items() if not value.isfinite().all()]
    if bad:
        raise NonFiniteError(
            f"the weights {first_few(bad)} are no numbers any more at step {step};"
            f" {after_nonfinite(folder)}"
        )


def _found_threshold(loss: nn.Module) -> float | None:
    """The threshold that the loss has found while training, if it looks for one."""
    threshold = getattr(loss, "threshold", None)
    return round(float(threshold.value), 4) if isinstance(threshold, OnlineThreshold) else None


def _step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for what a model draws at random in a step."""
    return ((seed * 1_000_003 + step) * 4_099 + rank) % 2**63
