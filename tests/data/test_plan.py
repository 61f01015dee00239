import itertools

import numpy as np
import pytest

from knifeedge.data.plan import CropPlan, CropSettings

SIZES = [(330, 400), (700, 350), (100, 90)]


def plan(**settings):
    return CropPlan(SIZES, CropSettings(**settings))


def test_every_piece_comes_in_eight_variants_and_again_noiseless():
    made = plan()
    assert len(made.pieces) == 4
    assert len(made) == 4 * 8 * 2
    crops = made.crops(0, range(len(made)))
    seen = set(
        zip(crops.piece.tolist(), crops.variant.tolist(), crops.noiseless.tolist(), strict=True)
    )
    assert seen == set(itertools.product(range(4), range(8), (False, True)))
    assert len(plan(noiseless=False)) == 32
    assert len(plan(turns=False)) == 8
    assert len(plan(halve_at=10_000)) == 48


def test_an_epoch_is_a_permutation_of_its_own():
    made = plan(batch_size=7)
    orders = [made.order(epoch) for epoch in range(3)]
    for order in orders:
        assert sorted(order) == list(range(len(made)))
    assert not np.array_equal(orders[0], orders[1])
    assert made.steps == 10
    batches = [made.batch(1, step) for step in range(made.steps)]
    # 64 samples fill 9 batches; the tenth goes on with the epoch's first six.
    np.testing.assert_array_equal(np.concatenate(batches), [*orders[1], *orders[1][:6]])
    assert {len(batch) for batch in batches} == {7}


def test_crops_stay_inside_and_reach_every_place():
    made = CropPlan([(34, 33)], CropSettings(crop=32, noiseless=False))
    seen = set()
    for epoch in range(60):
        crops = made.crops(epoch, range(8))
        for number, top, left in zip(crops.variant, crops.top, crops.left, strict=True):
            room = (2, 3) if number % 2 else (3, 2)
            assert 0 <= top < room[0]
            assert 0 <= left < room[1]
            seen.add((int(number) % 2, int(top), int(left)))
    assert len(seen) == 12


def test_crops_are_uniform():
    made = CropPlan([(107, 100)], CropSettings(crop=100, turns=False))
    tops = [int(made.crops(epoch, [0]).top[0]) for epoch in range(4000)]
    counts = np.bincount(tops, minlength=8)
    assert counts.size == 8
    assert np.all(abs(counts - 500) < 5 * np.sqrt(500))


def test_a_crop_depends_on_seed_epoch_and_index_alone():
    made, again = plan(), plan()
    everything = made.crops(3, range(len(made)))
    made.crops(0, [1, 2])
    for index in (40, 3, 17):
        alone = again.crops(3, [index])
        assert (alone.top[0], alone.left[0]) == (everything.top[index], everything.left[index])
    other_seed, other_epoch = plan(seed=1).crops(3, range(64)), made.crops(4, range(64))
    assert not np.array_equal(other_seed.top, everything.top)
    assert not np.array_equal(other_epoch.top, everything.top)


def test_refresh_keeps_the_crops_for_some_epochs_but_not_the_order():
    made = plan(refresh=5)
    tops = [made.crops(epoch, range(64)).top for epoch in range(6)]
    for top in tops[1:5]:
        np.testing.assert_array_equal(top, tops[0])
    assert not np.array_equal(tops[5], tops[0])
    assert not np.array_equal(made.order(0), made.order(1))


def test_a_run_goes_on_from_any_step():
    whole = list(plan().batches(0, 20))
    rest = list(plan().batches(13, 20))
    assert len(whole) == 20
    for (epoch, samples), (epoch_again, samples_again) in zip(whole[13:], rest, strict=True):
        assert epoch == epoch_again
        np.testing.assert_array_equal(samples, samples_again)
    assert [epoch for epoch, _ in whole] == [0] * 8 + [1] * 8 + [2] * 4
    assert next(plan().batches(10**6))[0] == 10**6 // 8


@pytest.mark.parametrize("wrong", [{"crop": 0}, {"batch_size": 0}, {"refresh": 0}, {"seed": -1}])
def test_wrong_settings(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CropSettings(**wrong)


def test_what_is_not_there():
    with pytest.raises(ValueError, match="at least one image"):
        CropPlan([])
    with pytest.raises(ValueError, match=r"step must be in 0 \.\. 7, got 8"):
        plan().batch(0, 8)
    with pytest.raises(ValueError, match="epoch must be >= 0"):
        plan().order(-1)
    with pytest.raises(IndexError, match=r"samples must be in 0 \.\. 63"):
        plan().crops(0, [64])
