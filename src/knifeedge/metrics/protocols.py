"""Named scoring protocols: everything that decides a score, in one small frozen record.

The field compares methods under a handful of settings. Each has a name here, and a result carries
the whole record, so that two scores can be compared without guessing how they were made.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, get_args

from knifeedge.errors import ConfigError

Unit = Literal["diagonal", "pixel"]

FARTHEST = 512.0  # pixels: memory grows with the square, and a tolerance above is a mistake


@dataclass(frozen=True)
class Protocol:
    """How a soft map is turned into decisions and how these are matched.

    Attributes:
        name: The protocol's name; a changed one says what was changed, `bsds[nms=False]`.
        max_dist: Largest distance of a matched pair, inclusive.
        unit: "diagonal" (`max_dist` is a fraction of the image's diagonal) or "pixel".
        thin: Thin every thresholded map to convergence before matching.
        nms: Suppress non-maxima of the soft map before thresholding.
    """

    name: str
    max_dist: float
    unit: Unit = "diagonal"
    thin: bool = True
    nms: bool = False

    def __post_init__(self) -> None:
        """Refuse a record that cannot be scored with."""
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError(f"a protocol needs a name, got {self.name!r}")
        for step in ("thin", "nms"):
            if getattr(self, step) not in (True, False):
                raise ConfigError(f"{step} must be True or False, got {getattr(self, step)!r}")
        if self.unit not in get_args(Unit):
            raise ConfigError(f"unit must be one of {', '.join(get_args(Unit))}, got {self.unit!r}")
        if not (math.isfinite(self.max_dist) and self.max_dist >= 0):
            raise ConfigError(f"max_dist must be finite and >= 0, got {self.max_dist}")
        if self.unit == "pixel" and self.max_dist > FARTHEST:
            raise ConfigError(f"max_dist must be at most {FARTHEST:g} pixels, got {self.max_dist}")
        if self.unit == "diagonal" and self.max_dist > 1:
            raise ConfigError(
                f"max_dist must be a fraction of the diagonal, at most 1, got {self.max_dist}; "
                'for a distance in pixels set unit="pixel"'
            )

    def replace(self, **changes: object) -> Protocol:
        """A copy with some fields changed; unless a new name is given, the name tells the change.

        >>> PROTOCOLS["bsds"].replace(nms=False)
        Protocol(name='bsds[nms=False]', max_dist=0.0075, unit='diagonal', thin=True, nms=False)
        """
        fields = [field.name for field in dataclasses.fields(self)]
        unknown = sorted(set(changes) - set(fields))
        if unknown:
            raise ConfigError(
                f"a protocol has no field {', '.join(unknown)}; its fields are {', '.join(fields)}"
            )
        changed = dataclasses.replace(self, **changes)  # type: ignore[arg-type]
        if "name" in changes:
            return changed
        base = PROTOCOLS.get(self.name.split("[", 1)[0], self)
        differences = [
            f"{field}={getattr(changed, field)}"
            for field in fields[1:]
            if getattr(changed, field) != getattr(base, field)
        ]
        name = f"{base.name}[{','.join(differences)}]" if differences else base.name
        return dataclasses.replace(changed, name=name)

    def to_dict(self) -> dict[str, object]:
        """The record as plain JSON values; `Protocol(**record)` gives it back.

        >>> PROTOCOLS["one-pixel"].to_dict()
        {'name': 'one-pixel', 'max_dist': 1.0, 'unit': 'pixel', 'thin': True, 'nms': False}
        """
        return dataclasses.asdict(self)


PROTOCOLS: dict[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        # What the paper calls "1-pixel": 1.73 px on 481x321, more on larger images.
        Protocol("paper-strict", max_dist=0.003),
        Protocol("one-pixel", max_dist=1.0, unit="pixel"),
        Protocol("paper-relaxed", max_dist=0.0075, nms=True),
        Protocol("bsds", max_dist=0.0075, nms=True),
        Protocol("nyud", max_dist=0.011, nms=True),
    )
}


def get_protocol(protocol: str | Protocol) -> Protocol:
    """The protocol of that name; a record is handed back as it is.

    >>> get_protocol("bsds").max_dist
    0.0075
    """
    if isinstance(protocol, Protocol):
        return protocol
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"unknown protocol {protocol!r}; the known ones are {', '.join(PROTOCOLS)}"
        )
    return PROTOCOLS[protocol]
