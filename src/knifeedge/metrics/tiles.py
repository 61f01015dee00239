"""The plane in tiles of 8 x 8 pixels: who lies within the tolerance, a few ANDs away.

A tile is one word. A pixel has a place, its number in reading order in a bit map, and a code,
tile * 64 + 8 * (y % 8) + x % 8. Around a pixel the disc of the tolerance covers a few tiles (at
most four up to 4.5 pixels), and for each of the 64 spots of a tile the words of the disc around
it are written down once. To find the pixels of a set in reach is then to AND its words with
those of the disc. No list of neighbours is kept, so memory does not grow with the tolerance.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.kernels import Int, count_bits, inlined, kernel, lowest_bit
from knifeedge.metrics.thinning import Bits

Places = npt.NDArray[np.uint32]

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LAST = np.uint64(63)


class Disc(NamedTuple):
    """The disc of the tolerance; around spot s of a tile, its entries first[s] : first[s + 1]."""

    first: npt.NDArray[np.uint64]  # (65,)
    step: npt.NDArray[np.uint64]  # from the pixel's tile to this one, modulo 2**64
    mask: Bits  # the disc's pixels in that tile
    dy: npt.NDArray[np.int64]  # from the pixel to that tile's first pixel
    dx: npt.NDArray[np.int64]


class Plane(NamedTuple):
    """One ground truth, and the pixels within the tolerance of it."""

    border: int  # empty tiles on each side, so that no disc leaves the plane
    across: int  # tiles in a row
    edge: Bits  # ground-truth pixels
    edge_rank: npt.NDArray[np.uint32]  # how many lie in the tiles before
    near: Bits  # pixels within reach of one, as a bit map (H, words)
    edges: Int
    nears: Int


def survey(ground_truth: Bits, radius_squared: float) -> tuple[Plane, Disc]:
    """Lay a ground truth's bit map (H, words) out in tiles."""
    radius = math.isqrt(int(radius_squared))
    border = radius // 8 + 1
    across = ground_truth.shape[1] * 8 + 2 * border
    disc = _disc(int(radius_squared), border, across)
    return _survey(ground_truth, border, across, disc), disc


@kernel
def changes(maps: Bits, k: int, plane: Plane, added: Places, removed: Places) -> tuple[int, int]:
    """Compare map k with the one before (map 0 with an empty one), within reach only.

    Writes the places of the pixels that it has more and that it lacks; returns how many.
    """
    _, height, words = maps.shape
    more, less = 0, 0
    for y in range(height):
        for w in range(words):
            word = maps[k, y, w]
            changed = word & plane.near[y, w]
            if k:
                changed = (word ^ maps[k - 1, y, w]) & plane.near[y, w]
            while changed:
                bit = lowest_bit(changed)
                changed &= changed - _ONE
                place = (y * words + w) * 64 + np.int64(bit)
                if (word >> bit) & _ONE:
                    added[more] = place
                    more += 1
                else:
                    removed[less] = place
                    less += 1
    return more, less


@inlined
def code_at(place: Int, words: int, plane: Plane) -> np.uint64:
    """Code of the pixel at a place in reading order, with rows of `words` words."""
    y, x = place // (words * 64), place % (words * 64)
    tile = ((y >> 3) + plane.border) * plane.across + plane.border + (x >> 3)
    return np.uint64((tile << 6) | ((y & 7) << 3) | (x & 7))


@kernel
def _disc(radius_squared: int, border: int, across: int) -> Disc:
    side = 2 * border + 1
    first = np.zeros(65, dtype=np.uint64)
    step = np.empty(64 * side * side, dtype=np.uint64)
    mask = np.empty(64 * side * side, dtype=np.uint64)
    to_y = np.empty(64 * side * side, dtype=np.int64)
    to_x = np.empty(64 * side * side, dtype=np.int64)
    count = 0
    for spot in range(64):
        for row in range(-border, border + 1):
            for column in range(-border, border + 1):
                y0, x0 = 8 * row - (spot >> 3), 8 * column - (spot & 7)
                word = np.uint64(0)
                for bit in range(64):
                    dy, dx = y0 + (bit >> 3), x0 + (bit & 7)
                    if dy * dy + dx * dx <= radius_squared:
                        word |= _ONE << np.uint64(bit)
                if word:
                    step[count] = np.uint64(row * across + column)
                    mask[count], to_y[count], to_x[count] = word, y0, x0
                    count += 1
        first[spot + 1] = count
    return Disc(first, step[:count].copy(), mask[:count].copy(), to_y[:count], to_x[:count])


@kernel
def _survey(ground_truth: Bits, border: int, across: int, disc: Disc) -> Plane:
    height, words = ground_truth.shape
    tiles = across * ((height + 7) // 8 + 2 * border)
    edge = np.zeros(tiles, dtype=np.uint64)
    in_reach = np.zeros(tiles, dtype=np.uint64)
    for y in range(height):
        for w in range(words):
            word = ground_truth[y, w]
            while word:
                x = w * 64 + np.int64(lowest_bit(word))
                word &= word - _ONE
                tile = np.uint64(((y >> 3) + border) * across + border + (x >> 3))
                spot = np.uint64(((y & 7) << 3) | (x & 7))
                edge[tile] |= _ONE << spot
                for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                    in_reach[tile + disc.step[entry]] |= disc.mask[entry]
    near = np.zeros((height, words), dtype=np.uint64)
    nears = np.int64(0)
    for y in range(height):
        shift = np.uint64(8 * (y & 7))
        for w in range(words):
            tile = np.uint64(((y >> 3) + border) * across + border + 8 * w)
            for part in range(np.uint64(8)):
                byte = (in_reach[tile + part] >> shift) & np.uint64(255)
                near[y, w] |= byte << (np.uint64(8) * part)
            nears += np.int64(count_bits(near[y, w]))
    edge_rank = np.empty(tiles, dtype=np.uint32)
    edges = np.int64(0)
    for n in range(tiles):
        edge_rank[n] = edges
        edges += np.int64(count_bits(edge[n]))
    return Plane(border, across, edge, edge_rank, near, edges, nears)
