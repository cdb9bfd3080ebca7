"""What is copied without pydantic is what pydantic's way through JSON gives; the rest is left to it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.tools.errors import ToolFault
from callboard.tools.execute import _to_json_by_pydantic
from callboard.tools.plain_values import NOT_PLAIN, plain_copy


class Colour(enum.StrEnum):
    RED = "red"


@dataclass
class Point:
    x: int


ODD = st.sampled_from(
    [Colour.RED, Point(1), b"bytes", {1, 2}, float("nan"), float("inf"), 2**70, "\ud800", {1: 2}, object]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), ODD)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=12,
)


def by_pydantic(value: object) -> Any:
    try:
        return _to_json_by_pydantic(value)
    except ToolFault:
        return NOT_PLAIN


@given(VALUES)
def test_a_copy_is_what_the_way_through_json_gives(value: object) -> None:
    copied = plain_copy(value)
    assert copied is NOT_PLAIN or repr(copied) == repr(by_pydantic(value))


@given(
    st.recursive(st.one_of(st.none(), st.booleans(), st.text()), lambda inner: st.lists(inner, max_size=4))
)
def test_a_copy_shares_no_container_with_what_was_given(value: object) -> None:
    copied = plain_copy(value)
    assert copied == value
    assert not isinstance(value, list) or copied is not value


def test_what_has_no_end_or_is_too_much_is_left_to_pydantic() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert plain_copy(endless) is NOT_PLAIN
    assert plain_copy([0] * 1000) is NOT_PLAIN
    assert plain_copy([0] * 999) == [0] * 999
