"""Values judged by type annotations: the fields of a dataclass, the options of what takes some.

A key that does not exist is refused with the nearest one that does, a value of another type with
what it must be.
"""

import contextlib
import dataclasses
import inspect
import json
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from knifeedge.errors import ConfigError, closest

Record = TypeVar("Record")


class KeyedError(ConfigError):
    """A configuration error at one key, and there at one value where that is known."""

    def __init__(self, key: str, message: str, value: object = None) -> None:
        super().__init__(message)
        self.key, self.value = key, value


def from_mapping(cls: type[Record], content: Any, where: str = "") -> Record:
    """A configuration from what a TOML or JSON file holds.

    Args:
        cls: A dataclass, whose fields may be dataclasses.
        content: Its fields by name; a nested field may be missing if it has a default.
        where: The table it is from, for messages.

    >>> from knifeedge.config import ModelConfig
    >>> from_mapping(ModelConfig, {"nam": "hed"})
    Traceback (most recent call last):
    knifeedge.typed.KeyedError: there is no key 'nam' (the closest is 'name'); there are name, ...
    """
    if not isinstance(content, Mapping):
        raise KeyedError(where, f"{where or 'a configuration'} must be a table, got {content!r}")
    fields = {entry.name: entry for entry in dataclasses.fields(cls)}  # type: ignore[arg-type]
    types_of, values, inside = get_type_hints(cls), {}, f" in [{where}]" if where else ""
    for key, value in content.items():
        if key not in fields:
            hint, known = closest(key, fields), ", ".join(fields)
            raise KeyedError(key, f"there is no key {key!r}{inside}{hint}; there are {known}")
        values[key] = checked(key, value, types_of[key])
    required = (dataclasses.MISSING, dataclasses.MISSING)
    for name, entry in fields.items():
        if name not in values and (entry.default, entry.default_factory) == required:
            raise ConfigError(f"{name} is missing{inside}")
    return cls(**values)


def to_mapping(config: Any) -> dict[str, Any]:
    """A configuration as JSON values; `from_mapping` gives it back.

    >>> from knifeedge.config import ModelConfig
    >>> to_mapping(ModelConfig("hed", {"side_channels": 21}))
    {'name': 'hed', 'options': {'side_channels': 21}}
    """
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config), default=str))
    return plain


def checked(key: str, value: Any, wanted: Any) -> Any:
    """The value as an annotation wants it; a whole number does as a float, a list as a tuple.

    Args:
        key: Its name, for the message.
        value: To be judged.
        wanted: The annotation; one that is none of plain values is taken to fit.

    >>> checked("ignore", 128.5, int | None)
    Traceback (most recent call last):
    knifeedge.typed.KeyedError: ignore must be a whole number, got 128.5
    """
    try:
        return _converted(key, value, wanted)
    except OverflowError:
        raise KeyedError(key, f"{key} must be a number, got one that is too large") from None
    except _MisfitError:
        message = f"{key} must be {_in_words(wanted)}, got {value!r}"
        raise KeyedError(key, message, value) from None


def annotations(*takers: Callable[..., Any]) -> dict[str, Any]:
    """The annotation of each argument that some callables have a name for.

    >>> annotations(checked)["key"]
    <class 'str'>
    """
    found: dict[str, Any] = {}
    for taker in takers:
        try:
            signature = inspect.signature(taker, eval_str=True)
        except Exception:  # a text that only type checkers understand
            signature = inspect.signature(taker)
        kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        found |= {n: p.annotation for n, p in signature.parameters.items() if p.kind not in kinds}
    return found


def check_options(what: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Refuse an option that does not exist, or whose value is of another type.

    Args:
        what: What has the options.
        options: Given.
        known: The annotation of each there is.

    >>> check_options("UDED", {"flod": 1}, {"annotator": int, "fold": int})
    Traceback (most recent call last):
    knifeedge.typed.KeyedError: UDED has no option 'flod' (the closest is 'fold'); it has ...
    """
    for name, value in options.items():
        if name not in known:
            has = f"it has {', '.join(known) or 'none'}"
            raise KeyedError(name, f"{what} has no option {name!r}{closest(name, known)}; {has}")
        checked(name, value, known[name])


class _MisfitError(Exception):
    """A value of another type."""


_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    Mapping: "a table",
    tuple: "a list",
    type(None): "None",
}


def _converted(key: str, value: Any, wanted: Any) -> Any:
    """The value as it is wanted.

    Raises:
        _MisfitError: It cannot be had so.
        OverflowError: It is too large for a float.
    """
    origin, arguments = get_origin(wanted) or wanted, get_args(wanted)
    fits = False
    if dataclasses.is_dataclass(wanted) and isinstance(wanted, type):
        return value if isinstance(value, wanted) else from_mapping(wanted, value, key)
    if origin in (Union, types.UnionType):
        for kind in arguments:
            with contextlib.suppress(_MisfitError):
                return _converted(key, value, kind)
    elif origin is Literal:
        fits = value in arguments
    elif origin is tuple and isinstance(value, list | tuple):
        arguments = arguments or (Any, ...)
        kinds = arguments[:1] * len(value) if arguments[-1:] == (...,) else arguments
        if len(kinds) == len(value):
            return tuple(_converted(key, v, kind) for v, kind in zip(value, kinds, strict=True))
    elif isinstance(value, bool):
        fits = origin is bool or origin not in _WORDS  # Python takes it for an int
    elif origin is float and isinstance(value, int):
        return float(value)
    elif origin is Path:
        fits = isinstance(value, str | Path)
    else:
        fits = origin not in _WORDS or isinstance(value, origin)
    if not fits:
        raise _MisfitError
    return value


def _in_words(wanted: Any) -> str:
    """What an annotation asks for."""
    arguments = get_args(wanted)
    if get_origin(wanted) in (Union, types.UnionType):
        return " or ".join(_in_words(kind) for kind in arguments if kind is not type(None))
    if get_origin(wanted) is Literal:
        return " or ".join(map(repr, arguments))
    if get_origin(wanted) is tuple:
        several = arguments[-1:] == (...,)
        return f"a list{'' if several else f' of {len(arguments)}'}, each {_in_words(arguments[0])}"
    if dataclasses.is_dataclass(wanted):
        return "a table"
    return _WORDS.get(get_origin(wanted) or wanted, str(wanted))
