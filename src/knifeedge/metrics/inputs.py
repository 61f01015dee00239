"""What a user hands to `evaluate`, as a list of images: folders, arrays, lists or dicts of arrays.

Arrays and files follow the same rules: see `values`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from knifeedge.errors import DataError
from knifeedge.metrics.files import find_pairs, read_ground_truths, read_map
from knifeedge.metrics.values import (
    LABEL_THRESHOLD,
    Annotators,
    Array,
    Edges,
    Scale,
    as_ground_truths,
    as_prob,
    check_options,
)

Maps = str | Path | Array | Sequence[Array] | Mapping[str, Array]
GroundTruths = (
    str | Path | Array | Sequence[Array | Sequence[Array]] | Mapping[str, Array | Sequence[Array]]
)


@dataclass(frozen=True)
class Image:
    """One image to score: where its map and ground truth are, or the arrays themselves."""

    name: str
    map: Path | Array
    ground_truth: Path | Array | Sequence[Array]


@dataclass(frozen=True)
class Reader:
    """How maps become probabilities and ground truths edges.

    Attributes:
        scale: "unit", "255" or "stretch" (each map by its own minimum and maximum).
        annotators: "all", "first" or "merged".
        label_threshold: An edge is greater than this fraction of full scale.
    """

    scale: Scale = "unit"
    annotators: Annotators = "all"
    label_threshold: float = LABEL_THRESHOLD

    def __post_init__(self) -> None:
        """Refuse options that do not exist, before any file is read."""
        check_options(
            scale=self.scale, annotators=self.annotators, label_threshold=self.label_threshold
        )

    def load(self, image: Image) -> tuple[Array, list[Edges]]:
        """The map in [0,1] and its ground truths, all of one shape.

        >>> Reader(scale="255").load(Image("a", np.array([[0, 255]], np.uint8), np.array([[0, 1]])))
        (array([[0., 1.]], dtype=float32), [array([[False,  True]])])
        """
        prob = self._map(image.map)
        truths = self._ground_truths(image.ground_truth)
        others = sorted({truth.shape for truth in truths} - {prob.shape})
        if others:
            raise DataError(
                f"the map has shape {prob.shape}, its ground truth {others[0]}; they must be equal"
            )
        return prob, truths

    def _map(self, source: Path | Array) -> Array:
        if isinstance(source, Path):
            return read_map(source, scale=self.scale)
        return as_prob(source, scale=self.scale)

    def _ground_truths(self, source: Path | Array | Sequence[Array]) -> list[Edges]:
        at, annotators = self.label_threshold, self.annotators
        if isinstance(source, Path):
            return read_ground_truths(source, annotators=annotators, label_threshold=at)
        return as_ground_truths(source, annotators=annotators, label_threshold=at)


def pair(
    maps: Maps, ground_truths: GroundTruths, names: Sequence[str] | None = None
) -> tuple[list[Image], dict[str, str]]:
    """Bring maps and ground truths together.

    Args:
        maps: A folder, an array (H, W), a list of such or an array (N, H, W), or a dict by name.
        ground_truths: The same kind; an entry of a list or dict may be several annotators'.
        names: Names for a list of maps.

    Returns:
        The images, and the names that have no partner with the reason.

    >>> edges = np.ones((2, 2))
    >>> images, unpaired = pair({"a": edges}, {"a": edges, "b": edges})
    >>> [image.name for image in images], unpaired
    (['a'], {'b': 'no map'})
    """
    maps, ground_truths = _plain("maps", maps), _plain("ground_truths", ground_truths)
    if isinstance(maps, str | Path) and isinstance(ground_truths, str | Path):
        if names is not None:
            raise ValueError("names are for lists of arrays; files are named by their stem")
        pairs, unpaired = find_pairs(maps, ground_truths)
        return [Image(p.name, p.map, p.ground_truth) for p in pairs], unpaired
    if isinstance(maps, Mapping) and isinstance(ground_truths, Mapping):
        if names is not None:
            raise ValueError("names are for lists of arrays; a dict has them as its keys")
        return _pair_dicts(maps, ground_truths)
    kinds = (str, Path, Mapping)
    if isinstance(maps, kinds) or isinstance(ground_truths, kinds):
        raise TypeError(
            "maps and ground_truths must be of one kind, two folders, two dicts or arrays, got "
            f"{type(maps).__name__} and {type(ground_truths).__name__}"
        )
    if isinstance(maps, np.ndarray) and maps.ndim == 2:
        # One image: the ground truth is its annotators', not a list of images'.
        return _pair_lists([maps], [ground_truths], names), {}  # type: ignore[list-item]
    return _pair_lists(maps, ground_truths, names), {}


def _plain(name: str, given: Any) -> Any:
    """As it is; what only says how it becomes an array, such as a tensor, as that array."""
    if isinstance(given, str | Path | Mapping | Sequence | np.ndarray):
        return given
    if not hasattr(given, "__array__"):
        raise TypeError(
            f"{name} must be a folder, an array, or a list or dict of arrays, got"
            f" {type(given).__name__}"
        )
    return np.asarray(given)


def _pair_dicts(
    maps: Mapping[str, Array], ground_truths: Mapping[str, Array | Sequence[Array]]
) -> tuple[list[Image], dict[str, str]]:
    unpaired = {name: "no ground truth" for name in maps if name not in ground_truths}
    unpaired |= {name: "no map" for name in ground_truths if name not in maps}
    images = [
        Image(str(name), array, ground_truths[name])
        for name, array in maps.items()
        if name in ground_truths
    ]
    return images, unpaired


def _pair_lists(
    maps: Array | Sequence[Array],
    ground_truths: Array | Sequence[Array | Sequence[Array]],
    names: Sequence[str] | None,
) -> list[Image]:
    labels = [str(i) for i in range(len(maps))] if names is None else list(names)
    if not len(maps) == len(ground_truths) == len(labels):
        raise DataError(
            f"maps, ground_truths and names must be as many, got {len(maps)}, "
            f"{len(ground_truths)} and {len(labels)}"
        )
    if len(set(labels)) < len(labels):
        raise DataError("names must differ; a name stands for one image in the result")
    return [
        Image(name, array, truth)
        for name, array, truth in zip(labels, maps, ground_truths, strict=True)
    ]
