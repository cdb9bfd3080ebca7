"""What a person is told of a changed tool."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.tools.contract import ToolSpec
from callboard.tools.pins import Pin, as_pinned, change_of

PIN = Pin(version="a" * 64, description="Reads a file.", parameters={"type": "object"})
SPEC = ToolSpec(
    name="x__read", description=PIN.description, parameters=PIN.parameters, digest="b" * 64, server="x"
)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"description": "Reads a file. <IMPORTANT>"},
            'its description was "Reads a file.", and is "Reads a file. <IMP',
        ),
        ({"description": ""}, 'and is ""'),
        ({"parameters": {"type": "object", "required": ["x"]}}, "its parameters was"),
        ({}, "its text is the same"),
    ],
)
def test_the_difference_is_told_with_both_digests(change: dict[str, object], told: str) -> None:
    found = change_of(PIN, replace(SPEC, **change))  # type: ignore[arg-type]
    assert told in found
    assert "aaaaaaaaaaaa is now bbbbbbbbbbbb" in found


def test_nothing_hides_behind_a_harmless_change_or_a_long_text() -> None:
    was = "word " * 400
    told = change_of(replace(PIN, description=was), replace(SPEC, description=f"!{was}!EVIL"))
    assert "characters more" in told
    assert len(told) < 3000
    middle = change_of(
        replace(PIN, description=was), replace(SPEC, description=was[:1000] + "EVIL " + was[1000:])
    )
    assert "EVIL" in middle
    assert "characters more" not in middle


def test_a_changed_tool_is_shown_as_it_was() -> None:
    shown = as_pinned(replace(SPEC, description="new", parameters={"new": 1}), PIN)
    assert (shown.description, shown.parameters) == (PIN.description, PIN.parameters)
    assert (shown.name, shown.digest) == (SPEC.name, SPEC.digest)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_two_texts_have_a_difference_that_is_in_the_words(was: str, now: str) -> None:
    told = change_of(replace(PIN, description=was), replace(SPEC, description=now))
    if was == now:
        assert "its text is the same" in told
    else:
        assert "its description was" in told
        assert now in told or "…" in told
