"""What is bound without pydantic is what pydantic would bind; the rest is left to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from callboard.tools.contract import ToolContext
from callboard.tools.errors import ArgumentsRefused
from callboard.tools.plain_arguments import plain_call
from callboard.tools.signature import check_signature

HERE = ToolContext(conversation_id="c", call_id="1")


def mixed(
    text: str,
    count: int,
    ratio: float = 0.5,
    on: bool = False,
    *,
    tag: str = "",
    many: list[int] | None = None,
) -> None: ...
def with_context(text: str, context: ToolContext, count: int = 3) -> None: ...
def bounded(count: Annotated[int, Field(ge=0)], mode: Literal["a", "b"] = "a", text: str = "") -> None: ...
def optional_context(text: str = "", context: ToolContext | None = None) -> None: ...
def nothing() -> None: ...
def variadic(text: str, **rest: int) -> None: ...


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just("\ud800"))
VALUES = st.one_of(SCALARS, st.lists(st.integers(), max_size=2))
NAMES = st.sampled_from(["text", "count", "ratio", "on", "tag", "many", "context", "mode", "other"])
FITTING = {
    "text": st.text(), "count": st.integers(), "ratio": st.one_of(st.floats(allow_nan=False), st.integers()),
    "on": st.booleans(), "tag": st.text(), "many": st.lists(st.integers(), max_size=2), "mode": st.sampled_from("ab"),
}  # fmt: skip


def by_pydantic(function: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return check_signature(function, "f", {}, described=False).bind(arguments, HERE)
    except ArgumentsRefused:
        return None


def same(left: dict[str, Any], right: dict[str, Any] | None) -> bool:
    if right is None or left.keys() != right.keys():
        return False
    pairs = [(left[name], right[name]) for name in left]
    return all(type(a) is type(b) and (a == b or a != a) for a, b in pairs)


@pytest.mark.parametrize("function", [mixed, with_context, optional_context, bounded, nothing])
@given(
    arguments=st.one_of(
        st.dictionaries(NAMES, VALUES, max_size=5), st.fixed_dictionaries({}, optional=FITTING)
    )
)
def test_what_is_bound_here_is_what_pydantic_binds(
    function: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    bound = plain_call(function, arguments, HERE)
    assert bound is None or same(bound, by_pydantic(function, arguments))


@given(text=st.text(), count=st.integers(), ratio=st.floats(allow_nan=False))
def test_plain_arguments_need_no_pydantic(text: str, count: int, ratio: float) -> None:
    given_ = {"text": text, "count": count, "ratio": ratio}
    assert plain_call(mixed, given_, HERE) == given_
    assert plain_call(with_context, {"text": text}, HERE) == {"text": text, "context": HERE}


def test_a_name_that_the_module_gave_another_meaning_is_not_taken_for_the_builtin() -> None:
    names: dict[str, Any] = {}
    exec("class str: pass\ndef f(text: 'str') -> None: ...", names)
    assert plain_call(names["f"], {"text": "a"}, HERE) is None


def test_what_is_not_known_here_is_left_to_pydantic() -> None:
    assert plain_call(variadic, {"text": "a"}, HERE) is None
    assert plain_call(bounded, {"count": 1}, HERE) is None
    assert plain_call(mixed, {"text": "a", "count": 1, "many": [1]}, HERE) is None
    assert plain_call(mixed, {"text": "\ud800", "count": 1}, HERE) is None
    assert plain_call(with_context, {"text": "a", "context": "mine"}, HERE) is None


def test_a_context_in_quotes_or_within_other_types_is_left_to_pydantic() -> None:
    names: dict[str, Any] = {}
    exec(QUOTED, names)
    for name in ("quoted", "annotated", "listed"):
        assert plain_call(names[name], {"text": "a"}, HERE) is None, name
    assert plain_call(names["plain"], {"text": "a"}, HERE) == {"text": "a"}


QUOTED = """
from typing import Annotated, Any, Optional
from callboard.tools.contract import ToolContext
def quoted(text: str, ctx: Optional["ToolContext"] = None): ...
def annotated(text: str, ctx: Annotated["ToolContext", "here"] = None): ...
def listed(text: str, ctx: list["ToolContext"] | None = None): ...
def plain(text: str, more: list[int] | None = None, any: Any = None, deep: dict[str, list[int]] = {}): ...
"""
