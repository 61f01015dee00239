"""The verb `evaluate`: score a folder of edge maps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knifeedge.cli.console import progress_bar
from knifeedge.errors import ConfigError

if TYPE_CHECKING:
    from knifeedge.metrics.protocols import Protocol
    from knifeedge.metrics.scores import EdgeScores


def evaluate(
    maps: Annotated[Path, typer.Argument(help="Folder of edge maps: PNG, NPY, NPZ or MAT.")],
    ground_truth: Annotated[
        Path, typer.Argument(help="Folder of ground truths of the same names, PNG or BSDS MAT.")
    ],
    protocol: Annotated[
        str, typer.Option(help="paper-strict, one-pixel, paper-relaxed, bsds or nyud.")
    ] = "paper-strict",
    max_dist: Annotated[
        str | None,
        typer.Option(
            metavar="X|Xpx",
            help="Another tolerance: 0.0075 is a share of the diagonal, 1.5px is pixels.",
        ),
    ] = None,
    thin: Annotated[
        bool | None, typer.Option("--thin/--no-thin", help="Thin the thresholded maps, or not.")
    ] = None,
    nms: Annotated[
        bool | None, typer.Option("--nms/--no-nms", help="Suppress non-maxima first, or not.")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="unit|255|stretch",
            help="Values of arrays are in 0..1, or in 0..255; or stretch each map to 0..1.",
        ),
    ] = "unit",
    annotators: Annotated[
        str, typer.Option(metavar="all|first|merged", help="Which of several annotators.")
    ] = "all",
    label_threshold: Annotated[
        float, typer.Option(help="An edge is above this share of white in the ground truth.")
    ] = 0.5,
    at: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="Report F at this threshold too, one not tuned on these images."
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out what cannot be scored, and list it.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Workers; all cores if not given.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Work on the Dask cluster there.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write scores.json.")] = None,
    benchmark_files: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write eval_bdry.txt and its like.")
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write hits, misses and false alarms, at --at or the ODS threshold."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print scores.json instead of the table.")
    ] = False,
) -> None:
    """Score edge maps against ground truths: ODS, OIS, AP, R50, crispness.

    Example: [bold]knifeedge evaluate maps/ truths/ --protocol bsds --out scores.json[/bold]
    """
    from knifeedge.disk import check_target
    from knifeedge.metrics.evaluate import evaluate as score_folders
    from knifeedge.metrics.kernels import on_compile
    from knifeedge.metrics.outputs import (
        scores_json,
        write_benchmark_files,
        write_scores,
    )
    from knifeedge.metrics.pictures import check_pictures, write_pictures

    on_compile(lambda line: print(f"knifeedge: {line}", file=sys.stderr))
    chosen = _protocol(protocol, max_dist, thin, nms)
    for path, folder in ((out, False), (benchmark_files, True), (pictures, True)):
        if path is not None:
            check_target(path, folder=folder)
    if pictures is not None:
        check_pictures(pictures, maps, ground_truth)
    with progress_bar("scoring") as progress:
        scores = score_folders(
            maps,
            ground_truth,
            protocol=chosen,
            scale=scale,  # type: ignore[arg-type]  # checked there
            annotators=annotators,  # type: ignore[arg-type]
            label_threshold=label_threshold,
            skip_bad=skip_bad,
            jobs=jobs,
            cluster=cluster,
            progress=progress,
        )
    if pictures is not None:
        with progress_bar("drawing") as progress:
            write_pictures(pictures, maps, ground_truth, scores, threshold=at, progress=progress)
    if benchmark_files is not None:
        write_benchmark_files(benchmark_files, scores)
    if out is not None:  # last: where it is there, all the rest is
        write_scores(out, scores, at=at)
    if as_json:
        print(scores_json(scores, at=at), end="")
    else:
        _print_scores(scores, at)


def _protocol(name: str, max_dist: str | None, thin: bool | None, nms: bool | None) -> Protocol:
    """The named protocol with what the command line changes in it."""
    from knifeedge.metrics.protocols import get_protocol

    changes: dict[str, Any] = {"thin": thin, "nms": nms}
    if max_dist is not None:
        number = max_dist.removesuffix("px")
        try:
            changes["max_dist"] = float(number)
        except ValueError:
            raise ConfigError(
                f"--max-dist must be a share of the diagonal such as 0.0075, or pixels such as"
                f" 1.5px, got {max_dist!r}"
            ) from None
        changes["unit"] = "diagonal" if number == max_dist else "pixel"
    given = {key: value for key, value in changes.items() if value is not None}
    return get_protocol(name).replace(**given)


def _print_scores(scores: EdgeScores, at: float | None) -> None:
    """The scores as a table, and what was left out."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    protocol = scores.protocol
    unit = "px" if protocol.unit == "pixel" else "of the diagonal"
    steps = [step for step, on in (("NMS", protocol.nms), ("thinned", protocol.thin)) if on]
    table = Table(
        title=escape(f"{protocol.name}: {len(scores.images)} images"),
        caption=f"within {protocol.max_dist:g} {unit}, {', '.join(steps) or 'not thinned'}",
    )
    table.add_column("score")
    table.add_column("value", justify="right")
    table.add_column("")
    point = f"precision {scores.precision:.4f}, recall {scores.recall:.4f}"
    table.add_row("ODS", f"{scores.ods:.4f}", f"at {scores.threshold:.4f}: {point}")
    table.add_row("OIS", f"{scores.ois:.4f}", "counts summed at each image's best threshold")
    table.add_row("OIS mean", f"{scores.ois_mean:.4f}", "mean of the images' best F")
    table.add_row("AP", f"{scores.ap:.4f}", "precision averaged over recall")
    table.add_row("R50", f"{scores.r50:.4f}", "recall at precision 0.5")
    table.add_row("crispness", f"{scores.crispness:.4f}", "share of the maps that survives NMS")
    if at is not None:
        fixed = scores.at(at)
        point = f"precision {fixed.precision:.4f}, recall {fixed.recall:.4f}"
        table.add_row(f"F at {fixed.threshold:g}", f"{fixed.f:.4f}", point)
    Console().print(table)
    for image in scores.left_out:
        print(f"left out: {image.name}: {image.reason}", file=sys.stderr)
