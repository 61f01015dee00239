"""Losses by name: there and back, and what is said of a wrong one."""

import pytest
import torch
from hypothesis import example, given, strategies as st

from knifeedge.errors import ConfigError
from knifeedge.losses import (
    AdjustedLoss,
    BCELoss,
    EBTLoss,
    FocalLoss,
    OnlineThreshold,
    SWBCELoss,
    WBCELoss,
)
from knifeedge.losses.names import BASES, EDGE_TOLERANCE, LossName, parse_loss
from knifeedge.losses.regions import REGION_LOSSES

# --- there and back -------------------------------------------------------------------------------

positive = st.floats(0, 1e6, exclude_min=True)
base_options = {
    "bce": {},
    "wbce": {"balance": positive},
    "swbce": {"balance": positive},
    "ebt": {"radius": st.integers(0, 50).map(float)},
    "focal": {"gamma": st.floats(0, 1e6).map(abs), "alpha": st.floats(0, 1).map(abs)},
}
thresholds = st.floats(0, 1, exclude_min=True, exclude_max=True)
adjusters = st.fixed_dictionaries(
    {},
    optional={
        "threshold": thresholds | st.sampled_from(["sa", "online"]),
        "window": st.floats(1e-3, 0.5),
        "decay": st.floats(1e-3, 100),
        "delta": st.floats(0, 1e6).map(abs),
    },
)


@st.composite
def loss_names(draw) -> LossName:
    base = draw(st.sampled_from(sorted(BASES)))
    chosen = draw(st.fixed_dictionaries({}, optional=base_options[base]))
    return LossName(base, chosen, draw(st.none() | adjusters))


def test_the_strategies_know_every_base() -> None:
    assert base_options.keys() == BASES.keys()


@given(loss_names())
@example(LossName(adjuster={"threshold": 1e-5}))
@example(LossName(adjuster={"threshold": 0.123456789}))
@example(LossName("focal", {"gamma": 1 / 3}, {"window": 0.1, "threshold": "sa"}))
def test_a_name_and_back(name: LossName) -> None:
    assert parse_loss(str(name)) == name


def test_numbers_may_be_negative() -> None:
    name = parse_loss("soft_f1(slope=5, offset=-0.85)")
    assert name.build().settings["offset"] == -0.85
    assert parse_loss(str(name)) == name


@given(loss_names(), thresholds)
def test_a_built_loss_has_the_settings_of_its_name(name: LossName, threshold: float) -> None:
    assert name.needs_threshold == ((name.adjuster or {}).get("threshold") == "sa")
    final = name.at(threshold)
    loss = final.build()
    base = loss
    if name.adjuster is None:
        assert final == name
        assert final.threshold is None
    else:
        wanted = {"threshold": 0.7, "window": 0.2, "decay": 16.0, "delta": 1.0, **name.adjuster}
        if name.needs_threshold:
            wanted["threshold"] = threshold
            assert name.threshold is None
        assert isinstance(loss, AdjustedLoss)
        if name.is_online:
            assert wanted.pop("threshold") == "online"
            assert isinstance(loss.threshold, OnlineThreshold)
            assert loss.threshold.tolerance == EDGE_TOLERANCE
            assert final.threshold is None
        else:
            assert final.threshold == wanted["threshold"]
        assert {key: getattr(loss, key) for key in wanted} == wanted
        base = loss.base
    assert type(base) is BASES[name.base]
    assert all(getattr(base, key) == value for key, value in name.base_options.items())
    assert name.baseline == LossName(name.base, name.base_options)


@pytest.mark.parametrize(
    ("text", "shortest"),
    [
        ("wbce", "wbce"),
        (" wbce() ", "wbce"),
        ("baa-0.70", "baa-0.7"),
        ("baa-.5", "baa-0.5"),
        ("baa(threshold=0.7)", "baa-0.7"),
        ("baa(base=wbce,threshold=sa)", "baa-sa"),
        ("baa", "baa"),
        ("baa( window = 0.3, base = swbce )", "baa(base=swbce,window=0.3)"),
        ("baa(threshold=0.6,base=ebt(radius=3))", "baa(base=ebt(radius=3),threshold=0.6)"),
        ("focal(gamma=3.0)", "focal(gamma=3)"),
    ],
)
def test_ways_to_write_a_name(text: str, shortest: str) -> None:
    assert str(parse_loss(text)) == shortest


def test_the_types_behind_the_names() -> None:
    types = {"bce": BCELoss, "wbce": WBCELoss, "swbce": SWBCELoss, "ebt": EBTLoss}
    for name, loss in (types | {"focal": FocalLoss}).items():
        assert type(parse_loss(name).build()) is loss


# --- wrong names ----------------------------------------------------------------------------------


def test_a_self_adaptive_loss_has_no_threshold_yet() -> None:
    with pytest.raises(ConfigError, match=r"baa-sa needs a calibrated threshold: .* baa-0\.7"):
        parse_loss("baa-sa").build()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("wbec", "there is no loss 'wbec' (the closest is 'wbce'); there are bce, wbce"),
        ("WBCE", "there is no loss 'WBCE'; there are"),
        ("baa-so", "cannot be understood"),
        ("baa(base=hinge)", "there is no loss 'hinge'; there are"),
        ("baa(base=baa-0.7)", "cannot be understood (options are written key=value)"),
        ("baa(base=baa(threshold=0.7))", "base must be a loss that is not adjusted"),
        ("baa(threshhold=0.7)", "no option 'threshhold' (the closest is 'threshold'); it has base"),
        ("focal(gama=2)", "loss focal has no option 'gama' (the closest is 'gamma'); it has gamma"),
        ("bce(balance=1)", "loss bce has no option 'balance'; it has none"),
        ("wbce(from_logits=0)", "has no option 'from_logits'"),
        ("focal(2)", "options are written key=value"),
        ("focal(**{})", "has no option 'None'"),
        ("focal(gamma=1,gamma=2)", "an option is given twice"),
        ("focal(gamma=two)", "gamma must be a finite number"),
        ("focal(gamma=True)", "gamma must be a finite number"),
        ("focal(gamma='2')", "gamma must be a finite number"),
        ("focal(gamma=1e999)", "gamma must be a finite number"),
        ("soft_f1(offset=--1)", "offset must be a finite number"),
        ("focal(gamma=-1)", "gamma must be >= 0 and finite, got -1"),
        ("focal(alpha=1.5)", "alpha must lie in [0, 1], got 1.5"),
        ("wbce(balance=0)", "balance must be > 0"),
        ("ebt(radius=2.5)", "radius must be a whole number"),
        ("baa-0", "threshold must lie in (0, 1), got 0"),
        ("baa-1", "threshold must lie in (0, 1), got 1"),
        ("baa-70", "threshold must lie in (0, 1), got 70"),
        ("baa-0.7.1", "cannot be understood"),
        ("baa(threshold=sa,window=0)", "window must be"),
        ("", "cannot be understood"),
        ("wbce,", "cannot be understood"),
        ("wbce(", "it should look like wbce, baa-0.7, baa-sa or baa(base=swbce,threshold=0.6)"),
        ("wbce\0", "cannot be understood"),
        ("\ud800", "cannot be understood"),
        ("(" * 500, "cannot be understood"),
        ("-" * 20_000 + "1", "cannot be understood"),
        ("a" + ".b" * 20_000, "cannot be understood"),
        ("baa(base=" * 90 + "wbce" + ")" * 90, "base must be a loss that is not adjusted"),
    ],
    ids=lambda text: text[:30],
)
def test_a_wrong_name_is_answered_with_what_is_right(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_loss(text)
    assert message in str(caught.value)


@given(st.text() | st.text("baws-(),=.0179e_ \n\\'\"[]{}:*"))
def test_any_text_is_a_loss_or_refused(text: str) -> None:
    try:
        name = parse_loss(text)
    except ConfigError:
        return
    assert parse_loss(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "open('{}','w')",
        "focal(gamma=open('{}','w').close())",
        "baa(base=[open('{}','w') for _ in '1'])",
        "(lambda: open('{}','w'))()",
        "baa(threshold=(sa:=open('{}','w')))",
    ],
)
def test_nothing_in_a_name_is_run(tmp_path, text: str) -> None:
    path = tmp_path / "written"
    with pytest.raises(ConfigError):
        parse_loss(text.format(path))
    assert not path.exists()


# --- losses of whole regions ----------------------------------------------------------------------


@pytest.mark.parametrize("name", REGION_LOSSES)
def test_a_loss_of_a_region_has_a_name(name: str) -> None:
    found = parse_loss(name)
    assert isinstance(found.build(), REGION_LOSSES[name])
    assert str(found) == name
    assert found.baseline == found
    assert not found.needs_threshold


@pytest.mark.parametrize("name", REGION_LOSSES)
def test_a_loss_of_a_region_cannot_be_adjusted(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        parse_loss(f"baa(base={name})")


def test_options_of_a_loss_of_a_region() -> None:
    built = parse_loss("tversky(alpha=0.5,beta=0.5)").build()
    logits, target = torch.tensor([0.3, -1.0]), torch.tensor([1.0, 0.0])
    assert torch.equal(built(logits, target), parse_loss("dice").build()(logits, target))
    assert str(parse_loss("dice(smooth=0)")) == "dice(smooth=0)"
