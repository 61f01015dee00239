"""The page: one self-contained HTML file with tables, curves, pictures and the explorer.

Nothing in it comes from elsewhere: style, script and pictures are inside. A content security policy
lets only the page's own script run, by its hash, so that a name which slipped through unescaped
could still do nothing. The same runs give the same bytes.
"""

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from knifeedge.metrics.curves import Counts, nearest_threshold
from knifeedge.metrics.pictures import PALETTE
from knifeedge.report import html
from knifeedge.report.gallery import Gallery, build_galleries, fixed_threshold
from knifeedge.report.plots import Plot, protocol_plots, training_plots
from knifeedge.report.records import Contents, ProtocolRun
from knifeedge.report.settings import protocol_table, settings_tables
from knifeedge.report.svg import drawing, figure
from knifeedge.report.tables import experiment_tables, score_tables
from knifeedge.report.words import lede, title, utf8

LARGEST = 10_000_000  # bytes of the page
MOST_CURVES = 4_000_000  # of these for curves, the rest for pictures
VIEW = 99 * 3 * 8 + 300  # of a loss's summed counts in the explorer, at most
SPARE = 100_000  # for what is written after the pictures were measured: notes, and their faults
OPEN_RUNS = 2  # whose curves and pictures show at once; those of the others fold out


def html_page(contents: Contents, progress: Callable[[int, int], None] | None = None) -> str:
    """The whole page.

    Args:
        contents: What was read; faults of pictures are added to it.
        progress: Called as progress(done, total) after each gallery image.
    """
    scores, curves, settings = _scores(contents), _curves(contents), _settings(contents)
    style, script, explorer = asset("page.css"), asset("page.js"), _explorer(contents)
    texts = (scores, curves, settings, style, script, explorer, html.faults(contents.faults))
    fixed = sum(len(utf8(text)) for text in texts)
    fixed += VIEW * sum(len(o.scored) for run in contents.runs for o in run.outcomes)
    galleries = build_galleries(contents, LARGEST - SPARE - fixed, progress)
    views = list(_views(contents.runs, galleries))
    pictures = _pictures(contents.runs, galleries)
    colours = [list(colour) for colour in PALETTE]
    data = json.dumps({"colours": colours, "views": views}, separators=(",", ":"))
    parts = {
        "Scores": scores,
        "Explorer": explorer if views else "",
        "Curves": curves,
        "Gallery": pictures,
        "Settings": settings,
    }
    links = "".join(
        f'<li><a href="#{name.lower()}">{name}</a></li>' for name, part in parts.items() if part
    )
    return fill(
        asset("page.html"),
        hash=f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}",
        title=escape(title(contents)),
        style=style,
        links=links,
        lede=lede(contents),
        body=html.faults(contents.faults) + "".join(parts.values()),
        data=data.replace("<", "\\u003c").replace("&", "\\u0026"),
        script=script,
    )


def asset(name: str) -> str:
    """A file of this package, as text."""
    return resources.files("knifeedge.report").joinpath(name).read_text(encoding="utf-8")


def fill(template: str, **parts: str) -> str:
    """Put parts in the place of @name@, in one pass: what is put in is not looked at again.

    >>> fill("<b>@a@</b>@b@", a="@b@", b="")
    '<b>@b@</b>'
    """
    pieces = template.split("@")
    # A name stands between two signs; anything else between them is text with its signs.
    out, number = [pieces[0]], 1
    while number < len(pieces):
        if pieces[number] in parts and number + 1 < len(pieces):
            out += [parts[pieces[number]], pieces[number + 1]]
            number += 2
        else:
            out.append(f"@{pieces[number]}")
            number += 1
    return "".join(out)


def _section(key: str, heading: str, about: str, body: str) -> str:
    return (
        f'<section id="{key}"><h2>{heading}</h2><p class="about">{about}</p>{body}</section>'
        if body
        else ""
    )


def _scores(contents: Contents) -> str:
    tables = [table for one in contents.experiments for table in experiment_tables(one)]
    runs = [html.table(table) for table in score_tables(contents)]
    body = "".join(html.table(table) for table in tables)
    if tables and runs:
        body += f"<details><summary>Each run</summary><div>{''.join(runs)}</div></details>"
    else:
        body += "".join(runs)
    about = "Higher is better throughout; the best of each model is bold."
    return _section("scores", "Scores", about, body)


def _curves(contents: Contents) -> str:
    blocks: list[str] = []
    used, left_out = 0, 0
    for run in contents.runs:
        block = _folding(len(blocks), len(contents.runs), run.title, run.name, protocol_plots(run))
        if used + len(block) > MOST_CURVES:
            left_out += 1
            continue
        used += len(block)
        blocks.append(block)
    if contents.trainings:
        plots = "".join(map(figure, training_plots(contents.trainings)))
        blocks.append(f'<h3>Training runs</h3><div class="plots">{plots}</div>' if plots else "")
    if left_out:
        more = "1 more run" if left_out == 1 else f"{left_out} more runs"
        blocks.append(
            f'<p class="note">The curves of {more} are left out to keep the page'
            " under 10 MB; --plots writes all of them.</p>"
        )
    about = "What the scores are read from, and how the networks got there."
    return _section("curves", "Curves", about, "".join(blocks))


def _folding(number: int, total: int, title: str, name: str, plots: Sequence[Plot]) -> str:
    if not plots:
        return ""
    body = f'<div class="plots">{"".join(map(figure, plots))}</div>'
    return _foldable(number, total, title, name, body)


def _foldable(number: int, total: int, title: str, name: str, body: str) -> str:
    if total == 1:
        return body
    shown = " open" if number < OPEN_RUNS else ""
    heading = f"{escape(title)} <small>{escape(name)}</small>"
    return f"<details{shown}><summary>{heading}</summary>{body}</details>"


def _pictures(runs: Sequence[ProtocolRun], galleries: Sequence[Gallery]) -> str:
    shown = [n for n, gallery in enumerate(galleries) if gallery.images or gallery.left_out]
    body = "".join(
        _foldable(
            place,
            len(shown),
            runs[n].title,
            runs[n].name,
            html.gallery(n, galleries[n], [outcome.loss for outcome in runs[n].outcomes]),
        )
        for place, n in enumerate(shown)
    )
    about = (
        "Test images and labels, each loss's map, and below it what the map hits, adds and misses"
        " at the threshold fixed beforehand."
    )
    return _section("gallery", "Gallery", about, html.chips() + body if body else "")


def _settings(contents: Contents) -> str:
    protocols = protocol_table(contents)
    body = html.table(protocols, "protocols") if protocols else ""
    tables = settings_tables(contents)
    for number, table in enumerate(tables):
        body += _foldable(number, len(tables), table.caption, "", html.table(table, "settings"))
    about = "All that it takes to do it again."
    return _section("settings", "Settings", about, body)


def _explorer(contents: Contents) -> str:
    empty = Plot(
        key="explorer",
        title="",
        note="",
        alt="Precision against recall: of this image dashed, of all images solid; the points are"
        " at the chosen threshold",
        x_label="recall",
        y_label="precision",
        x_range=(0.0, 1.0),
        y_range=(0.0, 1.0),
        series=(),
        iso_f=True,
    )
    squares = {name.replace(" ", "_"): html.chip(colour) for name, colour in html.CHIPS}
    return fill(
        asset("explorer.html"),
        protocol=escape(next((name for run in contents.runs for name in run.protocols), "")),
        chips=html.chips(),
        curve=drawing(empty, live="live-curve"),
        **squares,
    )


def _views(runs: Sequence[ProtocolRun], galleries: Sequence[Gallery]) -> Iterable[dict[str, Any]]:
    """What the explorer shows: each run under each protocol that has pictures."""
    several = any(len(run.protocols) > 1 for run in runs)
    repeated = len({run.title for run in runs}) < len(runs)
    for number, (run, gallery) in enumerate(zip(runs, galleries, strict=True)):
        for protocol in run.protocols:
            losses, totals, total = [], [], 0
            for outcome in run.outcomes:
                scored = outcome.scored.get(protocol)
                if scored is None or scored.scores is None:
                    continue
                fixed = nearest_threshold(fixed_threshold(outcome, scored)) + 1
                best = nearest_threshold(scored.scores.threshold) + 1
                losses.append(outcome.loss)
                total = len(scored.scores.names)
                summed = scored.scores.counts.sum(axis=0)
                totals.append(
                    {"name": outcome.loss, "fixed": fixed, "best": best, **_counts(summed)}
                )
            images = [
                {
                    "name": image.name,
                    "number": place,
                    "width": image.width,
                    "height": image.height,
                    "losses": [
                        {**_counts(judged.counts), "packed": judged.packed}
                        if (judged := image.judged.get((protocol, loss)))
                        else None
                        for loss in losses
                    ],
                }
                for place, image in enumerate(gallery.images)
                if any((protocol, loss) in image.judged for loss in losses)
            ]
            if images:
                words = f"{run.title} ({run.name})" if repeated else run.title
                yield {
                    "run": number,
                    "title": f"{words}, {protocol}" if several else words,
                    "protocol": protocol,
                    "total": total,
                    "images": images,
                    "losses": totals,
                }


def _counts(counts: Counts) -> dict[str, Any]:
    """Counts (99, 4) by column; the ground truth's number is the same at all thresholds."""
    matched_gt, gt, matched_map, in_map = counts.T.tolist()
    return {"matched_gt": matched_gt, "gt": gt[0], "matched_map": matched_map, "map": in_map}
