import dataclasses
import json

import pytest

from knifeedge.errors import ConfigError
from knifeedge.metrics.protocols import PROTOCOLS, Protocol, get_protocol

EXPECTED = {
    "paper-strict": (0.003, "diagonal", True, False),
    "one-pixel": (1.0, "pixel", True, False),
    "paper-relaxed": (0.0075, "diagonal", True, True),
    "bsds": (0.0075, "diagonal", True, True),
    "nyud": (0.011, "diagonal", True, True),
}


def test_the_named_protocols_are_the_published_ones() -> None:
    assert {name: (p.max_dist, p.unit, p.thin, p.nms) for name, p in PROTOCOLS.items()} == EXPECTED
    assert all(name == protocol.name for name, protocol in PROTOCOLS.items())


def test_a_protocol_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PROTOCOLS["bsds"].nms = False  # type: ignore[misc]


def test_a_change_shows_in_the_name_and_leaves_the_original() -> None:
    changed = PROTOCOLS["bsds"].replace(nms=False).replace(max_dist=0.01)
    assert changed == Protocol("bsds[max_dist=0.01,nms=False]", 0.01, "diagonal", True, False)
    assert PROTOCOLS["bsds"].nms
    assert changed.replace(nms=True, max_dist=0.0075) == PROTOCOLS["bsds"]
    assert PROTOCOLS["bsds"].replace(nms=True).name == "bsds"
    assert PROTOCOLS["bsds"].replace(nms=False, name="mine").name == "mine"


def test_an_own_protocol_can_be_changed_too() -> None:
    assert Protocol("mine", 2.0, "pixel").replace(thin=False).name == "mine[thin=False]"


def test_to_dict_is_json_and_gives_the_record_back() -> None:
    record = json.loads(json.dumps(PROTOCOLS["nyud"].to_dict()))
    assert Protocol(**record) == PROTOCOLS["nyud"]


def test_get_protocol_takes_names_and_records() -> None:
    own = PROTOCOLS["bsds"].replace(nms=False)
    assert get_protocol("bsds") is PROTOCOLS["bsds"]
    assert get_protocol(own) is own


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'bsd'.*paper-strict, one-pixel, .*nyud"):
        get_protocol("bsd")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_dist": -0.1}, "max_dist must be finite and >= 0, got -0.1"),
        ({"max_dist": float("nan")}, "max_dist must be finite"),
        ({"max_dist": 3.0}, 'set unit="pixel"'),
        ({"max_dist": 600.0, "unit": "pixel"}, r"at most 512 pixels, got 600.0$"),
        ({"unit": "pixels"}, "unit must be one of diagonal, pixel, got 'pixels'"),
        ({"name": ""}, "needs a name"),
        ({"name": 5}, "needs a name, got 5"),
        ({"nms": [5]}, r"nms must be True or False, got \[5\]"),
        ({"tolerance": 1.0}, "no field tolerance; its fields are name, max_dist"),
    ],
)
def test_a_record_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PROTOCOLS["bsds"].replace(**changes)
