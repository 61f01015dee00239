import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from knifeedge.errors import DataError
from knifeedge.metrics.curves import (
    Curves,
    _interpolated,
    average_precision,
    f_measure,
    recall_at_half_precision,
)
from knifeedge.metrics.protocols import PROTOCOLS
from knifeedge.metrics.scores import EdgeScores, LeftOut, score

STRICT = PROTOCOLS["paper-strict"]
T = [i / 100 for i in range(1, 100)]


def scored(counts, **options):
    options.setdefault("crispness", [0.5] * len(counts))
    return score(counts, protocol=STRICT, **options)


def plausible_counts(rng, n_images):
    """Counts such as a detector gives: fewer pixels as the threshold rises, at last none."""
    counts = np.zeros((n_images, 99, 4), dtype=np.int64)
    for i in range(n_images):
        gt = int(rng.integers(0, 500))
        in_map = np.sort(rng.integers(0, 2000, 99))[::-1].copy()
        in_map[rng.integers(0, 150) :] = 0
        matched = np.minimum((in_map * rng.uniform(0.1, 0.9, 99)).astype(int), gt)
        extra = np.minimum(in_map, matched + rng.integers(0, 5, 99))
        counts[i] = np.stack([matched, np.full(99, gt), extra, in_map], axis=1)
    return counts


def naive_scores(counts):
    """The benchmark's definitions in plain loops."""

    def prf(row):
        matched_gt, gt, matched_map, in_map = (int(value) for value in row)
        p = matched_map / (in_map + (in_map == 0))
        r = matched_gt / (gt + (gt == 0))
        return p, r, 2 * p * r / (p + r + ((p + r) == 0))

    total = counts.sum(axis=0)
    curve = [prf(row) for row in total]
    best = (-1.0, 0.0, 0.0, 0.0)
    for k in range(98):
        for step in range(100):
            d = step / 99
            t, p, r = (
                (1 - d) * a + d * b
                for a, b in zip((T[k], *curve[k][:2]), (T[k + 1], *curve[k + 1][:2]), strict=True)
            )
            f = 2 * p * r / (p + r) if p + r else 0.0
            if f > best[0] + 1e-12:
                best = (f, t, p, r)
    chosen = []
    for image in counts:
        f = [prf(row)[2] for row in image]
        chosen.append(f.index(max(f)))
    ois = prf(sum(image[k] for image, k in zip(counts, chosen, strict=True)))[2]
    ois_mean = sum(prf(image[k])[2] for image, k in zip(counts, chosen, strict=True)) / len(counts)

    def interpolate(points, x):
        for (x0, y0), (x1, y1) in itertools.pairwise(points):
            if x0 <= x <= x1:
                return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
        return None

    by_recall = {}
    for p, r, _ in curve:
        by_recall.setdefault(r, p)
    points = sorted(by_recall.items())
    ap = sum(interpolate(points, i / 100) or 0.0 for i in range(101)) * 0.01
    by_precision = {}
    for (p, r, _), row in zip(curve, total, strict=True):
        if row[3] > 0:
            by_precision.setdefault(p, r)
    points = sorted(by_precision.items())
    if not points or points[-1][0] < 0.5:
        r50 = 0.0
    elif points[0][0] >= 0.5:
        r50 = points[0][1]
    else:
        r50 = interpolate(points, 0.5)
    return {
        **dict(zip(("ods", "threshold", "precision", "recall"), best, strict=True)),
        **{"ois": ois, "ois_mean": ois_mean, "ap": ap, "r50": r50},
    }, [T[k] for k in chosen]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_equals_the_naive_twin(seed, n_images) -> None:
    counts = plausible_counts(np.random.default_rng(seed), n_images)
    expected, best_thresholds = naive_scores(counts)
    got = scored(counts)
    for name, value in expected.items():
        assert getattr(got, name) == pytest.approx(value, abs=1e-9), name
    assert [image.threshold for image in got.images] == best_thresholds


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_order_of_images_changes_no_digit(seed) -> None:
    rng = np.random.default_rng(seed)
    counts = plausible_counts(rng, 20)
    crispness = rng.random(20)
    order = rng.permutation(20)
    one = scored(counts, crispness=crispness).to_dict()
    other = scored(counts[order], crispness=crispness[order]).to_dict()
    for name in ("ods", "threshold", "ois", "ois_mean", "ap", "r50", "crispness", "curves"):
        assert one[name] == other[name], name


def test_the_ods_may_lie_between_two_thresholds() -> None:
    counts = np.zeros((1, 99, 4), dtype=np.int64)
    counts[0, :50] = [100, 100, 100, 400]
    counts[0, 50:] = [40, 100, 100, 100]
    result = scored(counts)
    assert 0.50 < result.threshold < 0.51
    assert result.ods > max(result.curves.f)
    # F of P = 1/4 + 3d/4, R = 1 - 3d/5 on the hundredths of the segment.
    d = np.linspace(0, 1, 100)
    assert result.ods == pytest.approx(f_measure(0.25 + 0.75 * d, 1 - 0.6 * d).max(), abs=1e-12)


def test_a_perfect_binary_map_scores_exactly_1() -> None:
    result = scored(np.tile([70, 70, 70, 70], (3, 99, 1)))
    assert (result.ods, result.ois, result.ois_mean, result.r50) == (1.0, 1.0, 1.0, 1.0)
    assert (result.precision, result.recall) == (1.0, 1.0)
    assert result.threshold == 0.01  # of equals the lowest
    assert all(image.f == 1.0 and image.threshold == 0.01 for image in result.images)


@pytest.mark.parametrize("row", [(1, 3, 1, 3), (7, 10, 3, 11), (80, 100, 80, 100)])
def test_a_level_curve_invents_no_threshold(row) -> None:
    result = scored(np.tile(row, (1, 99, 1)))
    assert result.threshold == 0.01
    assert result.ods == result.curves.f[0]


@pytest.mark.parametrize("peak", range(99))
def test_a_peak_at_a_threshold_is_reported_there_exactly(peak) -> None:
    hits = 90 - np.abs(np.arange(99) - peak) // 2
    counts = np.stack([hits, np.full(99, 97), hits, np.full(99, 101)], axis=1)
    counts[peak] = [93, 97, 95, 101]
    result = scored(counts[None])
    assert result.threshold == T[peak]
    assert (result.precision, result.recall) == (95 / 101, 93 / 97)
    assert result.ods == result.curves.f[peak]


def test_interpolation_meets_both_ends_exactly() -> None:
    # Of some of these pairs, start + (end - start) is not end.
    values = np.random.default_rng(0).integers(0, 102, 99) / 101
    points = _interpolated(values).reshape(98, 100)
    np.testing.assert_array_equal(points[:, 0], values[:-1])
    np.testing.assert_array_equal(points[:, -1], values[1:])
    np.testing.assert_allclose(np.diff(points, axis=1).std(axis=1), 0, atol=1e-15)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.7, 0.8, 1.0])
def test_f_of_equals_is_exactly_both(share) -> None:
    assert f_measure(np.array([share]), np.array([share])).item() == share


def test_an_image_without_edges_scores_0_and_costs_precision() -> None:
    good = np.tile([50, 50, 50, 50], (1, 99, 1))
    empty_truth = np.tile([0, 0, 0, 50], (1, 99, 1))
    result = scored(np.concatenate([good, empty_truth]))
    assert [image.f for image in result.images] == [1.0, 0.0]
    assert result.images[1].threshold == 0.01
    assert result.ois_mean == 0.5
    assert (result.precision, result.recall) == (0.5, 1.0)


def test_nothing_at_all_scores_0_everywhere() -> None:
    result = scored(np.zeros((2, 99, 4), dtype=np.int64), crispness=[0.0, 0.0])
    assert [getattr(result, n) for n in ("ods", "ois", "ois_mean", "ap", "r50")] == [0.0] * 5
    json.dumps(result.to_dict(), allow_nan=False)


def test_ois_and_its_mean_differ_as_defined() -> None:
    counts = np.zeros((2, 99, 4), dtype=np.int64)
    counts[0, :, 1], counts[1, :, 1] = 100, 10
    counts[0, 19] = [100, 100, 100, 100]
    counts[1, 79] = [5, 10, 5, 10]
    result = scored(counts)
    assert [image.threshold for image in result.images] == [0.2, 0.8]
    assert result.ois == pytest.approx(105 / 110)
    assert result.ois_mean == 0.75


def test_ap_counts_nothing_outside_the_range_of_recall() -> None:
    recall = np.linspace(0.9, 0.305, 99)
    curves = Curves(np.full(99, 0.8), recall, recall)
    assert average_precision(curves) == pytest.approx(0.8 * 60 * 0.01)  # 0.31 .. 0.90
    assert average_precision(Curves(np.ones(99), np.ones(99), np.ones(99))) == 0.0


def test_r50_at_the_ends() -> None:
    rising, falling = np.linspace(0.6, 1, 99), np.linspace(0.8, 0.1, 99)
    marked = np.ones(99, dtype=bool)
    assert recall_at_half_precision(Curves(rising, falling, falling), marked) == 0.8
    assert recall_at_half_precision(Curves(0.49 * rising, falling, falling), marked) == 0.0
    # Thresholds that mark nothing have precision 0 by convention, which is no point of the curve.
    rising[90:], falling[90:], marked[90:] = 0, 0, False
    assert recall_at_half_precision(Curves(rising, falling, falling), marked) == 0.8


def test_at_gives_the_summed_scores_of_a_threshold() -> None:
    counts = plausible_counts(np.random.default_rng(3), 4)
    result = scored(counts)
    for index in (0, 29, 98):
        point = result.at(T[index])
        expected = (T[index], *(curve[index] for curve in result.curves))
        assert tuple(point) == expected
    matched_gt, gt, matched_map, in_map = counts.sum(axis=0)[49]
    assert result.at(0.5).recall == matched_gt / gt
    assert result.at(0.5).precision == matched_map / in_map


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (0.0, 0.01),
        (0.704, 0.70),
        (0.705, 0.70),
        (0.706, 0.71),
        (0.015, 0.01),
        (0.3, 0.3),
        (1, 0.99),
    ],
)
def test_at_takes_the_nearest_threshold_and_of_two_the_lower(asked, taken) -> None:
    assert scored(np.ones((1, 99, 4), dtype=int)).at(asked).threshold == taken


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan, 70])
def test_at_refuses_what_is_no_threshold(threshold) -> None:
    with pytest.raises(ValueError, match=r"threshold must be in \[0,1\], got"):
        scored(np.ones((1, 99, 4), dtype=int)).at(threshold)


def test_a_record_goes_through_json_unchanged() -> None:
    rng = np.random.default_rng(7)
    result = scored(
        plausible_counts(rng, 3),
        names=["a", "b", "ü"],
        crispness=rng.random(3),
        options={"scale": "stretch", "annotators": "all", "label_threshold": 0.5},
        left_out=[LeftOut("c", "it is damaged")],
    )
    text = json.dumps(result.to_dict(), allow_nan=False)
    again = EdgeScores.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert again.protocol == STRICT
    assert again.names == ("a", "b", "ü")
    assert again.left_out == (LeftOut("c", "it is damaged"),)
    np.testing.assert_array_equal(again.counts, result.counts)


def test_the_record_holds_the_whole_protocol() -> None:
    own = STRICT.replace(max_dist=2.0, unit="pixel", thin=False)
    record = score(np.ones((1, 99, 4), dtype=int), protocol=own, crispness=[1.0]).to_dict()
    assert record["protocol"] == own.to_dict()


@pytest.mark.parametrize("record", [{}, {"counts": 3}, {"counts": [], "protocol": {}}])
def test_another_record_is_refused(record) -> None:
    with pytest.raises(DataError, match="no record of scores"):
        EdgeScores.from_dict(record)


def test_the_counts_are_a_private_copy() -> None:
    counts = np.ones((1, 99, 4), dtype=np.int64)
    result = scored(counts)
    counts[:] = 0
    assert result.counts.min() == 1
    with pytest.raises(ValueError, match="read-only"):
        result.counts[0] = 0


@pytest.mark.parametrize(
    ("counts", "options", "error", "message"),
    [
        (np.ones((99, 4), dtype=int), {}, ValueError, r"counts must be \(n_images, 99, 4\).*stack"),
        (np.ones((0, 99, 4), dtype=int), {}, ValueError, "at least one image"),
        (np.ones((1, 99, 4)), {}, TypeError, "counts must be integers, got float64"),
        (np.ones((2, 99, 4), dtype=int), {"names": ["a"]}, ValueError, "1 names"),
        (np.ones((1, 99, 4), dtype=int), {"crispness": []}, ValueError, "0 crispness"),
    ],
)
def test_wrong_arguments_are_refused(counts, options, error, message) -> None:
    with pytest.raises(error, match=message):
        scored(counts, **options)
