"""Match pictures: that they show what the counts count."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from knifeedge.errors import DataError
from knifeedge.metrics.counts import THRESHOLDS, match_counts
from knifeedge.metrics.evaluate import evaluate, score_image
from knifeedge.metrics.pictures import (
    BACKGROUND,
    FALSE_ALARM,
    HIT,
    MISS,
    match_picture,
    write_pictures,
)
from knifeedge.metrics.protocols import PROTOCOLS


def pixels(picture: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    return (picture == colour).all(axis=-1)


def smooth_map(seed: int, shape: tuple[int, int] = (40, 50)) -> np.ndarray:
    noise = gaussian_filter(np.random.default_rng(seed).random(shape), 2)
    return ((noise - noise.min()) / (noise.max() - noise.min())).astype(np.float32)


def some_edges(seed: int, shape: tuple[int, int] = (40, 50)) -> np.ndarray:
    return np.abs(smooth_map(seed, shape) - 0.5) < 0.02


def test_the_four_meanings() -> None:
    edges = np.zeros((9, 30), dtype=bool)
    edges[2] = True  # found one row lower
    edges[8, :10] = True  # missed
    prob = np.zeros((9, 30))
    prob[3] = 0.6
    prob[6, 20:] = 0.6  # made up
    protocol = PROTOCOLS["one-pixel"].replace(thin=False)
    picture = match_picture(prob, edges, threshold=0.5, protocol=protocol)
    assert picture.shape == (9, 30, 3)
    assert picture.dtype == np.uint8
    expected = np.full((9, 30, 3), BACKGROUND)
    expected[3] = HIT
    expected[6, 20:] = FALSE_ALARM
    expected[8, :10] = MISS
    np.testing.assert_array_equal(picture, expected)
    # Above the map's values, all of the ground truth is missed.
    none = match_picture(prob, edges, threshold=0.61, protocol=protocol)
    np.testing.assert_array_equal(pixels(none, MISS), edges)


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("n_annotators", [1, 3])
def test_the_picture_agrees_with_the_counts(name: str, n_annotators: int) -> None:
    prob = smooth_map(0)
    truths = [some_edges(seed) for seed in range(1, n_annotators + 1)]
    counts, _ = score_image(prob, truths, protocol=name)
    for index in (4, 49, 79):
        picture = match_picture(prob, truths, threshold=THRESHOLDS[index], protocol=name)
        matched_gt, gt, matched_map, in_map = counts[index]
        assert pixels(picture, HIT).sum() == matched_map
        assert pixels(picture, FALSE_ALARM).sum() == in_map - matched_map
        if n_annotators == 1:
            # Misses under a pixel of the map are not seen.
            drawn = pixels(picture, HIT) | pixels(picture, FALSE_ALARM)
            missed = pixels(picture, MISS).sum()
            assert missed <= gt - matched_gt <= missed + (drawn & truths[0]).sum()


def test_misses_of_one_annotator_are_exact() -> None:
    prob, truth = smooth_map(0), some_edges(1)
    prob[truth.shape[0] // 2 :] = 0  # nothing is drawn over the lower half
    protocol = PROTOCOLS["one-pixel"].replace(max_dist=0)
    picture = match_picture(prob, truth, threshold=0.5, protocol=protocol)
    pred = pixels(picture, HIT) | pixels(picture, FALSE_ALARM)
    np.testing.assert_array_equal(pixels(picture, MISS), truth & ~pred)
    np.testing.assert_array_equal(pixels(picture, HIT), truth & pred)


def test_a_pixel_any_annotator_was_matched_in_is_no_miss() -> None:
    one, two, prob = (np.zeros((5, 20), dtype=bool) for _ in range(3))
    one[0], two[3, :10], prob[1] = True, True, True
    protocol = PROTOCOLS["one-pixel"]
    picture = match_picture(prob, [one, two], threshold=0.5, protocol=protocol)
    np.testing.assert_array_equal(pixels(picture, HIT), prob)
    np.testing.assert_array_equal(pixels(picture, MISS), two)
    assert not pixels(picture, FALSE_ALARM).any()


def test_the_threshold_is_rounded_like_the_counts() -> None:
    prob = np.full((1, 1), 0.7, dtype=np.float32)  # less than 0.7 in double precision
    edges = np.ones((1, 1), dtype=bool)
    assert match_counts(prob, [edges])[69, 3] == 1
    assert pixels(match_picture(prob, edges, threshold=0.7), HIT).all()


def test_bad_arguments() -> None:
    prob, edges = smooth_map(0), some_edges(1)
    with pytest.raises(ValueError, match=r"threshold must be in \(0,1\], got 0"):
        match_picture(prob, edges, threshold=0)
    with pytest.raises(ValueError, match=r"map's shape \(40, 50\), got \(50, 40\)"):
        match_picture(prob, edges.T, threshold=0.5)
    with pytest.raises(ValueError, match="got none"):
        match_picture(prob, [], threshold=0.5)


def test_pictures_of_folders(tmp_path: Path) -> None:
    maps, truths, out = tmp_path / "maps", tmp_path / "truths", tmp_path / "out"
    maps.mkdir()
    truths.mkdir()
    for i in range(3):
        np.save(maps / f"{i}.npy", smooth_map(i) * 200)
        Image.fromarray(some_edges(i + 5)).save(truths / f"{i}.png")
    (maps / "1.npy").write_bytes(b"damaged")
    scores = evaluate(maps, truths, scale="255", skip_bad=True, jobs=1)
    seen: list[tuple[int, int]] = []
    write_pictures(out, maps, truths, scores, progress=lambda *at: seen.append(at))
    assert sorted(path.name for path in out.iterdir()) == ["0.png", "2.png"]
    assert seen == [(1, 2), (2, 2)]
    at = scores.at(scores.threshold).threshold
    prob = (smooth_map(2) * 200) / np.float32(255)
    expected = match_picture(prob, some_edges(7), threshold=at, protocol="paper-strict")
    np.testing.assert_array_equal(np.asarray(Image.open(out / "2.png")), expected)
    write_pictures(out, maps, truths, scores, threshold=0.2)
    expected = match_picture(prob, some_edges(7), threshold=0.2, protocol="paper-strict")
    np.testing.assert_array_equal(np.asarray(Image.open(out / "2.png")), expected)


@pytest.mark.parametrize("name", ["maps", "truths"])
def test_pictures_never_replace_what_was_scored(tmp_path: Path, name: str) -> None:
    for folder, array in (("maps", smooth_map(0)), ("truths", some_edges(0) * np.uint8(255))):
        (tmp_path / folder).mkdir()
        Image.fromarray((array * 1.0).astype(np.uint8)).save(tmp_path / folder / "a.png")
    folders = tmp_path / "maps", tmp_path / "truths"
    before = (tmp_path / name / "a.png").read_bytes()
    (tmp_path / "link").symlink_to(tmp_path / name)
    with pytest.raises(DataError, match=r"holds what is scored.*name another folder"):
        write_pictures(tmp_path / "link", *folders, evaluate(*folders))
    assert (tmp_path / name / "a.png").read_bytes() == before
