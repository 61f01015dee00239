import json

import pytest
from hypothesis import given, settings, strategies as st

from knifeedge.data.layouts import LAYOUTS
from knifeedge.data.splits import FOLDS, fold_splits, load_splits, seeded_splits
from knifeedge.errors import ConfigError
from shared_data import data_dir

# Section 4.1.2 of the paper: train, test, pre-train, validation.
PAPER = {
    "BSDS500": (400, 100, 300, 100),
    "BRIND": (400, 100, 300, 100),
    "UDED": (20, 7, 15, 5),
    "BIPED2": (200, 50, 150, 50),
}


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_counts(name):
    splits = load_splits(LAYOUTS[name].splits)
    lists = [splits.names(s) for s in ("train", "test", "pretrain", "validation")]
    assert tuple(map(len, lists)) == PAPER[name]
    train, test, pretrain, validation = map(set, lists)
    assert len(train) == PAPER[name][0]
    assert not train & test
    assert not pretrain & validation
    assert pretrain | validation == train
    assert splits.version >= 1
    assert splits.source


@pytest.mark.parametrize("name", ["UDED", "BSDS500"])
def test_the_lists_beside_the_data(name):
    recorded = json.loads((data_dir(name) / "split.json").read_text())
    lists = load_splits(LAYOUTS[name].splits).lists
    assert {split: list(names) for split, names in lists.items()} == recorded


def test_the_two_small_images_are_in_no_split_of_uded():
    splits = load_splits("uded")
    for name in LAYOUTS["UDED"].left_out:
        assert not any(name in splits.names(s) for s in ("train", "test"))


def test_an_unknown_split_is_answered_with_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"uded has no split 'val'; it has train, pretrain, .* all"
    ):
        load_splits("uded").names("val")
    assert load_splits("UDED") == load_splits("uded")
    with pytest.raises(ConfigError, match=r"no splits 'uden' .*'uded'.*; .* biped2, bsds500, uded"):
        load_splits("uden")


@given(
    names=st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=40),
    seed=st.integers(0, 5),
    shares=st.tuples(st.floats(0, 0.9), st.floats(0, 0.9)),
)
@settings(deadline=None, derandomize=True)
def test_a_seeded_split_divides(names, seed, shares):
    options = {"seed": seed, "test_share": shares[0], "validation_share": shares[1]}
    lists = seeded_splits(sorted(names), **options).lists
    assert lists == seeded_splits(sorted(names, reverse=True), **options).lists
    assert sorted(lists["train"] + lists["test"]) == sorted(names)
    assert sorted(lists["pretrain"] + lists["validation"]) == sorted(lists["train"])
    assert len(lists["test"]) == round(shares[0] * len(names))


def test_the_seed_matters():
    names = [f"{i:03d}" for i in range(100)]
    assert seeded_splits(names, seed=0).lists != seeded_splits(names, seed=1).lists


@pytest.mark.parametrize("wrong", [{"test_share": 1}, {"validation_share": -0.1}, {"seed": -1}])
def test_wrong_settings(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        seeded_splits("abc", **wrong)


@pytest.mark.parametrize("name", PAPER)
def test_over_the_folds_every_image_tests_once(name):
    layout = LAYOUTS[name]
    whole = load_splits(layout.splits)
    usable = {n for names in whole.lists.values() for n in names} - set(layout.left_out)
    folds = [fold_splits(whole, fold, left_out=layout.left_out) for fold in range(FOLDS)]
    assert sorted(n for splits in folds for n in splits.names("test")) == sorted(usable)
    for splits in folds:
        train, test, pretrain, validation = (
            set(splits.names(s)) for s in ("train", "test", "pretrain", "validation")
        )
        assert not train & test
        assert train | test == usable
        assert not pretrain & validation
        assert pretrain | validation == train
        assert len(validation) == round(len(train) * PAPER[name][3] / PAPER[name][0])
    validated = [n for splits in folds for n in splits.names("validation")]
    assert len(set(validated)) == len(validated)


def test_the_folds_of_uded_stay_what_they_are():
    test = fold_splits(load_splits("uded"), 0, left_out=LAYOUTS["UDED"].left_out).names("test")
    assert [name[:2] for name in test] == ["01", "06", "07", "10", "16", "25", "27"]


@pytest.mark.parametrize("wrong", [-1, FOLDS, 1.0, True, "0"])
def test_there_are_four_folds(wrong):
    with pytest.raises(ValueError, match="fold must be a whole number from 0 to 3, got"):
        fold_splits(load_splits("uded"), wrong)
