"""Slow, obvious twins of the evaluation kernels, from scikit-image and scipy.

`match_counts` is also the straightforward evaluator that `benchmarks/evaluate.py` compares with:
thin, list the pairs within the tolerance, match, for each threshold anew.
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching, min_weight_full_bipartite_matching
from scipy.spatial import cKDTree
from skimage.morphology import thin

THRESHOLDS = np.array([k / 100 for k in range(1, 100)])
_UNMATCHED = 1e5  # costs more than all pairs together


def levels(prob):
    return (prob[..., None] >= THRESHOLDS.astype(prob.dtype)).sum(axis=-1)


def match_counts(prob, truths: Sequence, radius_squared, *, thinned=True, thresholds=THRESHOLDS):
    """Counts as the product's; with several truths its hits are those of any maximum matching."""
    counts = np.zeros((len(thresholds), 4), dtype=np.int64)
    for row, threshold in zip(counts, thresholds, strict=True):
        pred = prob >= prob.dtype.type(threshold)
        if thinned:
            pred = thin(pred)
        hit = np.zeros_like(pred)
        for truth in truths:
            found = match(pred, truth, radius_squared)
            hit |= found
            row[0] += found.sum()
            row[1] += truth.sum()
        row[2:] = hit.sum(), pred.sum()
    return counts


def match(pred, truth, radius_squared):
    """Pixels of `pred` in a maximum matching."""
    pixels, edges, first, second, _ = _pairs(pred, truth, radius_squared)
    hit = np.zeros_like(pred)
    if first.size:
        # Ground-truth pixels as rows: the other way round, scipy can take five times as long.
        graph = csr_array((np.ones(first.size), (second, first)), shape=(len(edges), len(pixels)))
        partners = maximum_bipartite_matching(graph, perm_type="column")
        hit[tuple(pixels[partners[partners >= 0]].T)] = True
    return hit


def match_nearest(pred, truth, radius_squared):
    """Pixels of `pred` in the nearest maximum matching, and the sum of its distances.

    The nearest maximum matching is a full matching of the least weight, once every pixel of
    `pred` has a partner of its own that costs more than all distances. A little more for pixels
    that come late in reading order settles ties.
    """
    pixels, edges, first, second, distance = _pairs(pred, truth, radius_squared)
    hit = np.zeros_like(pred)
    if not first.size:
        return hit, 0.0
    count = len(pixels)
    late = 1e-6 * np.arange(count) / count
    weights = np.concatenate([1 + distance + late[first], np.full(count, _UNMATCHED)])
    rows = np.concatenate([first, np.arange(count)])
    columns = np.concatenate([second, len(edges) + np.arange(count)])
    graph = csr_array((weights, (rows, columns)), shape=(count, len(edges) + count))
    row, column = min_weight_full_bipartite_matching(graph)
    matched = column < len(edges)
    pairs = pixels[row[matched]] - edges[column[matched]]
    hit[tuple(pixels[row[matched]].T)] = True
    return hit, float(np.sqrt((pairs**2).sum(axis=1)).sum())


def _pairs(pred, truth, radius_squared):
    pixels, edges = np.argwhere(pred), np.argwhere(truth)
    if not len(pixels) or not len(edges):
        return pixels, edges, np.empty(0, int), np.empty(0, int), np.empty(0)
    # A little farther than needed, then the benchmark's own test on integers.
    near = cKDTree(edges).query_ball_point(pixels, np.sqrt(radius_squared) + 1e-6)
    first = np.repeat(np.arange(len(pixels)), [len(found) for found in near])
    second = np.concatenate([np.asarray(found, dtype=int) for found in near])
    squared = ((pixels[first] - edges[second]) ** 2).sum(axis=1)
    keep = squared <= radius_squared
    return pixels, edges, first[keep], second[keep], np.sqrt(squared[keep])
