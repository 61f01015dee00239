"""Checks of names: what is not known is refused with the nearest that is, and with its place."""

import re
from collections.abc import Iterable, Sequence

from knifeedge.errors import closest
from knifeedge.typed import KeyedError


def check_known(
    key: str,
    name: object,
    known: Iterable[str],
    what: str,
    *,
    where: str = "",
    written: str | None = None,
) -> None:
    """Refuse a name that is not known.

    Args:
        key: Where the name stands in a file, or the name itself where that is the key.
        name: To be looked up.
        known: The names there are.
        what: What it is the name of.
        where: Where it was looked up.
        written: What stands in the file, if that is not the name.

    >>> check_known("losses", "wbec", ["bce", "wbce"], "loss")
    Traceback (most recent call last):
    knifeedge.typed.KeyedError: there is no loss 'wbec' (the closest is 'wbce'); there are bce, ...
    """
    names = list(known)
    if name in names:
        return
    known = ", ".join(names) or "none"
    raise KeyedError(
        key,
        f"there is no {what} {name!r}{where}{closest(name, names)}; there are {known}",
        None if name == key else written or name,
    )


def check_distinct(key: str, entries: Sequence[object]) -> None:
    """Refuse an empty list, or one with an entry twice.

    >>> check_distinct("seeds", [0, 1])
    """
    if not entries:
        raise KeyedError(key, f"{key} must have at least one entry")
    twice = [entry for entry in entries if entries.count(entry) > 1]
    if twice:
        remedy = "; give one of them a label" if key in ("models", "datasets") else ""
        raise KeyedError(key, f"{key} has {twice[0]} twice{remedy}")


def checked_label(label: str) -> str:
    """A label that may be part of a folder's name.

    >>> checked_label("tiny-8")
    'tiny-8'
    """
    if not re.fullmatch(r"[\w.=+-]+", label):
        raise KeyedError(
            "label", f"a label may have letters, digits and . = + - _, got {label!r}", label
        )
    return label
