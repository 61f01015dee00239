"""A binary heap for Dijkstra's searches: int64 keys, the least first.

A node found again, nearer, is put in a second time; the old entry is known by a key that is no
longer the node's distance, and is passed over.
"""

import numpy as np
import numpy.typing as npt

from knifeedge.metrics.kernels import Int, inlined, kernel

Numbers = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.uint64]

NOTHING = np.uint64(2**64 - 1)
_ONE = np.uint64(1)


@inlined
def push(keys: Numbers, nodes: Nodes, size: Int, key: Int, node: np.uint64) -> None:
    """Put a record into a heap of `size` others."""
    at = np.uint64(size)
    while at:
        parent = (at - _ONE) >> _ONE
        if keys[parent] <= key:
            break
        keys[at], nodes[at] = keys[parent], nodes[parent]
        at = parent
    keys[at], nodes[at] = key, node


@kernel
def pop(
    keys: Numbers, nodes: Nodes, size: Int, best: Int, distances: Numbers
) -> tuple[np.uint64, np.int64]:
    """Take the nearest record out, or NOTHING where none is nearer than `best`."""
    rest = np.uint64(size)
    while rest and keys[0] < best:
        least, node = keys[0], nodes[0]
        rest -= _ONE
        key, last = keys[rest], nodes[rest]
        at, child = np.uint64(0), _ONE
        while child < rest:
            if child + _ONE < rest and keys[child + _ONE] < keys[child]:
                child += _ONE
            if keys[child] >= key:
                break
            keys[at], nodes[at] = keys[child], nodes[child]
            at, child = child, child + child + _ONE
        keys[at], nodes[at] = key, last
        if distances[node] == least:  # else it was found again, nearer
            return node, np.int64(rest)
    return NOTHING, np.int64(rest)


@kernel
def compact(keys: Numbers, nodes: Nodes, size: Int, distances: Numbers) -> np.int64:
    """Drop records that were found again, nearer; at most one entry a record remains."""
    kept = np.int64(0)
    for n in range(size):
        key, node = keys[n], nodes[n]
        if distances[node] == key:
            push(keys, nodes, kept, key, node)
            kept += 1
    return kept
