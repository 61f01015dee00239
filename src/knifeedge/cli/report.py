"""The verb `report`: a page about runs, made from their files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from knifeedge.cli.console import progress_bar
from knifeedge.errors import ConfigError


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN...",
            help="Folders of protocols, experiments or training runs, or folders that hold such.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The report; report.html or .md in the first RUN if not given."
        ),
    ] = None,
    format: Annotated[
        str, typer.Option(metavar="html|md", help="One page, or Markdown with plots beside it.")
    ] = "html",
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every plot as PNG and SVG, too.")
    ] = None,
    paper_figures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Draw the paper's figures; needs no RUN."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was written, and what is wrong, as JSON.")
    ] = False,
) -> None:
    """Write a report of runs: tables, curves, pictures and a threshold to play with.

    Example: [bold]knifeedge report runs/demo[/bold]
    """
    needs = {"report": paper_figures is None, "--out": out, "--plots": plots}
    for name, asked in needs.items():
        if asked and not runs:
            raise ConfigError(
                f"{name} needs the folder of a run, such as: knifeedge report runs/demo"
            )
    from knifeedge.disk import check_target
    from knifeedge.metrics.kernels import on_compile
    from knifeedge.report import FORMATS, read_runs, write_contents

    if format not in FORMATS:
        raise ConfigError(f"--format must be one of {', '.join(FORMATS)}, got {format!r}")
    on_compile(lambda line: print(f"knifeedge: {line}", file=sys.stderr))
    for folder in (plots, paper_figures):
        if folder is not None:
            check_target(folder, folder=True)
    written: dict[str, Any] = {}
    contents = None
    if runs:
        contents = read_runs(runs)
        target = out or next(run for run in runs if run.is_dir()) / f"report.{format}"
        check_target(target)
        with progress_bar("judging images") as progress:
            written["report"] = str(write_contents(contents, target, format, progress))
        written["bytes"] = target.stat().st_size
    if plots is not None and contents is not None:
        from knifeedge.report.drawing import write_plots

        written["plots"] = {"folder": str(plots), "files": write_plots(contents, plots)}
    if paper_figures is not None:
        from knifeedge.report.paper import write_paper_figures

        written["paper_figures"] = list(map(str, write_paper_figures(paper_figures, contents)))
    faults = contents.faults if contents else []
    if as_json:
        print(json.dumps({**written, "faults": [vars(fault) for fault in faults]}, indent=1))
        return
    for fault in faults:
        print(f"{fault.kind}: {fault.where}: {fault.reason}", file=sys.stderr)
    if "report" in written:
        print(f"{written['report']} ({written['bytes'] / 1e6:.1f} MB)")
    if "plots" in written:
        print(f"{written['plots']['files']} plots in {plots}")
    for path in written.get("paper_figures", ()):
        print(path)
