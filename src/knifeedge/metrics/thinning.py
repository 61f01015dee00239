"""Thinning to one-pixel lines, 64 pixels a word and eight thresholds at a time.

The rule is Guo and Hall's parallel thinning with two sub-iterations ("Parallel thinning with
two-subiteration algorithms", 1989), in the form of MATLAB's bwmorph(..., "thin") and of
`skimage.morphology.thin`, run until nothing changes; pixels outside the image are empty.

Maps are bit maps: uint64 (H, words), pixel x in bit x % 64 of word x // 64. Inside the kernel
the same word of eight thresholds lies side by side, so that one vector instruction works on
512 pixels. A pixel's fate hangs on its 3 x 3 neighbourhood: a word with no change around it in
the last two sub-iterations cannot change, and only the others are looked at.
"""

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.kernels import Int, count_bits, inlined, kernel

Bits = npt.NDArray[np.uint64]

LANES = np.uint64(8)
_NEVER = np.int32(2**31 - 1)

_ONE = np.uint64(1)
_EIGHT = np.uint64(8)
_TOP = np.uint64(63)
_NONE = np.uint64(0)
_ALL = np.uint64(2**64 - 1)
_LOWEST_OF_BYTES = np.uint64(0x0101010101010101)
_COLLECT = np.uint64(0x0102040810204080)


def thin(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Thin a binary map to lines one pixel wide, like `skimage.morphology.thin`.

    Args:
        mask: bool (H, W).

    Returns:
        bool (H, W), a subset of `mask`.

    Example:
        >>> thin(np.ones((3, 7), dtype=bool)).astype(int)
        array([[0, 0, 0, 0, 0, 0, 0],
               [0, 1, 1, 1, 1, 1, 0],
               [0, 0, 0, 0, 0, 0, 0]])
    """
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.ndim != 2:
        raise ValueError(
            f"mask must be a bool array (H, W), got {mask.dtype} {mask.shape}; "
            "compare with a threshold first"
        )
    if mask.size == 0:
        return mask.copy()
    maps = pack(mask)[None]
    thin_maps(maps, LANES)
    return unpack(maps[0], mask.shape[1])


def pack(mask: npt.NDArray[np.bool_]) -> Bits:
    """Turn a bool map (H, W) into a bit map (H, words)."""
    height, width = mask.shape
    packed = np.zeros((height, -(-width // 64) * 8), dtype=np.uint8)
    packed[:, : -(-width // 8)] = np.packbits(mask, axis=1, bitorder="little")
    return packed.view(np.uint64)


def unpack(bits: Bits, width: int) -> npt.NDArray[np.bool_]:
    """Turn a bit map (H, words) into a bool map (H, width)."""
    return np.unpackbits(bits.view(np.uint8), axis=1, count=width, bitorder="little").view(bool)


@kernel
def count_pixels(maps: Bits) -> npt.NDArray[np.int64]:
    """Count the pixels of each of K bit maps."""
    totals = np.zeros(maps.shape[0], dtype=np.int64)
    for k in range(maps.shape[0]):
        total = _NONE
        for word in maps[k].flat:
            total += count_bits(word)
        totals[k] = total
    return totals


@kernel
def level_maps(levels: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> Bits:
    """Bit maps (K, H, words) of `levels >= k` for the K levels of `at`, each from 1 to 127."""
    height, width = levels.shape
    words = (width + 63) // 64
    digits = np.empty((7, height * words), dtype=np.uint64)  # the levels' binary digits
    row = np.zeros(words * 64, dtype=np.uint8)
    eights = row.view(np.uint64)
    for y in range(height):
        for x in range(width):
            row[x] = levels[y, x]
        for w in range(words):
            for digit in range(7):
                word = _NONE
                for part in range(8):
                    # One digit of eight pixels; the product collects them in the top byte.
                    bits = (eights[8 * w + part] >> np.uint64(digit)) & _LOWEST_OF_BYTES
                    word |= ((bits * _COLLECT) >> np.uint64(56)) << np.uint64(8 * part)
                digits[digit, y * words + w] = word
    maps = np.empty((at.size, height, words), dtype=np.uint64)
    zeros = np.empty(7, dtype=np.uint64)
    for k in range(at.size):
        for digit in range(7):
            zeros[digit] = _NONE if (at[k] >> digit) & 1 else _ALL
        cut = maps[k].reshape(height * words)
        for n in range(np.uint64(height * words)):
            # From the lowest digit up: each decides, and where it is the same those below do.
            word = _ALL
            for digit in range(7):
                here = digits[digit, n]
                word = (here & word) | (zeros[digit] & (here | word))
            cut[n] = word
    return maps


@kernel
def thin_maps(maps: Bits, lanes: np.uint64) -> None:
    """Thin bit maps (K, H, words) in place; `lanes` is LANES."""
    # LLVM must not know that `lanes` is 8: it vectorises no loop whose length is known to be
    # short and which needs its pointers compared, and this takes eight times as long.
    count, height, words = maps.shape
    stride = words + 2  # an empty word on each side and an empty row above and below
    size = (height + 2) * stride
    state = np.zeros(size * 8, dtype=np.uint64)
    deleted = np.empty(size * 8, dtype=np.uint64)
    changed = np.empty(size, dtype=np.uint64)
    todo = np.empty(size, dtype=np.uint32)
    later = np.empty(size, dtype=np.uint32)
    until = np.empty(size, dtype=np.int32)
    for start in range(0, count, 8):
        for lane in range(8):
            for y in range(height):
                row = np.uint64((y + 1) * stride + 1)
                for w in range(np.uint64(words)):
                    to = (row + w) * _EIGHT + np.uint64(lane)
                    state[to] = maps[start + lane, y, w] if start + lane < count else _NONE
        _thin(state, np.uint64(stride), deleted, changed, todo, later, until, lanes)
        for lane in range(min(8, count - start)):
            for y in range(height):
                row = np.uint64((y + 1) * stride + 1)
                for w in range(np.uint64(words)):
                    maps[start + lane, y, w] = state[(row + w) * _EIGHT + np.uint64(lane)]


@kernel
def _thin(
    state: Bits,
    stride: np.uint64,
    deleted: Bits,
    changed: Bits,
    todo: npt.NDArray[np.uint32],
    later: npt.NDArray[np.uint32],
    until: npt.NDArray[np.int32],
    lanes: np.uint64,
) -> None:
    """Thin eight maps in place, until no word is in question any more."""
    # until[i] is the last sub-iteration that must look at word i. _NEVER keeps a word that was
    # empty from the start, as the border is, off the lists for good.
    count = np.int64(0)
    for i in range(np.uint64(todo.size)):
        any_pixel = _NONE
        for lane in range(_EIGHT):
            any_pixel |= state[i * _EIGHT + lane]
        until[i] = _NEVER
        if any_pixel:
            until[i] = 1
            todo[count] = i
            count += 1
    turn = 0
    while count > 0:
        second = _ALL if turn & 1 else _NONE
        _find_deletable(state, stride * _EIGHT, todo, count, second, deleted, changed, lanes)
        size = np.int64(0)
        last = turn + 2
        for n in range(np.uint64(count)):
            if changed[n]:
                at = np.uint64(todo[n])
                for lane in range(_EIGHT):
                    state[at * _EIGHT + lane] &= ~deleted[n * _EIGHT + lane]
                left = at - (changed[n] & _ONE)
                right = at + (changed[n] >> _TOP)
                for column in range(left, right + _ONE):
                    for near in range(column - stride, column + stride + _ONE, stride):
                        if until[near] < last:
                            until[near] = last
                            later[size] = near
                            size += 1
        for n in range(count):
            if until[todo[n]] == turn + 1:
                later[size] = todo[n]
                size += 1
        todo, later, count = later, todo, size
        turn += 1


@kernel
def _find_deletable(
    state: Bits,
    stride: np.uint64,
    todo: npt.NDArray[np.uint32],
    count: Int,
    second: np.uint64,
    deleted: Bits,
    changed: Bits,
    lanes: np.uint64,
) -> None:
    """Write the pixels of each listed word that this sub-iteration deletes."""
    for n in range(count):
        here = np.uint64(todo[n]) * _EIGHT
        above, below = here - stride, here + stride
        to = np.uint64(n) * _EIGHT
        any_pixel = _NONE
        for lane in range(lanes):
            middle = state[here + lane]
            up, down = state[above + lane], state[below + lane]
            # The eight neighbours, each moved onto the pixel it belongs to.
            e = (middle >> _ONE) | (state[here + lane + _EIGHT] << _TOP)
            w = (middle << _ONE) | (state[here + lane - _EIGHT] >> _TOP)
            ne = (up >> _ONE) | (state[above + lane + _EIGHT] << _TOP)
            nw = (up << _ONE) | (state[above + lane - _EIGHT] >> _TOP)
            se = (down >> _ONE) | (state[below + lane + _EIGHT] << _TOP)
            sw = (down << _ONE) | (state[below + lane - _EIGHT] >> _TOP)
            word = middle & _deletable(e, ne, up, nw, w, sw, down, se, second)
            deleted[to + lane] = word
            any_pixel |= word
        changed[n] = any_pixel


@inlined
def _deletable(
    e: np.uint64,
    ne: np.uint64,
    n: np.uint64,
    nw: np.uint64,
    w: np.uint64,
    sw: np.uint64,
    s: np.uint64,
    se: np.uint64,
    second: np.uint64,
) -> np.uint64:
    """Guo and Hall's conditions G1, G2 and G3 (in the second sub-iteration G3')."""
    p1, p2, p3, p4 = e | ne, n | nw, w | sw, s | se
    q1, q2, q3, q4 = ne | n, nw | w, sw | s, se | e
    b1, b2, b3, b4 = q1 & ~e, q2 & ~n, q3 & ~w, q4 & ~s
    # G1: exactly one of the four b, so deleting the pixel neither splits nor opens anything.
    one_branch = (b1 ^ b2 ^ b3 ^ b4) & ~((b1 & b2) | (b3 & b4))
    # G2: the smaller of the numbers of p and of q is 2 or 3: no line end, no inner pixel.
    two_p = (p1 & p2) | (p3 & p4) | ((p1 | p2) & (p3 | p4))
    two_q = (q1 & q2) | (q3 & q4) | ((q1 | q2) & (q3 | q4))
    all_eight = p1 & p2 & p3 & p4 & q1 & q2 & q3 & q4
    # G3 takes south and east borders first, G3' north and west ones.
    kept = ((e & (q1 | ~se)) & ~second) | ((w & (q3 | ~nw)) & second)
    return one_branch & two_p & two_q & ~all_eight & ~kept
