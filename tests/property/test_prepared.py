"""Which workers stand prepared, and which call takes which: never another version, never too many, never one twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.prepared import change, guess, pick
from callboard.tools.contract import ToolSpec
from callboard.tools.limits import Limits


def spec(name: str, digest: str, memory_mb: int, local: bool) -> ToolSpec:
    where = {"module": "m", "attribute": name} if local else {"server": "s"}
    return ToolSpec(
        name=name,
        description="",
        parameters={},
        digest=digest,
        limits=Limits(memory_mb=memory_mb),
        **where,  # type: ignore[arg-type]
    )


SPECS = st.builds(
    spec, st.sampled_from("abc"), st.sampled_from(["1", "2"]), st.sampled_from([64, 128]), st.just(True)
)
OFFERED = st.lists(
    st.builds(spec, st.sampled_from("abcd"), st.just("1"), st.just(64), st.booleans()),
    unique_by=lambda s: s.name,
).map(lambda specs: {s.name: s for s in specs})


@given(asked=st.lists(st.sampled_from("abcdx")), offered=OFFERED, most=st.integers(0, 5))
def test_a_guess_is_bounded_and_of_local_tools_that_are_offered(
    asked: list[str], offered: dict[str, ToolSpec], most: int
) -> None:
    guessed = guess(asked, offered, most)
    assert len(guessed) <= most
    assert all(offered[s.name] is s and s.is_local for s in guessed)
    for name in {s.name for s in guessed} if asked else ():
        assert [s.name for s in guessed].count(name) <= asked.count(name)


@given(offered=OFFERED)
def test_before_any_call_the_only_tool_is_guessed(offered: dict[str, ToolSpec]) -> None:
    local = [s for s in offered.values() if s.is_local]
    assert guess((), offered, 4) == (tuple(local) if len(offered) == 1 else ())


@given(have=st.lists(SPECS, max_size=6), wanted=st.lists(SPECS, max_size=6))
def test_a_change_leaves_just_what_is_wanted_and_ends_nothing_that_still_serves(
    have: list[ToolSpec], wanted: list[ToolSpec]
) -> None:
    needed = change(have, wanted)
    kept = [s for place, s in enumerate(have) if place not in needed.end]
    key = repr
    assert sorted([*kept, *needed.start], key=key) == sorted(wanted, key=key)
    assert not any(pick(needed.start, have[place]) is not None for place in needed.end)
    assert change([*kept, *needed.start], wanted) == change(wanted, wanted)


@given(have=st.lists(SPECS, max_size=6), decided=st.lists(SPECS, max_size=6))
def test_a_call_takes_a_worker_of_just_what_was_decided_and_each_worker_takes_one(
    have: list[ToolSpec], decided: list[ToolSpec]
) -> None:
    waiting = list(have)
    for wanted in decided:
        place = pick(waiting, wanted)
        if place is None:
            assert wanted not in waiting
        else:
            assert waiting.pop(place) == wanted


@given(one=SPECS)
def test_what_may_differ_and_what_may_not(one: ToolSpec) -> None:
    assert pick([one], replace(one, pinned=True, description="shown otherwise")) == 0
    for other in (
        replace(one, digest="3"),
        replace(one, limits=replace(one.limits, sandbox="confined")),
        replace(one, kept_source="elsewhere"),
        replace(one, attribute="g"),
    ):
        assert pick([one], other) is None
