"""What a loss's name says: its base, and the settings of its adjuster.

| name | base | adjuster |
| --- | --- | --- |
| `wbce`, any other | itself | none |
| `baa-0.7` | `wbce` | threshold 0.7 |
| `baa-sa` | `wbce` | threshold from validation |
| `baa(base=ebt,threshold=0.6,window=0.1,decay=8)` | `ebt` | as it says; the rest by default |
"""

import re
from dataclasses import dataclass

DEFAULT_BASE = "wbce"


@dataclass(frozen=True)
class AdjusterSettings:
    """Settings of an adjuster; `threshold` is None where validation sets it."""

    threshold: float | None = 0.7
    window: float = 0.2
    decay: float = 16.0


_NUMBER = r"([0-9.]+(?:e[+-]?[0-9]+)?)"


def base_of(loss: str) -> str | None:
    """The loss that is adjusted; None for a loss that is not adjusted.

    >>> base_of("baa-0.7"), base_of("baa(base=focal(gamma=3),window=0.1)"), base_of("ebt")
    ('wbce', 'focal(gamma=3)', None)
    """
    if not loss.startswith("baa"):
        return None
    named = re.search(r"\bbase\s*=\s*(\w+(?:\([^)]*\))?)", loss)
    return named.group(1) if named else DEFAULT_BASE


def adjuster_settings(loss: str) -> AdjusterSettings | None:
    """The adjuster in a loss's name; None for a loss without one.

    >>> adjuster_settings("baa-0.7")
    AdjusterSettings(threshold=0.7, window=0.2, decay=16.0)
    >>> adjuster_settings("baa(base=ebt,threshold=sa,window=0.1,decay=8)")
    AdjusterSettings(threshold=None, window=0.1, decay=8.0)
    >>> adjuster_settings("wbce") is None
    True
    """
    if not loss.startswith("baa"):
        return None
    found: dict[str, float | None] = {}
    short = re.match(rf"baa-(?:{_NUMBER}|sa)", loss)
    try:
        if short:
            found["threshold"] = float(short.group(1)) if short.group(1) else None
        for key in ("threshold", "window", "decay"):
            named = re.search(rf"\b{key}\s*=\s*(?:{_NUMBER}|sa)", loss)
            if named:
                found[key] = float(named.group(1)) if named.group(1) else None
        settings = AdjusterSettings(**found)  # type: ignore[arg-type]
    except ValueError:
        return None
    return settings if settings.window and settings.decay is not None else None
