"""Values judged by annotations; configurations and options have tests of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from knifeedge.errors import ConfigError
from knifeedge.typed import annotations, check_options, checked


@dataclass(frozen=True)
class Point:
    """A table."""

    x: float


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (3, float, 3.0),
        (True, bool, True),
        ("a", str | Path | None, "a"),
        ("a", Path, "a"),  # files have no paths but texts
        (None, int | None, None),
        ("merged", int | Literal["merged"], "merged"),
        ([1, 2], int | tuple[int, int], (1, 2)),
        ([1, 2, 3], tuple[float, ...], (1.0, 2.0, 3.0)),
        ([1, "a"], tuple, (1, "a")),
        ({"a": 1}, Mapping[str, Any], {"a": 1}),
        ({"x": 1}, Point, Point(1.0)),
        (Point(1.0), Point | None, Point(1.0)),
        # What is none of plain values is for its taker to judge.
        ("x", Any, "x"),
        (True, Sequence[int], True),
        ("x", "Somewhere", "x"),
    ],
)
def test_values_that_fit(value, wanted, expected) -> None:
    found = checked("a", value, wanted)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "wanted", "message"),
    [
        (True, int, "a must be a whole number, got True"),
        (1, bool, "a must be true or false, got 1"),
        (1.0, int, "a must be a whole number, got 1.0"),
        (False, float | None, "a must be a number, got False"),
        (False, str | Path | None, "a must be text or a path, got False"),
        (None, str, "a must be text, got None"),
        ("x", int | Literal["merged"], "a must be a whole number or 'merged', got 'x'"),
        ([1], int | tuple[int, int], "a must be a whole number or a list of 2, each a whole n"),
        ("ab", tuple[str, ...], "a must be a list, each text, got 'ab'"),
        ([], Mapping[str, Any], "a must be a table, got []"),
        (3, Point, "a must be a table, got 3"),
        ({"y": 1}, Point, "there is no key 'y' in [a]; there are x"),
        (10**400, float, "a must be a number, got one that is too large"),
    ],
)
def test_values_that_do_not(value, wanted, message) -> None:
    with pytest.raises(ConfigError) as caught:
        checked("a", value, wanted)
    assert str(caught.value).startswith(message)


def test_what_callables_take() -> None:
    def one(first: int, *rest: int, other: "str | None" = None, **more: Any) -> None: ...

    def two(first: "Nowhere", second=3) -> None: ...  # noqa: F821

    assert annotations(one) == {"first": int, "other": str | None}
    assert list(annotations(one, two)) == ["first", "other", "second"]
    with pytest.raises(ConfigError, match=r"it has no option 'x'; it has none"):
        check_options("it", {"x": 1}, {})
