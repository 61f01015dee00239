"""The verb `models`: which there are, and what they cost."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    name: Annotated[
        str | None, typer.Argument(help="Show this model's stages; all models if not given.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of the table.")
    ] = False,
) -> None:
    """List the models with their parameters and the cost of one 320 x 320 image.

    Example: [bold]knifeedge models[/bold], then [bold]knifeedge models hed[/bold]
    """
    if name is None:
        _list_models(as_json)
    else:
        _show_stages(name, as_json)


def _list_models(as_json: bool) -> None:
    import json

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from knifeedge.models import model_names, summarise

    summaries = sorted(map(summarise, model_names()), key=lambda summary: summary.parameters)
    if as_json:
        print(json.dumps([summary.to_dict() for summary in summaries], indent=1))
        return
    table = Table(caption="GFLOP: one forward pass at 320 x 320")
    table.add_column("model")
    table.add_column("parameters", justify="right")
    table.add_column("GFLOP", justify="right")
    table.add_column("")
    for summary in summaries:
        frozen = summary.parameters - summary.trainable
        note = f"{summary.description}; {frozen:,} frozen" if frozen else summary.description
        figures = (f"{summary.parameters:,}", f"{summary.gflop:,.1f}")
        table.add_row(summary.name, *figures, escape(note))
    Console().print(table)


def _show_stages(name: str, as_json: bool) -> None:
    import json
    from dataclasses import asdict

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from knifeedge.models import model_entry, summarise, trace

    options = model_entry(name).options
    rows = trace(name)
    if as_json:
        content = {
            **summarise(name).to_dict(),
            "options": options,
            "stages": [asdict(row) for row in rows],
        }
        print(json.dumps(content, indent=1))
        return
    table = Table(
        title=escape(f"{name}: {model_entry(name).description}"),
        caption=f"options: {', '.join(options) or 'none'}",
    )
    table.add_column("stage")
    for column in ("channels", "size", "stride"):
        table.add_column(column, justify="right")
    for row in rows:
        size = f"{row.height} x {row.width}"
        table.add_row(escape(row.stage), str(row.channels), size, str(row.stride))
    Console().print(table)
