"""Maximum one-to-one matching of a row of maps with one ground truth: how many pairs.

One matching is carried from map to map. The pixels that a map lacks are taken out, those it
has more are put in, and each change costs at most one search for an augmenting path, so the
matching stays a maximum one. As no more than the number of pairs is asked, any path will do.

Searches stay short through one set of ground-truth pixels, kept from map to map: the
*contested* ones, all those an alternating path leads to from an unmatched map pixel
(Dulmage and Mendelsohn's decomposition). They are all matched, and to map pixels that reach
only contested ones. Hence:

- A new map pixel need not look at contested pixels. If its search fails, all it went through
  becomes contested.
- A removed map pixel whose partner is not contested leaves that partner free, without search.
  If it is contested, a search goes back through contested ones to an unmatched map pixel; if
  that fails, all it went through is no longer contested.

Searches go deep first, but mark all pixels in reach of one before they go on. (Marking one at a
time, or breadth first, looks at five times as many where the tolerance is 8 pixels or more.)
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.kernels import inlined, kernel, lowest_bit
from knifeedge.metrics.thinning import Bits
from knifeedge.metrics.tiles import Disc, Plane, changes, code_at

Codes = npt.NDArray[np.uint32]

_ONE = np.uint64(1)
_SIX = np.uint64(6)
_LAST = np.uint64(63)
_NOBODY = np.uint64(2**32 - 1)


class _State(NamedTuple):
    """The matching, and the working memory of a search."""

    partner_of_map: Codes  # by code, as `via`
    partner_of_edge: Codes
    idle: Bits  # unmatched map pixels
    rivals: Bits  # map pixels matched with a contested one
    free: Bits  # unmatched ground-truth pixels
    calm: Bits  # ground-truth pixels that are not contested
    via: Codes  # the ground-truth pixel before on the path
    stack: Codes
    seen: Codes


@kernel
def matching_sizes(maps: Bits, plane: Plane, disc: Disc) -> npt.NDArray[np.int64]:
    """Number of pairs of a maximum matching, for each of the bit maps (K, H, words)."""
    count, _, words = maps.shape
    state = _State(
        np.empty(plane.edge.size * 64, dtype=np.uint32),
        np.empty(plane.edge.size * 64, dtype=np.uint32),
        np.zeros(plane.edge.size, dtype=np.uint64),
        np.zeros(plane.edge.size, dtype=np.uint64),
        plane.edge.copy(),
        plane.edge.copy(),
        np.empty(plane.edge.size * 64, dtype=np.uint32),
        np.empty(plane.edges, dtype=np.uint32),
        np.empty(plane.edges, dtype=np.uint32),
    )
    sizes = np.zeros(count, dtype=np.int64)
    added = np.empty(plane.nears, dtype=np.uint32)
    removed = np.empty(plane.nears, dtype=np.uint32)
    lost = np.empty(plane.edges, dtype=np.uint32)
    size = 0
    for k in range(count):
        more, less = changes(maps, k, plane, added, removed)
        holes = 0
        for number in removed[:less]:
            code = code_at(np.int64(number), words, plane)
            if _has(state.idle, code):
                _flip(state.idle, code)
                continue
            edge = np.uint64(state.partner_of_map[code])
            if _has(state.calm, edge):
                _flip(state.free, edge)
                size -= 1
            else:
                _flip(state.rivals, code)
                lost[holes] = edge
                holes += 1
        size -= _replace(lost[:holes], plane, disc, state)
        for n in range(more):
            added[n] = code_at(np.int64(added[n]), words, plane)
        size += _place(added[:more], plane, disc, state)
        sizes[k] = size
    return sizes


@inlined
def _has(bits: Bits, code: np.uint64) -> bool:
    return bool((bits[code >> _SIX] >> (code & _LAST)) & _ONE)


@inlined
def _flip(bits: Bits, code: np.uint64) -> None:
    bits[code >> _SIX] ^= _ONE << (code & _LAST)


@kernel
def _replace(lost: Codes, plane: Plane, disc: Disc, state: _State) -> int:
    """Find new partners for contested pixels that lost theirs; how many stay without."""
    left_over = 0
    for number in lost:
        start = np.uint64(number)
        edge = start
        depth, count = 0, 0
        found = False
        while True:
            tile, spot = edge >> _SIX, edge & _LAST
            for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                word = state.idle[tile + disc.step[entry]] & disc.mask[entry]
                if word:
                    pixel = ((tile + disc.step[entry]) << _SIX) | lowest_bit(word)
                    found = True
                    break
            if found:
                _flip(state.idle, pixel)
                _flip(state.rivals, pixel)
                while True:
                    displaced = np.uint64(state.partner_of_edge[edge])
                    state.partner_of_edge[edge] = pixel
                    state.partner_of_map[pixel] = edge
                    if edge == start:
                        break
                    pixel = displaced
                    edge = np.uint64(state.via[edge])
                break
            for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                there = tile + disc.step[entry]
                word = state.rivals[there] & disc.mask[entry]
                state.rivals[there] ^= word  # seen once; for good if the search fails
                while word:
                    pixel = (there << _SIX) | lowest_bit(word)
                    word &= word - _ONE
                    other = np.uint64(state.partner_of_map[pixel])
                    state.via[other] = edge
                    state.stack[depth], state.seen[count] = other, pixel
                    depth += 1
                    count += 1
            if depth == 0:
                break
            depth -= 1
            edge = np.uint64(state.stack[depth])
        for n in range(count):
            pixel = np.uint64(state.seen[n])
            if found:
                _flip(state.rivals, pixel)
            else:
                _flip(state.calm, np.uint64(state.partner_of_map[pixel]))
        if not found:
            _flip(state.calm, start)
            _flip(state.free, start)
            left_over += 1
    return left_over


@kernel
def _place(new: Codes, plane: Plane, disc: Disc, state: _State) -> int:
    """Match new map pixels along augmenting paths; how many found one."""
    matched = 0
    for number in new:
        code = np.uint64(number)
        depth, count = 0, 0
        found = False
        pixel, edge = code, _NOBODY  # a map pixel on the way, and its partner
        while True:
            tile, spot = pixel >> _SIX, pixel & _LAST
            for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                word = state.free[tile + disc.step[entry]] & disc.mask[entry]
                if word:
                    target = ((tile + disc.step[entry]) << _SIX) | lowest_bit(word)
                    found = True
                    break
            if found:
                _flip(state.free, target)
                while True:
                    state.partner_of_map[pixel] = target
                    state.partner_of_edge[target] = pixel
                    if edge == _NOBODY:
                        break
                    target = edge
                    edge = np.uint64(state.via[target])
                    pixel = code
                    if edge != _NOBODY:
                        pixel = np.uint64(state.partner_of_edge[edge])
                break
            for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                there = tile + disc.step[entry]
                word = state.calm[there] & disc.mask[entry]
                state.calm[there] ^= word  # seen once; for good if the search fails
                while word:
                    target = (there << _SIX) | lowest_bit(word)
                    word &= word - _ONE
                    state.via[target] = edge
                    state.stack[depth], state.seen[count] = target, target
                    depth += 1
                    count += 1
            if depth == 0:
                break
            depth -= 1
            edge = np.uint64(state.stack[depth])
            pixel = np.uint64(state.partner_of_edge[edge])
        for n in range(count):
            target = np.uint64(state.seen[n])
            if found:
                _flip(state.calm, target)
            else:
                _flip(state.rivals, np.uint64(state.partner_of_edge[target]))
        if found:
            matched += 1
        else:
            _flip(state.idle, code)
    return matched
