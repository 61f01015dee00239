"""What the numbers of a map or a ground truth mean: one rule, for arrays and for files.

Maps are floats in [0,1] or booleans; `scale` says where they are otherwise. In a ground truth an
edge is where the value, as a fraction of full scale (255 in uint8, 65535 in uint16, 1 otherwise),
is greater than `label_threshold`. A ground truth in uint16 without a value above 255 was one of
8 bits, and has their scale. Integers that are all 0 or 1 are labels already: 1 is an edge.

Each function takes a `name` for its errors: the file's path, or what an array is.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from knifeedge.errors import DataError

Annotators = Literal["all", "first", "merged"]
Scale = Literal["unit", "255", "stretch"]
Array = npt.NDArray[Any]
Edges = npt.NDArray[np.bool_]

LABEL_THRESHOLD = 0.5
FULL_SCALE = {"bool": 1, "uint8": 255, "uint16": 65535}


def check_options(
    *,
    scale: str = "unit",
    annotators: str = "all",
    label_threshold: float = LABEL_THRESHOLD,
) -> None:
    """Refuse options that do not exist, before any file is read.

    >>> check_options(scale="255", annotators="merged", label_threshold=0.0)
    """
    for name, value, choices in (("scale", scale, Scale), ("annotators", annotators, Annotators)):
        if value not in get_args(choices):
            raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {value!r}")
    if not 0 <= label_threshold < 1:
        raise ValueError(f"label_threshold must be in [0,1), got {label_threshold}")


def as_prob(array: npt.ArrayLike, *, scale: Scale = "unit", name: object = "the map") -> Array:
    """A map as probabilities.

    Args:
        array: (H, W), floats or booleans; where `scale` is not "unit", integers too.
        scale: "unit": values are in [0,1]. "255": they are in 0..255, and divided by 255.
            "stretch": the map's own minimum becomes 0 and its maximum 1, a constant map all 0.
        name: What it is called in errors.

    Returns:
        (H, W) in [0,1], float32, or float64 where the numbers are wider than float32.

    >>> as_prob(np.array([[0, 255]], dtype=np.uint8), scale="255")
    array([[0., 1.]], dtype=float32)
    """
    given = _checked(array, name, ndims=(2,))
    # float32 where it holds the numbers exactly: a double cast to it may cross a threshold.
    narrow = np.result_type(given.dtype, np.float32) == np.float32
    with np.errstate(over="ignore", invalid="ignore"):  # beyond a double is infinity, refused below
        prob: Array = np.ascontiguousarray(given, dtype=np.float32 if narrow else np.float64)
        low, high = prob.min(), prob.max()
        span = high - low
    if scale == "stretch":
        if not np.isfinite(span):
            raise DataError(
                f"{name} holds values from {low:g} to {high:g}, too far apart to stretch"
            )
        prob = (prob - low) / (span or 1)
        return prob
    remedy = "read values in 0..255 with scale='255' (--scale 255), or save probabilities"
    if scale == "unit" and given.dtype.kind in "iu":
        kind = f"integers ({given.dtype})"
        raise DataError(f"{name} holds {kind}, whose scale is not known; {remedy}")
    top = 255 if scale == "255" else 1
    if low < 0 or high > top:
        remedy = "rescale the array" if scale == "255" else f"apply a sigmoid to logits, {remedy}"
        raise DataError(f"{name} must be in [0,{top}], got {low:g} to {high:g}; {remedy}")
    return prob / 255 if scale == "255" else prob


def as_ground_truths(
    source: Array | Sequence[Array],
    *,
    annotators: Annotators = "all",
    label_threshold: float = LABEL_THRESHOLD,
    name: object = "the ground truth",
) -> list[Edges]:
    """The ground truths of one image.

    Args:
        source: An array (H, W) or (annotators, H, W), which has one scale for all of them; or a
            list of arrays (H, W), each with its own.
        annotators: "all": one array an annotator; "first": the first only; "merged": one array, an
            edge where any annotator marked one.
        label_threshold: An edge is greater than this fraction of full scale, in [0,1).
        name: What they are called in errors.

    Returns:
        (H, W) boolean arrays of one shape.

    >>> as_ground_truths(np.array([[[1, 0]], [[0, 0]]]), annotators="merged")
    [array([[ True, False]])]
    """
    if isinstance(source, Sequence):
        truths = [as_edges(one, label_threshold, name=name) for one in source]
    else:
        values = _checked(source, name, ndims=(2, 3))
        truths = list(positives(values, label_threshold, name=name).reshape(-1, *values.shape[-2:]))
    if not truths:
        raise DataError("there is no ground truth; give at least one array")
    shapes = sorted({truth.shape for truth in truths})
    if len(shapes) > 1:
        raise DataError(f"{name} has annotators of shapes {shapes}; they must be one image's")
    if annotators == "first":
        return truths[:1]
    return [np.logical_or.reduce(truths)] if annotators == "merged" else truths


def as_edges(
    array: npt.ArrayLike,
    label_threshold: float = LABEL_THRESHOLD,
    *,
    name: object = "the ground truth",
) -> Edges:
    """One annotator's ground truth (H, W) as booleans.

    >>> as_edges(np.array([[0, 127, 128]], dtype=np.uint8))
    array([[False, False,  True]])
    """
    return positives(_checked(array, name, ndims=(2,)), label_threshold, name=name)


def positives(
    values: Array,
    label_threshold: float = LABEL_THRESHOLD,
    *,
    name: object = "the ground truth",
) -> Edges:
    """The rule of ground truths for an array of any shape that is not empty.

    >>> positives(np.array([0.2, 0.9]))
    array([False,  True])
    """
    low, high = float(values.min()), float(values.max())  # NaN carries through to the test
    if values.dtype.kind in "biu" and low >= 0 and high <= 1:
        return np.ascontiguousarray(values, dtype=bool)
    full = FULL_SCALE.get(values.dtype.name, 1)
    if full == FULL_SCALE["uint16"] and high <= FULL_SCALE["uint8"]:
        full = FULL_SCALE["uint8"]
    if not (low >= 0 and high <= full):
        raise DataError(
            f"{name} ({values.dtype}) must be in [0,{full}], got {low:g} to {high:g}; "
            "give booleans, 0 and 1, uint8 0 and 255, or floats in [0,1]"
        )
    return np.ascontiguousarray(values / full > label_threshold)


def _checked(array: npt.ArrayLike, name: object, *, ndims: Sequence[int]) -> Array:
    """Refuse what is not an array of finite real numbers of the right number of axes."""
    values = np.asarray(array)
    if values.dtype.kind not in "biuf":
        raise DataError(
            f"{name} holds {values.dtype} and not real numbers; give floats or booleans"
        )
    if values.ndim not in ndims or values.size == 0:
        axes = "(height, width)" if 3 not in ndims else "(height, width) or (annotators, ...)"
        raise DataError(f"{name} has shape {values.shape}; {axes} is needed")
    if not np.isfinite(values).all():
        raise DataError(f"{name} holds NaN or infinite values; mend what made it")
    return values
