"""The heap against sorting."""

import numpy as np
from hypothesis import given, settings, strategies as st

from knifeedge.metrics.heap import NOTHING, compact, pop, push

ENTRIES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50)), max_size=40)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(entries=ENTRIES, best=st.integers(0, 60), early=st.booleans())
def test_comes_out_in_order_without_what_was_found_again_nearer(entries, best, early) -> None:
    keys, nodes = np.zeros(64, dtype=np.int64), np.zeros(64, dtype=np.uint64)
    distances = np.full(10, 100)
    size = 0
    for node, distance in entries:
        if distance < distances[node]:
            distances[node] = distance
            push(keys, nodes, size, distance, np.uint64(node))
            size += 1
    if early:
        size = compact(keys, nodes, size, distances)
        assert size == np.count_nonzero(distances < 100)
    found = []
    while True:
        node, size = pop(keys, nodes, size, best, distances)
        if node == NOTHING:
            break
        found.append(int(node))
    assert sorted(found) == np.flatnonzero(distances < min(best, 100)).tolist()
    assert distances[found].tolist() == sorted(distances[found])
