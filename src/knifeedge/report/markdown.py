"""The report as Markdown: the tables as text, the plots as PNG files in a folder beside it."""

import re
from pathlib import Path
from urllib.parse import quote

from knifeedge.disk import write_atomically
from knifeedge.report.drawing import draw, encode, named_plots
from knifeedge.report.records import Contents
from knifeedge.report.settings import protocol_table, settings_tables
from knifeedge.report.tables import Row, Table, experiment_tables, score_tables
from knifeedge.report.words import title, utf8


def write_markdown(contents: Contents, out: Path) -> None:
    """Write the report, and its plots into the folder STEM-plots beside it."""
    folder = out.with_name(f"{out.stem}-plots")
    lines = [f"# {escape(title(contents))}", ""]
    if contents.faults:
        lines += [
            f"- **{fault.kind}** {escape(fault.where)}: {escape(fault.reason)}"
            for fault in contents.faults
        ]
        lines.append("")
    lines += ["## Scores", ""]
    for experiment in contents.experiments:
        for table in experiment_tables(experiment):
            lines += _table(table)
    for table in score_tables(contents):
        lines += _table(table)
    plots = list(named_plots(contents))
    lines += ["## Curves", ""] if plots else []
    for name, plot in plots:
        write_atomically(folder / f"{name}.png", encode(draw(plot), "png"))
        address = quote(f"{folder.name}/{name}.png")
        lines += [f"![{escape(plot.alt)}]({address})", ""]
        lines += [escape(plot.note), ""] if plot.note else []
    lines += ["## Settings", ""]
    protocols = protocol_table(contents)
    lines += _table(protocols) if protocols is not None else []
    for table in settings_tables(contents):
        lines += _table(table)
    write_atomically(out, utf8("\n".join(lines).rstrip() + "\n"))


def escape(text: str) -> str:
    r"""A text that Markdown and the HTML inside it take as it stands.

    >>> escape("a|b <i> *c*")
    'a\\|b &lt;i> \\*c\\*'
    """
    one_line = " ".join(text.split())
    return (
        re.sub(r"([\\|*_`\[\]#!~$])", r"\\\1", one_line).replace("&", "&amp;").replace("<", "&lt;")
    )


def _table(table: Table) -> list[str]:
    rule = ["---" if n < table.words else "---:" for n in range(len(table.head))]
    lines = [f"### {escape(table.caption)}", "", _line([escape(text) for text in table.head])]
    lines += [_line(rule), *(_row(row) for row in table.rows), ""]
    return [*lines, escape(table.note), ""] if table.note else lines


def _row(row: Row) -> str:
    cells = []
    for cell in row.cells:
        text = escape(cell.text)
        cells.append(f"**{text}**" if cell.best else f"*{text}*" if _slanted(row, text) else text)
    return _line(cells)


def _slanted(row: Row, text: str) -> bool:
    return bool(text) and row.kind == "improvement"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
