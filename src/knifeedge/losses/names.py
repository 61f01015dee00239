"""Losses by name, as the command line and experiment files write them.

| name | loss |
| --- | --- |
| bce, wbce, swbce, ebt, focal | as they are; with options: `focal(gamma=3)` |
| dice, tversky, lovasz_hinge, ap | losses of a whole region: `dice(smooth=0)`; never adjusted |
| soft_f1, anyloss_f1, heaviside_f1, score_oriented | surrogates of F1, of whole regions too |
| baa-0.7 | WBCE adjusted at the threshold 0.7, the paper's BAA-0.7 |
| baa-sa | WBCE adjusted at a calibrated threshold, the paper's BAA-SA |
| baa-online | WBCE adjusted at a threshold found while training, with the tolerance of edges |
| baa(base=swbce,threshold=0.6,window=0.3) | any base, any setting; threshold a number, sa, online |
"""

import ast
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from knifeedge.errors import ConfigError, closest
from knifeedge.losses.adjusted import AdjustedLoss
from knifeedge.losses.counts import RegionLoss
from knifeedge.losses.cross_entropy import BCELoss, SWBCELoss, WBCELoss
from knifeedge.losses.ebt import EBTLoss
from knifeedge.losses.focal import FocalLoss
from knifeedge.losses.online import OnlineThreshold
from knifeedge.losses.reduction import PixelLoss
from knifeedge.losses.regions import REGION_LOSSES

BASES: dict[str, type[PixelLoss]] = {
    "bce": BCELoss,
    "wbce": WBCELoss,
    "swbce": SWBCELoss,
    "ebt": EBTLoss,
    "focal": FocalLoss,
}
LOSSES: dict[str, type[PixelLoss] | type[RegionLoss]] = {**BASES, **REGION_LOSSES}
DEFAULT_BASE = "wbce"
SELF_ADAPTIVE, ONLINE = "sa", "online"  # thresholds that are no numbers
EDGE_TOLERANCE = 1  # pixels: with it the threshold is nearest to a calibrated one; docs/losses.md


class AdjusterSettings(NamedTuple):
    """The settings of `AdjustedLoss` that a name may set."""

    threshold: float | None
    window: float
    decay: float
    delta: float


ADJUSTER_OPTIONS = AdjusterSettings._fields


@dataclass(frozen=True)
class LossName:
    """A loss that can be built: a base, and the adjuster's settings where it is adjusted.

    >>> name = parse_loss("baa-sa")
    >>> name.needs_threshold, name.base, str(name.at(0.62))
    (True, 'wbce', 'baa-0.62')
    """

    base: str = DEFAULT_BASE
    base_options: Mapping[str, float] = field(default_factory=dict)
    adjuster: Mapping[str, float | str] | None = None

    @property
    def needs_threshold(self) -> bool:
        """Whether its threshold must first be calibrated."""
        return self.adjuster is not None and self.adjuster.get("threshold") == SELF_ADAPTIVE

    @property
    def is_online(self) -> bool:
        """Whether its threshold is found while training."""
        return self.adjuster is not None and self.adjuster.get("threshold") == ONLINE

    @property
    def threshold(self) -> float | None:
        """The adjuster's threshold; None without one, or before it is found."""
        return None if self.adjuster is None else self.settings.threshold

    @property
    def settings(self) -> "AdjusterSettings":
        """The adjuster's settings in full; a threshold that is not found yet is None.

        >>> parse_loss("baa(threshold=sa,window=0.3)").settings
        AdjusterSettings(threshold=None, window=0.3, decay=16.0, delta=1.0)
        """
        parameters = inspect.signature(AdjustedLoss).parameters
        given = {name: parameters[name].default for name in ADJUSTER_OPTIONS}
        given |= dict(self.adjuster or {})
        if isinstance(given["threshold"], str):
            given["threshold"] = None
        return AdjusterSettings(**given)

    @property
    def baseline(self) -> "LossName":
        """The base alone."""
        return LossName(self.base, self.base_options)

    def at(self, threshold: float) -> "LossName":
        """With this threshold where it needs one; else itself."""
        if not self.needs_threshold:
            return self
        settings = {**(self.adjuster or {}), "threshold": threshold}
        return LossName(self.base, self.base_options, settings)

    def build(self) -> PixelLoss | RegionLoss:
        """The loss itself.

        >>> parse_loss("focal(gamma=3)").build()
        FocalLoss(gamma=3.0, alpha=0.25, from_logits=True, reduction='mean')
        """
        if self.needs_threshold:
            raise ConfigError(
                f"{self} needs a calibrated threshold: `knifeedge protocol` finds it, or name one,"
                " such as baa-0.7"
            )
        defaults = _option_defaults(LOSSES[self.base])
        options: dict[str, Any] = {
            key: type(defaults[key])(value) for key, value in self.base_options.items()
        }
        base = LOSSES[self.base](**options)
        if self.adjuster is None:
            return base
        settings: dict[str, Any] = dict(self.adjuster)
        if self.is_online:
            settings["threshold"] = OnlineThreshold(tolerance=EDGE_TOLERANCE)
        return AdjustedLoss(base, **settings)

    def __str__(self) -> str:
        """The shortest name; `parse_loss` understands it."""
        base = self.base + _arguments(self.base_options)
        if self.adjuster is None:
            return base
        if base == DEFAULT_BASE and self.adjuster.keys() == {"threshold"}:
            return f"baa-{_number(self.adjuster['threshold'])}"
        options = dict(self.adjuster)
        return "baa" + _arguments(options if base == DEFAULT_BASE else {"base": base, **options})


def parse_loss(text: str) -> LossName:
    """Understand a loss's name.

    Raises:
        ConfigError: An unknown name or option, answered with the known ones.

    >>> parse_loss("baa(base=swbce, threshold=0.6)").build().base
    SWBCELoss(balance=1.1, from_logits=True, reduction='mean')
    >>> parse_loss("wbec")
    Traceback (most recent call last):
    knifeedge.errors.ConfigError: there is no loss 'wbec' (the closest is 'wbce'); there are ...
    """
    short = re.fullmatch(rf"\s*baa-([0-9.]+(?:e-?[0-9]+)?|{SELF_ADAPTIVE}|{ONLINE})\s*", text)
    written = f"baa(threshold={short[1]})" if short else text
    try:
        # A name with options has the form of a call in Python; it is read, never run.
        name = _loss(ast.parse(written.strip(), mode="eval").body)
        name.at(0.5).build()  # refuses options out of range now, not after an hour of training
    except (SyntaxError, RecursionError, MemoryError, _UnreadableError, ValueError) as error:
        why = error.msg if isinstance(error, SyntaxError) else error
        raise ConfigError(
            f"the loss {text!r} cannot be understood ({why}); it should look like wbce, baa-0.7,"
            " baa-sa or baa(base=swbce,threshold=0.6)"
        ) from None
    return name


def loss_folder(loss: str) -> str:
    """A loss's name as part of a folder's.

    >>> loss_folder("baa(base=swbce,threshold=0.6)")
    'baa-base=swbce,threshold=0.6'
    """
    return "".join(c if c.isalnum() or c in ".-=,_" else "-" for c in loss).strip("-")


class _UnreadableError(Exception):
    """A part of a name that means nothing."""


def _loss(node: ast.expr) -> LossName:
    call = node if isinstance(node, ast.Call) else ast.Call(node, [], [])
    if not isinstance(call.func, ast.Name) or call.args:
        raise _UnreadableError("options are written key=value")
    word, options = call.func.id, {str(key.arg): key.value for key in call.keywords}
    if len(options) < len(call.keywords):
        raise _UnreadableError("an option is given twice")
    if word == "baa":
        _check_options("baa", options, ("base", *ADJUSTER_OPTIONS))
        base = _loss(options.pop("base", ast.Name(DEFAULT_BASE)))
        if base.adjuster is not None:
            raise _UnreadableError("base must be a loss that is not adjusted")
        adjuster = {key: _value(key, value) for key, value in options.items()}
        return LossName(base.base, base.base_options, adjuster)
    if word not in LOSSES:
        known = [*LOSSES, "baa-0.7", "baa-sa", "baa-online", "baa(...)"]
        hint = closest(word, known)
        raise ConfigError(f"there is no loss {word!r}{hint}; there are {', '.join(known)}")
    defaults = _option_defaults(LOSSES[word])
    _check_options(word, options, tuple(defaults))
    values = {key: float(_value(key, value)) for key, value in options.items()}
    for key, value in values.items():
        if type(defaults[key]) is int and not value.is_integer():
            raise _UnreadableError(f"{key} must be a whole number")
    return LossName(word, values)


def _value(key: str, node: ast.expr) -> float | str:
    if key == "threshold" and isinstance(node, ast.Name) and node.id in (SELF_ADAPTIVE, ONLINE):
        return node.id
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value = float(node.value)  # type: ignore[arg-type]
        if value < float("inf"):
            return sign * value
    raise _UnreadableError(f"{key} must be a finite number")


def _check_options(loss: str, options: Mapping[str, object], known: tuple[str, ...]) -> None:
    for key in options:
        if key not in known:
            has = ", ".join(known) or "none"
            hint = closest(key, known)
            raise ConfigError(f"loss {loss} has no option {key!r}{hint}; it has {has}")


def _option_defaults(loss: type[PixelLoss] | type[RegionLoss]) -> dict[str, float]:
    """The options of a loss that a name may set, its numbers, with their defaults."""
    parameters = inspect.signature(loss).parameters.values()
    return {p.name: p.default for p in parameters if type(p.default) in (int, float)}


def _arguments(options: Mapping[str, object]) -> str:
    inside = ",".join(f"{key}={_number(value)}" for key, value in options.items())
    return f"({inside})" if inside else ""


def _number(value: object) -> str:
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)  # of a float, all the digits it takes
