"""Counts recorded for real images: the exact ones, and those of the field's own solver."""

import numpy as np
import pytest

from knifeedge.metrics.counts import match_counts
from shared_data import oracle_dir, oracle_map, oracle_names, oracle_truths


@pytest.fixture(scope="module")
def recorded():
    with np.load(oracle_dir() / "counts.npz") as counts:
        return dict(counts)


@pytest.fixture(scope="module")
def counted(recorded):
    """Ours for every recorded image, thinning and tolerance: 'NAME/thin/0.003' -> counts."""
    found = {}
    for name in oracle_names():
        prob, truth = oracle_map(name), oracle_truths(name)[0]
        for how in ("thin", "nothin"):
            for tolerance in ("0.003", "0.0075"):
                found[f"{name}/{how}/{tolerance}"] = match_counts(
                    prob, truth, max_dist=float(tolerance), thin=how == "thin"
                )
    return found


def test_every_exact_entry_is_met(recorded, counted) -> None:
    exact = {key.removesuffix("/exact"): recorded[key] for key in recorded if key.endswith("exact")}
    assert exact.keys() == counted.keys()
    for key, expected in exact.items():
        np.testing.assert_array_equal(counted[key], expected, err_msg=key)


def test_field_entries_are_up_to_nine_pixels_below(recorded, counted) -> None:
    field = {key.removesuffix("/field"): recorded[key] for key in recorded if key.endswith("field")}
    assert len(field) > 20
    for key, theirs in field.items():
        ours = counted[key]
        same = ours[:, 3] == theirs[:, 3]  # some of its thinned maps differ, by 31 pixels at most
        assert same.mean() > 0.7, key
        np.testing.assert_array_equal(ours[:, 1], theirs[:, 1])
        for column in (0, 2):
            below = (ours - theirs)[same, column]
            assert below.min() >= 0, key
            assert below.max() <= 9, key


def test_eight_bit_maps_count_the_same_in_both_precisions() -> None:
    name = oracle_names()[0]
    prob = np.rint(oracle_map(name) * 255).astype(np.uint8)
    truths = oracle_truths(name)
    single = match_counts(prob.astype(np.float32) / np.float32(255), truths)
    double = match_counts(prob / 255.0, truths)
    np.testing.assert_array_equal(single, double)


def test_annotators_one_by_one_and_together() -> None:
    """Matched ground-truth pixels add up; matched map pixels lie between the most and the sum."""
    name = oracle_names()[0]
    prob, truths = oracle_map(name), oracle_truths(name)
    together = match_counts(prob, truths)
    alone = np.stack([match_counts(prob, truth) for truth in truths])
    np.testing.assert_array_equal(together[:, :2], alone[..., :2].sum(axis=0))
    assert (together[:, 2] >= alone[..., 2].max(axis=0)).all()
    assert (together[:, 2] <= np.minimum(alone[..., 2].sum(axis=0), together[:, 3])).all()
    np.testing.assert_array_equal(together[:, 3], alone[0, :, 3])
