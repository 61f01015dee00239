"""Match pictures: what a map hits, adds and misses at one threshold under a protocol.

One pixel a decision, on white:

| colour | meaning |
| --- | --- |
| black | hit: a pixel of the map matched with some annotator |
| vermilion | false alarm: a pixel of the map matched with none |
| sky blue | miss: a ground-truth pixel that no annotator's matching reached |

Where two meanings meet in a pixel, the map's is drawn. The colours are from the Okabe-Ito set, told
apart with any common colour blindness, and differ in lightness too.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from knifeedge.disk import write_atomically
from knifeedge.errors import DataError
from knifeedge.metrics.counts import check_map
from knifeedge.metrics.inputs import GroundTruths, Maps, Reader, pair
from knifeedge.metrics.matching import Mask, match, tolerance_squared
from knifeedge.metrics.nms import suppress
from knifeedge.metrics.outputs import file_name
from knifeedge.metrics.protocols import Protocol, get_protocol
from knifeedge.metrics.scores import EdgeScores
from knifeedge.metrics.thinning import thin

HIT = (0, 0, 0)
FALSE_ALARM = (213, 94, 0)
MISS = (86, 180, 233)
BACKGROUND = (255, 255, 255)
PALETTE = (BACKGROUND, HIT, FALSE_ALARM, MISS)  # by class: 0 nothing, 1 hit, 2 false alarm, 3 miss


def match_picture(
    prob: npt.NDArray[Any],
    ground_truths: npt.NDArray[Any] | Sequence[npt.NDArray[Any]],
    *,
    threshold: float,
    protocol: str | Protocol = "paper-strict",
) -> npt.NDArray[np.uint8]:
    """Draw hits, false alarms and misses of one image: `match_classes` in colours, RGB (H, W, 3).

    >>> edges = np.array([[True, False, False, True]])
    >>> picture = match_picture(np.array([[0.9, 0.9, 0.1, 0.1]]), edges, threshold=0.5)
    >>> picture[0].tolist()
    [[0, 0, 0], [213, 94, 0], [255, 255, 255], [86, 180, 233]]
    """
    classes = match_classes(prob, ground_truths, threshold=threshold, protocol=protocol)
    return np.array(PALETTE, dtype=np.uint8)[classes]


def match_classes(
    prob: npt.NDArray[Any],
    ground_truths: npt.NDArray[Any] | Sequence[npt.NDArray[Any]],
    *,
    threshold: float,
    protocol: str | Protocol = "paper-strict",
) -> npt.NDArray[np.uint8]:
    """What each pixel of one image is: 0 nothing, 1 a hit, 2 a false alarm, 3 a miss.

    Args:
        prob: (H, W) in [0,1].
        ground_truths: A boolean (H, W) array, or several, one an annotator.
        threshold: The map's edges are where `prob >= threshold`, after NMS if the protocol has it.
        protocol: A name from `PROTOCOLS`, or a record.

    Returns:
        (H, W).

    >>> edges = np.array([[True, False, False, True]])
    >>> match_classes(np.array([[0.9, 0.9, 0.1, 0.1]]), edges, threshold=0.5)
    array([[1, 2, 0, 3]], dtype=uint8)
    """
    chosen = get_protocol(protocol)
    prob = check_map(prob, "prob")
    truths = [ground_truths] if isinstance(ground_truths, np.ndarray) else list(ground_truths)
    if not truths or any(truth.shape != prob.shape for truth in truths):
        shapes = ", ".join(str(truth.shape) for truth in truths) or "none"
        raise ValueError(f"ground_truths must have the map's shape {prob.shape}, got {shapes}")
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be in (0,1], got {threshold}; at 0 all pixels are edges")
    # As in the counts, the threshold is rounded to the map's precision.
    pred = (suppress(prob) if chosen.nms else prob) >= prob.dtype.type(threshold)
    if chosen.thin:
        pred = thin(pred)
    radius_squared = tolerance_squared(pred.shape, chosen.max_dist, chosen.unit)
    hit, reached, marked = (np.zeros(pred.shape, dtype=bool) for _ in range(3))
    for truth in truths:
        truth = np.asarray(truth, dtype=bool)
        pred_hit, truth_hit = match(pred, truth, radius_squared=radius_squared)
        hit |= pred_hit
        reached |= truth_hit
        marked |= truth
    return as_classes(pred, hit, marked & ~reached)


def as_classes(pred: Mask, hit: Mask, missed: Mask) -> npt.NDArray[np.uint8]:
    """Classes of pixels from masks; where two meet, the map's is kept.

    >>> rows = np.array([[True, True, False], [False, True, False], [True, False, True]])
    >>> as_classes(*rows)
    array([2, 1, 3], dtype=uint8)
    """
    classes = np.zeros(pred.shape, dtype=np.uint8)
    for mask, colour in ((missed, MISS), (pred, FALSE_ALARM), (hit, HIT)):
        classes[mask] = PALETTE.index(colour)
    return classes


def write_pictures(
    folder: str | Path,
    maps: Maps,
    ground_truths: GroundTruths,
    scores: EdgeScores,
    *,
    threshold: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write NAME.png for every scored image.

    Args:
        folder: Where to write; not where the maps or the ground truths are.
        maps: The folder or the dict of maps that was scored.
        ground_truths: The folder or the dict of ground truths.
        scores: What `evaluate` gave for them; says the protocol and how the images are read.
        threshold: One of 0.01 .. 0.99, or the nearest to it; that of the ODS if none is given.
        progress: Called as progress(done, total) after each picture.

    >>> import tempfile
    >>> from knifeedge.metrics.evaluate import evaluate
    >>> edges = {"a": np.eye(8, dtype=bool)}
    >>> maps = {"a": np.eye(8)}
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_pictures(folder, maps, edges, evaluate(maps, edges))
    >>> [path.name for path in folder.iterdir()]
    ['a.png']
    """
    check_pictures(folder, maps, ground_truths)
    at = scores.at(scores.threshold if threshold is None else threshold).threshold
    reader = Reader(**scores.options)
    images = {image.name: image for image in pair(maps, ground_truths)[0]}
    for done, name in enumerate(scores.names, start=1):
        prob, truths = reader.load(images[name])
        picture = match_picture(prob, truths, threshold=at, protocol=scores.protocol)
        buffer = io.BytesIO()
        Image.fromarray(picture).save(buffer, format="PNG")
        write_atomically(Path(folder) / f"{file_name(name)}.png", buffer.getvalue())
        if progress is not None:
            progress(done, len(scores.names))


def check_pictures(folder: str | Path, maps: object, ground_truths: object) -> None:
    """Refuse a folder whose files the pictures would replace: they have the same names.

    >>> check_pictures("pictures", "maps", "truths")
    """
    into = Path(folder)
    sources = [Path(place) for place in (maps, ground_truths) if isinstance(place, str | Path)]
    if into.exists() and any(place.exists() and into.samefile(place) for place in sources):
        raise DataError(f"{folder} holds what is scored; name another folder for the pictures")
