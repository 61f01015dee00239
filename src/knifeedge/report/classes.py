"""What becomes of every pixel at each of the 99 thresholds, small enough to travel in a page.

At a threshold a pixel is one of four things, as in `metrics.pictures`. The classes come from the
protocol's own steps (suppression, threshold, thinning, nearest maximum matching), so that a page
which counts them counts what the scores count.

Packed: 2 bits a pixel in reading order, the lowest bits first, each threshold filled up to a whole
byte; from the second threshold on, the difference (exclusive or) to the one before; zlib; base64.
"""

import base64
import zlib
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.counts import THRESHOLDS, Array
from knifeedge.metrics.curves import Counts
from knifeedge.metrics.matching import Mask, match, tolerance_squared
from knifeedge.metrics.nms import suppress
from knifeedge.metrics.pictures import as_classes
from knifeedge.metrics.protocols import Protocol
from knifeedge.metrics.thinning import thin

Classes = npt.NDArray[np.uint8]


def judge(prob: Array, truth: Mask, protocol: Protocol) -> tuple[str, Counts]:
    """Classes of all pixels at the 99 thresholds, packed, and the counts that they give.

    Args:
        prob: (H, W) in [0,1].
        truth: bool (H, W), one annotator's.
        protocol: The scoring protocol.

    Returns:
        What `pack_classes` gives, and int64 (99, 4) as `match_counts` gives it.

    >>> edges = np.array([[True, False, False, True]])
    >>> protocol = Protocol("pixel", max_dist=0.0, unit="pixel")
    >>> packed, counts = judge(np.array([[0.9, 0.4, 0.1, 0.1]]), edges, protocol)
    >>> unpack_classes(packed, (1, 4))[[29, 89]].tolist(), counts[29].tolist()
    ([[[1, 2, 0, 3]], [[1, 0, 0, 3]]], [1, 2, 1, 2])
    """
    soft = suppress(prob) if protocol.nms else prob
    radius_squared = tolerance_squared(truth.shape, protocol.max_dist, protocol.unit)
    counts = np.empty((len(THRESHOLDS), 4), dtype=np.int64)

    def planes() -> Iterator[Classes]:
        for row, threshold in zip(counts, THRESHOLDS, strict=True):
            # As in the counts, the threshold is rounded to the map's precision.
            pred = soft >= soft.dtype.type(threshold)
            if protocol.thin:
                pred = thin(pred)
            hit, reached = match(pred, truth, radius_squared=radius_squared)
            row[:] = reached.sum(), truth.sum(), hit.sum(), pred.sum()
            yield as_classes(pred, hit, truth & ~reached)

    return pack_classes(planes()), counts


def pack_classes(planes: Iterable[Classes]) -> str:
    """Classes (H, W) of one threshold after another as text; see the module.

    >>> packed = pack_classes(np.array([[[1, 2, 0, 3]], [[1, 2, 0, 0]]], dtype=np.uint8))
    >>> list(zlib.decompress(base64.b64decode(packed)))
    [201, 192]
    """
    # 25 bytes a pixel in all: a plane is packed before the next one is made.
    packed, before = bytearray(), np.uint8(0)
    for plane in planes:
        quarters = np.pad(plane.ravel(), (0, -plane.size % 4)).reshape(-1, 4)
        now = np.bitwise_or.reduce(quarters << np.array([0, 2, 4, 6], dtype=np.uint8), axis=1)
        packed += (now ^ before).tobytes()
        before = now
    return base64.b64encode(zlib.compress(packed, 9)).decode()


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
