"""The verb `export`: a trained network as a file that other programs run."""

from pathlib import Path
from typing import Annotated

import typer

from knifeedge.errors import ConfigError

_FORMATS = {"onnx": "onnx", "torch-export": "torch"}


def export(
    weights: Annotated[Path, typer.Argument(help="A run's folder, or a weights file.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .onnx or .pt2.")],
    format: Annotated[
        str, typer.Option(metavar="onnx|torch-export", help="What to write.")
    ] = "onnx",
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The network, for a plain state dict.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Compare the file with PyTorch before it is put in place."
        ),
    ] = True,
) -> None:
    """Write a trained network as ONNX, or as a program for torch.export.load.

    It takes pictures of any size, RGB in 0..1, and gives probabilities; the normalisation is
    inside, the calibrated threshold in the metadata.

    Example: [bold]knifeedge export runs/first --out edges.onnx[/bold]
    """
    if format not in _FORMATS:
        raise ConfigError(f"--format must be one of {', '.join(_FORMATS)}, got {format!r}")
    from knifeedge.export import export_model

    chosen = _FORMATS[format]
    export_model(weights, out, format=chosen, model=model, check=check, tell=print)  # type: ignore[arg-type]
    print(f"{out}: {out.stat().st_size / 1e6:.1f} MB")
