"""What becomes of every pixel at each of the 99 thresholds, small enough to travel in a page.

At a threshold a pixel is one of four things, as in `metrics.pictures`: 0 nothing, 1 a hit, 2 a
false alarm, 3 a miss; where two meet, the map's is kept. The classes come from the protocol's own
steps (suppression, threshold, thinning, nearest maximum matching), so that a page which counts
them counts what the scores count.

Packed: 2 bits a pixel in reading order, the lowest bits first, each threshold filled up to a whole
byte; from the second threshold on, the difference (exclusive or) to the one before; zlib; base64.
"""

import base64
import zlib

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.counts import THRESHOLDS, Array
from knifeedge.metrics.curves import Counts
from knifeedge.metrics.matching import Mask, match, tolerance_squared
from knifeedge.metrics.nms import suppress
from knifeedge.metrics.protocols import Protocol
from knifeedge.metrics.thinning import thin

Classes = npt.NDArray[np.uint8]

NOTHING, HIT, FALSE_ALARM, MISS = range(4)


def pixel_classes(prob: Array, truth: Mask, protocol: Protocol) -> tuple[Classes, Counts]:
    """Classes of all pixels at the 99 thresholds, and the counts that they give.

    Args:
        prob: (H, W) in [0,1].
        truth: bool (H, W), one annotator's.
        protocol: The scoring protocol.

    Returns:
        uint8 (99, H, W), and int64 (99, 4) as `match_counts` gives it.

    >>> edges = np.array([[True, False, False, True]])
    >>> protocol = Protocol("pixel", max_dist=0.0, unit="pixel")
    >>> classes, counts = pixel_classes(np.array([[0.9, 0.4, 0.1, 0.1]]), edges, protocol)
    >>> classes[[29, 89]].tolist(), counts[29].tolist()
    ([[[1, 2, 0, 3]], [[1, 0, 0, 3]]], [1, 2, 1, 2])
    """
    soft = suppress(prob) if protocol.nms else prob
    radius_squared = tolerance_squared(truth.shape, protocol.max_dist, protocol.unit)
    classes = np.zeros((len(THRESHOLDS), *truth.shape), dtype=np.uint8)
    counts = np.empty((len(THRESHOLDS), 4), dtype=np.int64)
    for plane, row, threshold in zip(classes, counts, THRESHOLDS, strict=True):
        # As in the counts, the threshold is rounded to the map's precision.
        pred = soft >= soft.dtype.type(threshold)
        if protocol.thin:
            pred = thin(pred)
        hit, reached = match(pred, truth, radius_squared=radius_squared)
        plane[truth & ~reached] = MISS
        plane[pred] = FALSE_ALARM
        plane[hit] = HIT
        row[:] = reached.sum(), truth.sum(), hit.sum(), pred.sum()
    return classes, counts


def pack_classes(classes: Classes) -> str:
    """Classes (99, H, W) as text; see the module.

    >>> packed = pack_classes(np.array([[[1, 2, 0, 3]], [[1, 2, 0, 0]]], dtype=np.uint8))
    >>> list(zlib.decompress(base64.b64decode(packed)))
    [201, 192]
    """
    planes = classes.reshape(len(classes), -1)
    planes = np.pad(planes, ((0, 0), (0, -planes.shape[1] % 4)))
    quarters = planes.reshape(len(planes), -1, 4)
    packed = quarters[..., 0].copy()
    for place in (1, 2, 3):
        packed |= quarters[..., place] << (2 * place)
    packed[1:] ^= packed[:-1].copy()
    return base64.b64encode(zlib.compress(packed.tobytes(), 9)).decode()


def unpack_classes(packed: str, shape: tuple[int, int]) -> Classes:
    """What `pack_classes` packed, as the page does it.

    >>> classes = np.array([[[1, 2, 0], [3, 1, 1]]] * 2, dtype=np.uint8)
    >>> bool((unpack_classes(pack_classes(classes), (2, 3)) == classes).all())
    True
    """
    size = shape[0] * shape[1]
    raw = np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype=np.uint8)
    planes = np.bitwise_xor.accumulate(raw.reshape(-1, -(-size // 4)), axis=0)
    pixels = np.stack([planes >> (2 * place) & 3 for place in range(4)], axis=-1)
    return pixels.reshape(len(planes), -1)[:, :size].reshape(-1, *shape)
