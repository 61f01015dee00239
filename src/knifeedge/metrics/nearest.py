"""Nearest maximum matching of a row of maps with one ground truth: which pixels.

Of all maximum one-to-one matchings, the one with the least total distance; of those the one
whose map pixels come first in reading order. That settles the matched map pixels: the sets of
map pixels of all such matchings are the bases of a matroid, and a matroid whose elements have
different weights has one lightest basis. So a map's result does not depend on the maps before
it, although one matching is carried from map to map here too.

This is the assignment problem, solved by shortest augmenting paths with a price for each pixel
(the dual variables of Kuhn's Hungarian method). A pair costs its distance, an unmatched map
pixel `_UNMATCHED` less its place in reading order, an unmatched ground-truth pixel nothing.
Prices obey price(map) + price(edge) <= cost(pair), with equality for the pairs of the matching,
and no price is above the cost of staying unmatched, with equality for whoever does. Prices
survive from map to map. A new map pixel starts one search (Dijkstra's, over what pairs cost
beyond their prices), a ground-truth pixel that lost its partner another; it ends at an
unmatched pixel of the other side, or where staying unmatched costs least.

A matched map pixel's price follows from its partner's, so only ground-truth pixels have a
record: eight int64, one cache line, named by the index of its first field.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.heap import NOTHING, Nodes, Numbers, compact, pop, push
from knifeedge.metrics.kernels import Int, count_bits, inlined, kernel, lowest_bit
from knifeedge.metrics.thinning import Bits
from knifeedge.metrics.tiles import Disc, Places, Plane, changes, code_at

_PRICE = np.uint64(0)
_DISTANCE = np.uint64(1)  # from the start of the search
_SEARCH = np.uint64(2)  # number of the last search that came here
_VIA = np.uint64(3)  # the record before on the path, or _START
_STEP = np.uint64(4)  # what the pair with that record's map pixel costs
_PARTNER = np.uint64(5)  # code of the map pixel, or _FREE
_COST = np.uint64(6)  # of the pair
_PLACE = np.uint64(7)  # of the partner in reading order
_START = -1
_FREE = -1

_NOBODY = np.uint32(2**32 - 1)  # the partner of an unmatched map pixel
_UNMATCHED = 2**60  # more than all distances together: first as many pairs as possible
_FINEST = 20  # distances are kept in units of 2**-20 pixel, coarser where int64 is too short

_ONE = np.uint64(1)
_THREE = np.uint64(3)
_SIX = np.uint64(6)
_SEVEN = np.uint64(7)
_LAST = np.uint64(63)


class _State(NamedTuple):
    """The matching, and the working memory of a search."""

    records: Numbers  # of the ground-truth pixels, eight numbers each
    codes: Nodes  # of the ground-truth pixels
    places: Numbers  # of the ground-truth pixels in reading order
    partner: npt.NDArray[np.uint32]  # record of each map pixel's partner, by code; or _NOBODY
    have: Bits  # map pixels, in tiles
    hit: Bits  # matched map pixels, as a bit map (H * words)
    keys: Numbers  # heap of records by distance
    nodes: Nodes
    waiting: Nodes  # records no farther than the present one, which need no heap
    settled: Nodes


def pair_costs(radius_squared: float, places: int, edges: int) -> Numbers:
    """Cost of a pair by its squared distance; one unit of distance outweighs all places."""
    squares = np.arange(int(radius_squared) + 1)
    below = places.bit_length()
    room = 59 - below - edges.bit_length() - math.isqrt(int(radius_squared)).bit_length()
    unit = 2.0 ** max(0, min(_FINEST, room))
    costs = np.zeros(squares.size, dtype=np.int64)
    # sqrt(f * f * m) as f * sqrt(m), so that sums that are equal stay equal when rounded.
    for factor in range(1, math.isqrt(squares.size) + 1):
        rest = squares[factor * factor :: factor * factor] // (factor * factor)
        costs[factor * factor :: factor * factor] = factor * np.rint(np.sqrt(rest) * unit)
    return costs << below


@kernel
def match_nearest(
    maps: Bits, plane: Plane, disc: Disc, costs: Numbers, hits: Bits, edge_hits: Bits
) -> Numbers:
    """Match each of the bit maps (K, H, words); return the numbers of pairs.

    The matched pixels are added to `hits` (K, H, words), the ground-truth pixels that the last
    map matches to `edge_hits` (H * words).
    """
    count, height, words = maps.shape
    state = _State(
        np.zeros(plane.edges * 8, dtype=np.int64),
        np.empty(plane.edges, dtype=np.uint64),
        np.empty(plane.edges, dtype=np.int64),
        np.full(plane.edge.size * 64, _NOBODY, dtype=np.uint32),
        np.zeros(plane.edge.size, dtype=np.uint64),
        np.zeros(height * words, dtype=np.uint64),
        np.empty(2 * plane.edges + 64, dtype=np.int64),
        np.empty(2 * plane.edges + 64, dtype=np.uint64),
        np.empty(plane.edges, dtype=np.uint64),
        np.empty(plane.edges, dtype=np.uint64),
    )
    _number(plane, words, state)
    sizes = np.zeros(count, dtype=np.int64)
    added = np.empty(plane.nears, dtype=np.uint32)
    removed = np.empty(plane.nears, dtype=np.uint32)
    lost = np.empty(plane.edges, dtype=np.uint64)
    size, search = 0, np.int64(0)
    for k in range(count):
        more, less = changes(maps, k, plane, added, removed)
        holes = 0
        for number in removed[:less]:
            place = np.int64(number)
            code = code_at(place, words, plane)
            state.have[code >> _SIX] ^= _ONE << (code & _LAST)
            if state.partner[code] != _NOBODY:
                lost[holes] = state.partner[code]
                state.records[lost[holes] + _PARTNER] = _FREE
                state.partner[code] = _NOBODY
                _flip(state.hit, place)
                holes += 1
        # New pixels first: many end at a partner that a removed one left behind.
        size += _insert(added[:more], words, plane, disc, costs, state, search) - holes
        size += _refill(lost[:holes], words, plane, disc, costs, state, search + more)
        search += more + holes
        sizes[k] = size
        for y in range(height):
            for w in range(words):
                hits[k, y, w] |= state.hit[y * words + w]
    for n in range(np.uint64(plane.edges)):
        if state.records[(n << _THREE) + _PARTNER] != _FREE:
            _flip(edge_hits, state.places[n])
    return sizes


@kernel
def _number(plane: Plane, words: int, state: _State) -> None:
    """Write down the codes and the places in reading order of the ground-truth pixels."""
    n = 0
    for tile in range(plane.edge.size):
        word = plane.edge[tile]
        while word:
            bit = np.int64(lowest_bit(word))
            word &= word - _ONE
            y = (tile // plane.across - plane.border) * 8 + (bit >> 3)
            x = (tile % plane.across - plane.border) * 8 + (bit & 7)
            state.codes[n] = tile * 64 + bit
            state.places[n] = y * words * 64 + x
            state.records[np.uint64(n * 8) + _PARTNER] = _FREE
            n += 1


@kernel
def _insert(
    new: Places, words: int, plane: Plane, disc: Disc, costs: Numbers, state: _State, search: Int
) -> int:
    """Find partners for new map pixels, given by place; by how many the matching grows."""
    records, distances = state.records, state.records[_DISTANCE:]
    grown = 0
    for start_number in new:
        search += 1
        start_place = np.int64(start_number)
        start = code_at(start_place, words, plane)
        state.have[start >> _SIX] ^= _ONE << (start & _LAST)
        best = _UNMATCHED - start_place  # if the new pixel itself stays unmatched
        end, ends_free = np.int64(_START), False
        pixel, via = start, np.int64(_START)
        distance = np.int64(0)
        base = np.int64(0)  # distance less the pixel's price; a new one's may be anything <= 0
        done, held, size = 0, 0, np.int64(0)
        while True:
            tile, spot = pixel >> _SIX, pixel & _LAST
            for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                there = tile + disc.step[entry]
                word = plane.edge[there] & disc.mask[entry]
                while word:
                    bit = lowest_bit(word)
                    word &= word - _ONE
                    before = count_bits(plane.edge[there] & ((_ONE << bit) - _ONE))
                    edge = (np.uint64(plane.edge_rank[there]) + before) << _THREE
                    dy = disc.dy[entry] + np.int64(bit >> _THREE)
                    dx = disc.dx[entry] + np.int64(bit & _SEVEN)
                    cost = costs[np.uint64(dy * dy + dx * dx)]
                    reach = base + cost - records[edge + _PRICE]
                    if reach >= best or (
                        records[edge + _SEARCH] == search and distances[edge] <= reach
                    ):
                        continue
                    records[edge + _SEARCH], distances[edge] = search, reach
                    records[edge + _VIA], records[edge + _STEP] = via, cost
                    if records[edge + _PARTNER] == _FREE:
                        best, end, ends_free = reach, np.int64(edge), True
                        continue
                    drop = reach + _UNMATCHED - records[edge + _PLACE]
                    drop -= records[edge + _COST] - records[edge + _PRICE]
                    if drop < best:
                        best, end, ends_free = drop, np.int64(edge), False
                    if reach == distance:
                        state.waiting[held] = edge
                        held += 1
                    else:
                        if size == state.keys.size:
                            size = compact(state.keys, state.nodes, size, distances)
                        push(state.keys, state.nodes, size, reach, edge)
                        size += 1
            if held and distance < best:
                held -= 1
                edge = state.waiting[held]
            else:
                edge, size = pop(state.keys, state.nodes, size, best, distances)
                if edge == NOTHING:
                    break
            state.settled[done] = edge
            done += 1
            distance = distances[edge]
            pixel, via = np.uint64(records[edge + _PARTNER]), np.int64(edge)
            base = distance - records[edge + _COST] + records[edge + _PRICE]
        for n in range(done):
            edge = state.settled[n]
            records[edge + _PRICE] -= best - distances[edge]
        if end == _START:
            continue
        if ends_free:
            grown += 1
        else:
            state.partner[np.uint64(records[np.uint64(end) + _PARTNER])] = _NOBODY
            _flip(state.hit, records[np.uint64(end) + _PLACE])
        _flip(state.hit, start_place)
        while end != _START:
            edge = np.uint64(end)
            end = records[edge + _VIA]
            pixel, place = start, start_place
            if end != _START:
                pixel = np.uint64(records[np.uint64(end) + _PARTNER])
                place = records[np.uint64(end) + _PLACE]
            _pair(edge, pixel, place, records[edge + _STEP], state)
    return grown


@kernel
def _refill(
    lost: Nodes, words: int, plane: Plane, disc: Disc, costs: Numbers, state: _State, search: Int
) -> int:
    """Find new partners for the records that lost theirs; by how many the matching grows."""
    records, distances = state.records, state.records[_DISTANCE:]
    grown = 0
    for start in lost:
        search += 1
        if records[start + _PARTNER] != _FREE:
            continue  # a new map pixel took it
        best = -records[start + _PRICE]  # if the pixel itself stays free
        end, taken = start, False
        pixel, place, pixel_cost = NOTHING, np.int64(0), np.int64(0)
        edge, distance = start, np.int64(0)
        records[start + _SEARCH], distances[start] = search, 0
        done, held, size = 0, 0, np.int64(0)
        while True:
            state.settled[done] = edge
            done += 1
            code = state.codes[edge >> _THREE]
            base = distance - records[edge + _PRICE]
            tile, spot = code >> _SIX, code & _LAST
            for entry in range(disc.first[spot], disc.first[spot + _ONE]):
                there = tile + disc.step[entry]
                word = state.have[there] & disc.mask[entry]
                while word:
                    bit = lowest_bit(word)
                    word &= word - _ONE
                    other = np.uint64(state.partner[(there << _SIX) | bit])
                    dy = disc.dy[entry] + np.int64(bit >> _THREE)
                    dx = disc.dx[entry] + np.int64(bit & _SEVEN)
                    cost = costs[np.uint64(dy * dy + dx * dx)]
                    if other == np.uint64(_NOBODY):
                        other_place = state.places[edge >> _THREE] + dy * words * 64 + dx
                        reach = base + cost - (_UNMATCHED - other_place)
                        if reach < best:
                            best, end, taken = reach, edge, True
                            pixel, place, pixel_cost = (there << _SIX) | bit, other_place, cost
                        continue
                    reach = base + cost - records[other + _COST] + records[other + _PRICE]
                    if reach >= best or (
                        records[other + _SEARCH] == search and distances[other] <= reach
                    ):
                        continue
                    records[other + _SEARCH], distances[other] = search, reach
                    records[other + _VIA], records[other + _STEP] = np.int64(edge), cost
                    if reach - records[other + _PRICE] < best:
                        best, end, taken = reach - records[other + _PRICE], other, False
                    if reach == distance:
                        state.waiting[held] = other
                        held += 1
                    else:
                        if size == state.keys.size:
                            size = compact(state.keys, state.nodes, size, distances)
                        push(state.keys, state.nodes, size, reach, other)
                        size += 1
            if held and distance < best:
                held -= 1
                edge = state.waiting[held]
            else:
                edge, size = pop(state.keys, state.nodes, size, best, distances)
                if edge == NOTHING:
                    break
            distance = distances[edge]
        for n in range(done):
            edge = state.settled[n]
            records[edge + _PRICE] += best - distances[edge]
        if taken:
            grown += 1
            _flip(state.hit, place)
        elif end == start:
            continue
        else:  # `end` is left free, and its partner moves on to the record before
            pixel, place = np.uint64(records[end + _PARTNER]), records[end + _PLACE]
            pixel_cost = records[end + _STEP]
            records[end + _PARTNER] = _FREE
            end = np.uint64(records[end + _VIA])
        while True:
            next_pixel, next_place = np.uint64(records[end + _PARTNER]), records[end + _PLACE]
            _pair(end, pixel, place, pixel_cost, state)
            if end == start:
                break
            pixel, place, pixel_cost = next_pixel, next_place, records[end + _STEP]
            end = np.uint64(records[end + _VIA])
    return grown


@inlined
def _flip(bits: Bits, place: Int) -> None:
    bits[place >> 6] ^= _ONE << np.uint64(place & 63)


@inlined
def _pair(edge: np.uint64, pixel: np.uint64, place: Int, cost: Int, state: _State) -> None:
    state.records[edge + _PARTNER] = np.int64(pixel)
    state.records[edge + _PLACE] = place
    state.records[edge + _COST] = cost
    state.partner[pixel] = np.uint32(edge)
