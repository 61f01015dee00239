"""The verb `predict`: edge maps of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from knifeedge.cli.console import progress_bar
from knifeedge.errors import ConfigError


def predict(
    inputs: Annotated[list[str], typer.Argument(help="Pictures, folders, or quoted patterns.")],
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN|FILE", help="A run's folder or a weights file; else those of the package."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the maps go.")] = Path("maps"),
    map_format: Annotated[
        str, typer.Option("--format", metavar="png|png16|npy", help="8 or 16 bits, or float32.")
    ] = "png",
    binary: Annotated[
        bool, typer.Option("--binary", help="Yes or no instead of probabilities.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(help="For --binary; the one calibrated with the weights if not given."),
    ] = None,
    overlay: Annotated[
        bool, typer.Option("--overlay", help="Draw the edges over each picture too.")
    ] = False,
    skip_existing: Annotated[
        bool, typer.Option("--skip-existing", help="Leave out pictures whose map is there.")
    ] = False,
    tile: Annotated[int, typer.Option(min=32, help="Least side of the tiles.")] = 320,
    overlap: Annotated[int, typer.Option(min=0, help="Of the tiles.")] = 32,
    whole: Annotated[
        bool, typer.Option("--whole", help="Without tiles, where memory allows.")
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, help="Tiles at a time; 8 with CUDA, 4 without if not given."),
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="32-true|bf16-mixed", help="Of the network.")
    ] = "32-true",
    model: Annotated[
        str | None, typer.Option(help="Network of weights that do not say which they are of.")
    ] = None,
    accelerator: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="Where to predict.")
    ] = "auto",
) -> None:
    """Write the edge maps of pictures: probabilities, or yes and no.

    Example: [bold]knifeedge predict photo.jpg --overlay[/bold]
    """
    import torch

    from knifeedge.engine.checkpoint import load_model
    from knifeedge.engine.devices import find_device
    from knifeedge.engine.files import predict_files
    from knifeedge.engine.shipped import shipped_weights

    if weights is None:
        if model is not None:
            raise ConfigError(f"--model is for the weights of {model}; give these with --weights")
        weights = shipped_weights()
    device = find_device(accelerator)
    network, info = load_model(weights, model=model, device=device)
    if device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if threshold is not None and not binary:
        raise ConfigError("--threshold is for --binary; give both or neither")
    if binary and threshold is None:
        threshold = info.threshold
        if threshold is None:
            raise ConfigError(
                f"{weights} has no threshold; give --threshold, or find one with"
                f" `knifeedge calibrate {weights}`"
            )
    with progress_bar("predicting") as progress:
        written = predict_files(
            network,
            inputs,
            out,
            map_format=map_format,  # type: ignore[arg-type]  # checked there
            threshold=threshold,
            overlay=overlay,
            skip_existing=skip_existing,
            progress=progress,
            tile=tile,
            overlap=overlap,
            whole=whole,
            batch_size=batch_size,
            precision=precision,
        )
    kind = f"yes and no at {threshold:g}" if threshold is not None else "probabilities"
    print(f"{out}: {len(written)} maps, {kind}")
