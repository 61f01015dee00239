"""Reports: what runs gave, read from their files, as one page, Markdown or plots."""

from collections.abc import Callable, Sequence
from pathlib import Path

from knifeedge.disk import check_target, write_atomically
from knifeedge.errors import ConfigError
from knifeedge.report.page import html_page
from knifeedge.report.reading import read_runs
from knifeedge.report.records import Contents
from knifeedge.report.words import utf8

__all__ = ["FORMATS", "read_runs", "write_contents", "write_report"]

FORMATS = ("html", "md")


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    format: str = "html",
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a report of some runs.

    Args:
        runs: Folders of protocols, experiments or training runs, or folders that hold such.
        out: The file to write; for Markdown the plots go into a folder beside it.
        format: "html", one page without anything outside it, or "md".
        progress: Called as progress(done, total) after each gallery image.

    Returns:
        `out`. The same runs give the same bytes.

    Raises:
        DataError: There is nothing to report on, or the file cannot be written.
    """
    check_target(Path(out))
    return write_contents(read_runs([Path(run) for run in runs]), Path(out), format, progress)


def write_contents(
    contents: Contents,
    out: Path,
    format: str = "html",
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write a report of what `read_runs` read; see `write_report`."""
    if format not in FORMATS:
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if format == "md":
        from knifeedge.report.markdown import write_markdown

        write_markdown(contents, out)
    else:
        write_atomically(out, utf8(html_page(contents, progress)))
    return out
