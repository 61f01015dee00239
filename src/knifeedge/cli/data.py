"""The verbs of `knifeedge data`: list, check, show and download."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knifeedge.cli.console import progress_bar

if TYPE_CHECKING:
    from knifeedge.data.check import Report

app = typer.Typer(
    name="data",
    help="Data sets: what there is, whether a folder is in order, pictures of it, downloads.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_Root = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Its folder; else $KNIFEEDGE_DATA/NAME, else data/NAME."),
]
_Images = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of images.")]
_Labels = Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of labels.")]
_DataOption = Annotated[
    list[str] | None,
    typer.Option("--data-option", metavar="KEY=VALUE", help="How labels are read: invert=true."),
]


@app.command("list")
def list_sets(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets, their splits, and where they are.

    Example: [bold]knifeedge data list[/bold]
    """
    rows = _rows()
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("data set", "what", "train / test", "pretrain / validation")
    table.add_column("where", overflow="fold")
    for row in rows:
        counts = row["splits"]
        cells = (row["name"], row["about"])
        if counts:
            train = f"{counts['train']} / {counts['test']}"
            table.add_row(
                *cells,
                f"{train} ({row['split_file']})",
                f"{counts['pretrain']} / {counts['validation']}",
                row["where"] or f"not found: {', '.join(row['looked'])}",
            )
        else:
            table.add_row(*cells, "by seed", "by seed", row["where"])
    Console().print(table)


@app.command()
def check(
    folder: Annotated[
        Path | None,
        typer.Argument(help="A public data set, or a folder with images and labels in it."),
    ] = None,
    images: _Images = None,
    labels: _Labels = None,
    data_option: _DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Look through a data set and report every problem at once; exit code 1 if there is one.

    Example: [bold]knifeedge data check data/UDED[/bold]
    """
    from knifeedge.cli.training import pairs
    from knifeedge.data.check import check_folder
    from knifeedge.data.datasets import LabelRule
    from knifeedge.typed import from_mapping

    rule = from_mapping(LabelRule, pairs(data_option or [], "--data-option"))
    with progress_bar("checking") as progress:
        report = check_folder(folder, images=images, labels=labels, rule=rule, progress=progress)
    if as_json:
        print(json.dumps({"usable": report.usable, **asdict(report)}, indent=1))
    else:
        _print_report(report)
    if not report.usable:
        raise typer.Exit(1)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A data set's name, or a folder.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="PNG to write.")] = Path("sheet.png"),
    split: Annotated[str, typer.Option(help="train, pretrain, validation, test or all.")] = "all",
    count: Annotated[int, typer.Option(min=1, help="At most this many, from the first.")] = 24,
    columns: Annotated[int, typer.Option(min=1, help="Samples in a row.")] = 6,
    cell: Annotated[int, typer.Option(min=8, help="Side of each picture, in pixels.")] = 160,
    root: _Root = None,
    images: _Images = None,
    labels: _Labels = None,
    data_option: _DataOption = None,
) -> None:
    """Write a contact sheet: images above their labels.

    Example: [bold]knifeedge data show synthetic --count 12 --out sheet.png[/bold]
    """
    from knifeedge.cli.training import read_options
    from knifeedge.data.datasets import load_dataset
    from knifeedge.data.layouts import detect_layout
    from knifeedge.data.sheet import contact_sheet, write_sheet

    options: dict[str, Any] = {"root": root}
    if root is None and Path(name).is_dir():
        public = detect_layout(name) if images is None and labels is None else None
        name, options["root"] = (public.name if public else "folder"), name
    if images is not None or labels is not None:
        options |= {"images": images, "labels": labels}
        name = "folder"
    options |= read_options("data", {"name": name}, {}, data_option)
    samples = load_dataset(name, split, **options)
    shown = min(count, len(samples))
    sheet = contact_sheet((samples[i] for i in range(shown)), columns=columns, cell=cell)
    write_sheet(sheet, out)
    print(f"{out}: {shown} of {len(samples)} samples of {samples.name}")


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="UDED or BSDS500; of others it says where they are.")],
    root: _Root = None,
    url: Annotated[str | None, typer.Option(help="Another address of the same archive.")] = None,
) -> None:
    """Fetch a data set from its public address, check every file, and unpack it.

    It goes on where an earlier try broke off, and fetches nothing that is right already.

    Example: [bold]knifeedge data download UDED[/bold]
    """
    from knifeedge.data.downloads import download as fetch

    with progress_bar(f"downloading {name}") as progress:
        folder = fetch(name, root, url=url, progress=progress)
    print(f"{folder}: every file is there and right")


def _rows() -> list[dict[str, Any]]:
    """One entry a data set, for the table and for JSON."""
    from knifeedge.data.layouts import LAYOUTS, search_places
    from knifeedge.data.splits import load_splits

    rows: list[dict[str, Any]] = []
    for layout in LAYOUTS.values():
        splits = load_splits(layout.splits)
        places = search_places(layout.name)
        rows.append(
            {
                "name": layout.name,
                "about": layout.about,
                "page": layout.page,
                "splits": {key: len(names) for key, names in splits.lists.items()},
                "split_file": f"{splits.name} {splits.version}",
                "where": next((str(place) for place in places if place.is_dir()), None),
                "looked": [str(place) for place in places],
            }
        )
    rows.append(
        {
            "name": "folder",
            "about": "your own: a folder of images and one of labels of the same names",
            "splits": {},
            "where": "--root, or --images and --labels",
        }
    )
    rows.append(
        {
            "name": "synthetic",
            "about": "made-up scenes without end, with exact edges",
            "splits": {},
            "where": "made as they are needed",
        }
    )
    return rows


def _print_report(report: Report) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if report.problems:
        table = Table("name", "problem", "what", title=f"problems: {len(report.problems)}")
        for problem in report.problems:
            table.add_row(*(escape(text) for text in (problem.name, problem.kind, problem.message)))
        console.print(table)
    facts = Table(title=f"{report.layout}: {report.pairs} pairs", show_header=False)
    if report.sizes is not None:
        (low_h, low_w), (high_h, high_w) = report.sizes
        facts.add_row("sizes, width x height", f"{low_w} x {low_h} to {high_w} x {high_h}")
    if report.edge_share is not None:
        low, middle, high = (f"{share:.2%}" for share in report.edge_share)
        facts.add_row("edge pixels", f"{low} to {high}, middle {middle}")
    facts.add_row("soft labels", str(report.soft))
    counts = ", ".join(f"{n} of {k}" for k, n in report.annotators.items())
    facts.add_row("annotators a label", counts or "none")
    facts.add_row("usable", "yes" if report.usable else "no")
    console.print(facts)
