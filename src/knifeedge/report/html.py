"""Tables, pictures and other parts of the page as HTML; every text is escaped here."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from knifeedge.metrics.pictures import FALSE_ALARM, HIT, MISS
from knifeedge.report.gallery import Gallery, GalleryImage
from knifeedge.report.records import Fault
from knifeedge.report.tables import Cell, Row, Table

LONG_WORD = 16  # signs in a cell of text; a longer one may break
CHIPS = (("hit", HIT), ("false alarm", FALSE_ALARM), ("miss", MISS))


def table(content: Table, kind: str = "scores") -> str:
    """A table in its own scrolling box, with its note below."""
    head = "".join(_head_cell(text, n < content.words) for n, text in enumerate(content.head))
    rows = "".join(_row(row, content.words) for row in content.rows)
    note = f'<p class="note">{escape(content.note)}</p>' if content.note else ""
    caption = escape(content.caption)
    return (
        f'<h3>{caption}</h3><div class="scroll" tabindex="0" role="region" aria-label="{caption}">'
        f'<table class="{kind}" aria-label="{caption}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def faults(found: Sequence[Fault]) -> str:
    """What is unfinished or damaged, as a notice; nothing where all is well."""
    if not found:
        return ""
    items = "".join(
        f"<li><em>{escape(fault.kind)}</em> <b>{escape(fault.where)}</b>: {escape(fault.reason)}"
        "</li>"
        for fault in found
    )
    many = "1 thing to know" if len(found) == 1 else f"{len(found)} things to know"
    return (
        f'<aside class="faults" aria-label="Unfinished and damaged runs"><h2>{many}'
        f" before reading on</h2><ul>{items}</ul></aside>"
    )


def chips() -> str:
    """The key to the colours of hits, false alarms and misses."""
    items = "".join(f"<li>{chip(colour)}{name}</li>" for name, colour in CHIPS)
    return f'<ul class="chips">{items}</ul>'


def chip(colour: tuple[int, int, int]) -> str:
    """A small square of a colour."""
    return f'<span class="chip" style="background:rgb{colour}"></span>'


def gallery(number: int, content: Gallery, losses: Sequence[str]) -> str:
    """One run's images; `number` and `losses` tell the script which picture is which."""
    articles = "".join(
        _article(number, place, image, losses) for place, image in enumerate(content.images)
    )
    notes = []
    if content.left_out:
        total = len(content.images) + content.left_out
        notes.append(f"{content.left_out} of {total} images are left out")
    if content.unexplored:
        total = len(content.images)
        notes.append(f"{content.unexplored} of {total} images are left out of the explorer")
    note = "; ".join(notes)
    left = f'<p class="note">{note}, to keep the page under 10 MB.</p>' if note else ""
    return f'<div class="gallery">{articles}</div>{left}'


def _article(run: int, place: int, image: GalleryImage, losses: Sequence[str]) -> str:
    name = escape(image.name)
    key = f"picture-{run}-{place}"
    shown = [
        _picture(image.image, f"{name}, the image", "image", f"{key}-image", image),
        _picture(image.label, f"{name}, the label", "label", f"{key}-label", image),
    ]
    for one in image.maps:
        loss = escape(one.loss)
        number = losses.index(one.loss)
        alt = f"{name}, the map of {loss}"
        shown.append(_picture(one.map, alt, loss, f"{key}-map-{number}", image))
        alt = (
            f"{name}, hits, false alarms and misses of {loss} at {one.threshold:.2f}: F {one.f:.3f}"
        )
        words = f"at {one.threshold:.2f}: F {one.f:.3f}"
        shown.append(_picture(one.match, alt, words, "", image))
    button = (
        f'<button type="button" data-explore="{run} {place}" hidden'
        f' aria-label="Explore {name}">Explore</button>'
    )
    return (
        f"<article><h4><span>{name}</span>{button}</h4>"
        f'<div class="sheet">{"".join(shown)}</div></article>'
    )


def _picture(source: str, alt: str, words: str, key: str, image: GalleryImage) -> str:
    named = f' id="{key}"' if key else ""
    return (
        f'<figure><img{named} src="{source}" alt="{alt}" width="{image.width}"'
        f' height="{image.height}"><figcaption>{words}</figcaption></figure>'
    )


def _head_cell(text: str, word: bool) -> str:
    kind = ' class="word"' if word else ""
    return f'<th scope="col"{kind}>{escape(text)}</th>'


def _row(row: Row, words: int) -> str:
    cells = "".join(_cells(row.cells, words))
    return f'<tr class="{row.kind}">{cells}</tr>'


def _cells(cells: Iterable[Cell], words: int) -> Iterable[str]:
    for number, cell in enumerate(cells):
        text = f"<b>{escape(cell.text)}</b>" if cell.best else escape(cell.text)
        if number >= words:
            yield f"<td>{text}</td>"
            continue
        kind = "word"
        if len(cell.text) > LONG_WORD:
            kind, text = "word long", _breakable(cell.text)
        if number == 0 and cell.text:
            yield f'<th scope="row" class="{kind}">{text}</th>'
        else:
            yield f'<td class="{kind}">{text}</td>'


def _breakable(text: str) -> str:
    """A text that may also break after the signs that join its parts."""
    return re.sub(r"([,./(])", r"\1<wbr>", escape(text))
