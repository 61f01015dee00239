import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays as drawn_arrays

from knifeedge.calibration import calibrate, calibrate_pixels
from knifeedge.errors import ConfigError, DataError
from knifeedge.metrics.evaluate import evaluate
from knifeedge.metrics.protocols import PROTOCOLS

PIXELS = PROTOCOLS["one-pixel"].replace(max_dist=0.0, thin=False)


def noisy_masks(seed, n_images=3, shape=(16, 16)):
    """Decisions that are right from about 0.6 on, with overlap."""
    rng = np.random.default_rng(seed)
    labels = [rng.random(shape) < 0.3 for _ in range(n_images)]
    maps = []
    for label in labels:
        sure = 0.35 * rng.random(shape)
        noise = rng.normal(scale=0.1, size=shape)
        maps.append(np.clip(0.6 + np.where(label, sure, -sure) + noise, 0, 1))
    return maps, labels


def test_the_threshold_maximises_f_of_all_pixels_together() -> None:
    maps, labels = noisy_masks(0)
    found = calibrate(maps, labels, protocol=PIXELS)
    prob, truth = np.concatenate(maps), np.concatenate(labels)
    by_hand = []
    for i in range(1, 100):
        marked = prob >= i / 100
        by_hand.append(2 * (marked & truth).sum() / (marked.sum() + truth.sum()))
    np.testing.assert_allclose(found.curve, by_hand)
    assert found.score == found.curve.max()
    assert found.curve[round(found.threshold * 100) - 1] == found.score
    assert 0.5 < found.threshold < 0.7
    assert found.protocol == PIXELS


def test_the_score_is_what_evaluate_gives_at_that_threshold() -> None:
    maps, labels = noisy_masks(1)
    found = calibrate(maps, labels, protocol="bsds")
    scores = evaluate(maps, labels, protocol="bsds")
    assert scores.at(found.threshold).f == found.score
    assert scores.at(found.threshold).threshold == found.threshold
    assert found.score <= scores.ods


def test_of_equals_the_middle_is_taken_and_of_two_the_lower() -> None:
    edges = np.eye(12, dtype=bool)
    assert calibrate(edges, edges, protocol=PIXELS).threshold == 0.5
    # F is 1 from 0.31 to 0.60: the middle of thirty is the fifteenth.
    assert calibrate(np.where(edges, 0.605, 0.305), edges, protocol=PIXELS).threshold == 0.45


def test_takes_the_inputs_and_options_of_evaluate(tmp_path) -> None:
    maps, labels = noisy_masks(2)
    for folder, arrays in (("maps", maps), ("truths", labels)):
        (tmp_path / folder).mkdir()
        for i, array in enumerate(arrays):
            np.save(tmp_path / folder / f"{i}.npy", array)
    expected = calibrate(maps, labels, protocol=PIXELS)
    from_files = calibrate(tmp_path / "maps", tmp_path / "truths", protocol=PIXELS, jobs=2)
    assert from_files.threshold == expected.threshold
    np.testing.assert_array_equal(from_files.curve, expected.curve)
    (tmp_path / "maps" / "1.npy").write_bytes(b"")
    with pytest.raises(DataError, match=r"1\.npy"):
        calibrate(tmp_path / "maps", tmp_path / "truths", protocol=PIXELS)
    skipped = calibrate(tmp_path / "maps", tmp_path / "truths", protocol=PIXELS, skip_bad=True)
    np.testing.assert_array_equal(
        skipped.curve, calibrate([maps[0], maps[2]], [labels[0], labels[2]], protocol=PIXELS).curve
    )
    named = calibrate(maps, labels, names=["a", "b", "c"], protocol=PIXELS)
    np.testing.assert_array_equal(named.curve, expected.curve)


@pytest.mark.parametrize("values", [(0.5, 0.5), (0.0, 0.0), (0.2, 0.9)])
def test_constant_maps_are_refused(values) -> None:
    edges = np.eye(12, dtype=bool)
    with pytest.raises(DataError, match=r"the same value at all of its pixels.*check the model"):
        calibrate([np.full((12, 12), v) for v in values], [edges, edges], protocol=PIXELS)


def test_one_map_that_is_not_constant_is_enough() -> None:
    edges = np.eye(12, dtype=bool)
    assert calibrate([edges * 0.0, edges * 0.8], [edges, edges], protocol=PIXELS).score > 0


def test_a_set_without_edges_is_refused() -> None:
    maps, labels = noisy_masks(3)
    with pytest.raises(DataError, match="no threshold matches a single edge"):
        calibrate(maps, [np.zeros_like(label) for label in labels], protocol=PIXELS)


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown protocol"):
        calibrate(np.eye(3), np.eye(3), protocol="none")


# --- pixels by themselves -------------------------------------------------------------------------


def naive_pixels(maps, labels, beta):
    """F-beta at each threshold, pixel by pixel, and the middle of the best, of two the lower."""
    curve = []
    for i in range(1, 100):
        hits = false_alarms = misses = 0
        for prob, label in zip(maps, labels, strict=True):
            for value, edge in zip(prob.ravel(), label.ravel(), strict=True):
                marked = value >= prob.dtype.type(i / 100)
                hits += bool(marked and edge)
                false_alarms += bool(marked and not edge)
                misses += bool(edge and not marked)
        weighted = (1 + beta**2) * hits
        curve.append(weighted / (weighted + beta**2 * misses + false_alarms) if hits else 0.0)
    best = [i for i, f in enumerate(curve) if f >= max(curve) * (1 - 1e-12)]
    return curve, best[(len(best) - 1) // 2]


@st.composite
def some_pixels(draw):
    """Maps and labels with at least one edge; values on the thresholds are likely."""
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    on_thresholds = st.integers(0, 100).map(lambda i: float(dtype(i / 100)))
    width = np.dtype(dtype).itemsize * 8
    values = on_thresholds | st.floats(0, 1, width=width)
    shapes = draw(st.lists(array_shapes(max_dims=2, max_side=4), min_size=1, max_size=3))
    maps = [draw(drawn_arrays(dtype, shape, elements=values)) for shape in shapes]
    labels = [draw(drawn_arrays(bool, shape)) for shape in shapes]
    labels[0].flat[0] = True
    maps[0].flat[0] = max(maps[0].flat[0], dtype(0.01))
    # One that is no edge, and less: constant maps are refused.
    maps.append(np.array([maps[0].flat[0] / 2], dtype))
    labels.append(np.array([False]))
    return maps, labels


@given(some_pixels(), st.sampled_from([0.5, 1.0, 2.0]) | st.floats(0.05, 20))
def test_pixels_against_a_loop_over_them(pixels, beta) -> None:
    maps, labels = pixels
    found = calibrate_pixels(maps, labels, beta=beta)
    curve, best = naive_pixels(maps, labels, beta)
    np.testing.assert_allclose(found.curve, curve, rtol=1e-12)
    assert found.score == found.curve.max() == found.curve[round(found.threshold * 100) - 1]
    assert found.threshold == (best + 1) / 100 or found.curve[best] < found.score
    assert found.beta == beta


def test_pixels_agree_with_a_protocol_without_tolerance() -> None:
    maps, labels = noisy_masks(4)
    exact, fast = calibrate(maps, labels, protocol=PIXELS), calibrate_pixels(maps, labels)
    np.testing.assert_allclose(fast.curve, exact.curve, rtol=1e-12)
    assert fast.threshold == exact.threshold
    assert fast.protocol.name == "pixel"
    assert (fast.protocol.max_dist, fast.protocol.thin) == (0.0, False)


def test_of_equal_pixel_thresholds_the_middle_and_of_two_the_lower() -> None:
    edges = np.array([True, False])
    # F is 1 from 0.31 to 0.60, thirty thresholds; then from 0.31 to 0.32.
    assert calibrate_pixels([np.array([0.605, 0.305])], [edges]).threshold == 0.45
    assert calibrate_pixels([np.array([0.325, 0.305])], [edges]).threshold == 0.31
    assert calibrate_pixels([np.array([1.0, 0.0])], [edges]).threshold == 0.5


def test_beta_moves_the_threshold() -> None:
    maps, labels = noisy_masks(5)
    found = [calibrate_pixels(maps, labels, beta=beta).threshold for beta in (0.2, 1, 5)]
    assert found[0] > found[1] > found[2]
    record = calibrate_pixels(maps, labels, beta=2).to_dict()
    assert record["beta"] == 2
    assert len(record["curve"]) == 99


def test_pixels_are_read_one_map_at_a_time() -> None:
    maps, labels = noisy_masks(6)
    once = calibrate_pixels((m for m in maps), (label.astype(np.uint8) * 255 for label in labels))
    np.testing.assert_array_equal(once.curve, calibrate_pixels(maps, labels).curve)


def test_pixels_of_whole_numbers() -> None:
    edges = np.array([0, 1, 0, 1])
    assert calibrate_pixels([edges], [edges]).score == 1


@pytest.mark.parametrize("beta", [0, -1, float("nan"), float("inf")])
def test_a_wrong_beta_is_refused(beta) -> None:
    with pytest.raises(ValueError, match=f"beta must be > 0 and finite, got {beta}"):
        calibrate_pixels([np.ones(2)], [np.ones(2)], beta=beta)


@pytest.mark.parametrize("values", [(-0.1, 0.5), (0.5, 1.1), (0.5, np.nan), (0, 255)])
def test_pixels_that_are_no_probabilities_are_refused(values) -> None:
    with pytest.raises(DataError, match=r"maps must be in \[0,1\], got"):
        calibrate_pixels([np.array(values, float)], [np.array([True, False])])


def test_pixels_and_labels_that_do_not_belong_together() -> None:
    edges = np.eye(3, dtype=bool)
    with pytest.raises(DataError, match=r"shapes, got \(3, 3\) and \(3, 2\)"):
        calibrate_pixels([edges * 0.5], [edges[:, :2]])
    with pytest.raises(DataError, match="there are 1 labels, and more maps"):
        calibrate_pixels([edges * 0.5, edges * 0.5], [edges])
    with pytest.raises(DataError, match="no threshold matches a single edge"):
        calibrate_pixels([edges * 0.5], [edges & False])
    with pytest.raises(DataError, match="there are no maps"):
        calibrate_pixels([], [])
    with pytest.raises(DataError, match="the same value at all"):
        calibrate_pixels([np.full(4, 0.5), np.full(2, 0.5)], [np.ones(4), np.zeros(2)])
    some = np.array([0.2, 0.8])
    assert calibrate_pixels([np.zeros(0), some], [np.zeros(0), some > 0.5]).threshold == 0.5


@pytest.mark.parametrize(
    "labels",
    [[0.0, 0.2, 0.6, 1.0], np.array([0, 100, 128, 255], np.uint8), np.array([0, 0, 1, 1])],
    ids=["soft", "eight bits", "whole"],
)
def test_labels_of_pixels_are_those_of_the_benchmark(labels) -> None:
    maps = np.array([[0.1, 0.4, 0.6, 0.9]])
    found = calibrate_pixels(maps, [np.asarray(labels)])
    assert (found.threshold, found.score) == (0.5, 1.0)
    with pytest.raises(DataError, match=r"must be in \[0,1\], got nan"):
        calibrate_pixels(maps, [np.array([0, 1, np.nan, 1])])
