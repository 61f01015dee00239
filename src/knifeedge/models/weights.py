"""Weights from local files: a state dict from safetensors, or from torch.save."""

import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from knifeedge.errors import CheckpointError


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Read a state dict: `.safetensors`, or `.pth` / `.pt` without executing anything in it.

    Raises:
        CheckpointError: if there is no such file, or it holds something else.

    >>> read_weights("nowhere.pth")
    Traceback (most recent call last):
    ...
    knifeedge.errors.CheckpointError: there is no weights file nowhere.pth
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"there is no weights file {path}")
    match path.suffix:
        case ".safetensors":
            state = _read_safetensors(path)
        case ".pth" | ".pt":
            state = _read_torch(path)
        case other:
            raise CheckpointError(
                f"weights must be a .safetensors, .pth or .pt file, got {other!r}: {path}"
            )
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise CheckpointError(f"{path} must hold a state dict: tensors by name, and nothing else")
    return dict(state)


def load_into(model: nn.Module, path: str | Path) -> None:
    """Load a state dict file into a model that it must fit exactly.

    >>> load_into(nn.Linear(2, 1), "nowhere.pth")
    Traceback (most recent call last):
    ...
    knifeedge.errors.CheckpointError: there is no weights file nowhere.pth
    """
    fit(model, read_weights(path), path)


def fit(model: nn.Module, state: Mapping[str, Tensor], path: str | Path) -> None:
    """Load a state dict that was read from `path` into a model that it must fit exactly.

    >>> fit(nn.Linear(2, 1), {"weight": torch.zeros(1, 2)}, "a.pth")
    Traceback (most recent call last):
    ...
    knifeedge.errors.CheckpointError: a.pth does not fit Linear: bias is missing; ...
    """
    own = model.state_dict()
    problems = misfits(state, own) + [f"{name} is unknown" for name in state if name not in own]
    if problems:
        raise CheckpointError(
            f"{path} does not fit {type(model).__name__}: {first_few(problems)};"
            f" was it trained with the same options?"
        )
    model.load_state_dict(state)


def misfits(state: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> list[str]:
    """What a state dict lacks, or has in another shape than wanted.

    >>> misfits({"a": torch.zeros(2)}, {"a": torch.zeros(3), "b": torch.zeros(1)})
    ['a is (2,), not (3,)', 'b is missing']
    """
    problems = []
    for name, own in wanted.items():
        if name not in state:
            problems.append(f"{name} is missing")
        elif state[name].shape != own.shape:
            problems.append(f"{name} is {tuple(state[name].shape)}, not {tuple(own.shape)}")
    return problems


def first_few(problems: list[str]) -> str:
    """The first three, and how many more there are.

    >>> first_few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = len(problems) - 3
    return ", ".join(problems[:3]) + (f" and {more} more" if more > 0 else "")


def _read_safetensors(path: Path) -> object:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path} cannot be read as safetensors: {reason}") from None


def _read_torch(path: Path) -> object:
    try:
        with warnings.catch_warnings(action="ignore"):  # of pickles it then refuses
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file: IndexError, struct.error, AssertionError, ...
        reason = getattr(error, "strerror", None) or (
            "it is damaged, or holds more than tensors; save them with"
            " torch.save(network.state_dict(), ...)"
        )
        raise CheckpointError(f"{path} cannot be read as weights only: {reason}") from None
