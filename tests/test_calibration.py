import numpy as np
import pytest

from knifeedge.calibration import calibrate
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
