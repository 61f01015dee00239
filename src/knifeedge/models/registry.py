"""Models by name: the built-in ones, and a user's own beside them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

from torch import nn

from knifeedge.errors import ConfigError, closest
from knifeedge.typed import annotations, check_options

Factory = TypeVar("Factory", bound=Callable[..., nn.Module])


@dataclass(frozen=True)
class ModelEntry:
    """A registered model: its name, what builds it, and one line about it."""

    name: str
    factory: Callable[..., nn.Module]
    description: str

    @property
    def options(self) -> list[str]:
        """The names of the options its factory takes."""
        return list(self.kinds)

    @property
    def kinds(self) -> dict[str, Any]:
        """What each option may be: its annotation."""
        return annotations(self.factory)

    @property
    def weight_options(self) -> list[str]:
        """Those of them that name a weights file to start from."""
        return [option for option, kind in self.kinds.items() if Path in get_args(kind)]

    def check(self, options: Mapping[str, Any]) -> None:
        """Refuse options that the factory does not take, or whose values are of another type."""
        known = self.kinds
        kinds = {p.kind for p in inspect.signature(self.factory).parameters.values()}
        if inspect.Parameter.VAR_KEYWORD in kinds:
            options = {name: value for name, value in options.items() if name in known}
        check_options(f"model {self.name!r}", options, known)


_ENTRIES: dict[str, ModelEntry] = {}


@overload
def register_model(
    name: str, factory: Factory, description: str = "", *, replace: bool = False
) -> Factory: ...
@overload
def register_model(
    name: str, factory: None = None, description: str = "", *, replace: bool = False
) -> Callable[[Factory], Factory]: ...
def register_model(
    name: str,
    factory: Any = None,
    description: str = "",
    *,
    replace: bool = False,
) -> Any:
    """Give a model a name for `create_model`; as a call, or as a decorator without `factory`.

    The model maps images (N, 3, H, W) to a list of logits (N, 1, H, W), the final one last.

    Args:
        name: how to call it.
        factory: a function or class that builds it from keyword options.
        description: one line; the first line of the factory's docstring without it.
        replace: whether the name may be taken already.

    Returns:
        The factory, unchanged.

    >>> @register_model("one-filter", description="a single convolution", replace=True)
    ... class OneFilter(nn.Conv2d):
    ...     def __init__(self, size: int = 3):
    ...         super().__init__(3, 1, size, padding=size // 2)
    ...     def forward(self, images):
    ...         return [super().forward(images)]
    >>> create_model("one-filter", size=5).kernel_size
    (5, 5)
    """
    if factory is None:
        return lambda f: register_model(name, f, description, replace=replace)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a model's name must be a non-empty text, got {name!r}")
    if not callable(factory):
        raise ConfigError(f"the factory of model {name!r} must be callable, got {factory!r}")
    if name in _ENTRIES and not replace:
        raise ConfigError(
            f"there is a model {name!r} already; take another name, or replace=True to replace it"
        )
    if not description:
        description = (inspect.getdoc(factory) or "").partition("\n")[0]
    _ENTRIES[name] = ModelEntry(name, factory, description)
    return factory


def create_model(name: str, **options: Any) -> nn.Module:
    """Build a model by name, with random weights that follow `torch.manual_seed`.

    Args:
        name: one of `model_names()`.
        **options: the model's own, such as `side_channels`, `vgg16` or `attention`.

    Returns:
        A module that maps images (N, 3, H, W) to a list of logits (N, 1, H, W), the final one
        last.

    Raises:
        ConfigError: for an unknown name or option, naming the known ones, or a value of another
            type.

    >>> import torch
    >>> model = create_model("tiny").eval()
    >>> [tuple(logit.shape) for logit in model(torch.zeros(1, 3, 33, 47))][-1]
    (1, 1, 33, 47)
    """
    entry = model_entry(name)
    entry.check(options)
    model = entry.factory(**options)
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"the factory of model {name!r} must return a torch.nn.Module, got {model!r}"
        )
    return model


def model_names() -> list[str]:
    """The registered names, sorted.

    >>> model_names()[:2]
    ['bdcn', 'dexined']
    """
    return sorted(_ENTRIES)


def model_entry(name: str) -> ModelEntry:
    """What is registered under a name.

    >>> model_entry("heed")
    Traceback (most recent call last):
    ...
    knifeedge.errors.ConfigError: there is no model 'heed' (the closest is 'hed'); there are bdcn...
    """
    if name not in _ENTRIES:
        raise ConfigError(
            f"there is no model {name!r}{closest(name, model_names())};"
            f" there are {', '.join(model_names())}"
        )
    return _ENTRIES[name]
