"""The breaker, driven at random, against what it promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.limits_core import (
    CLEAN,
    DOWN,
    UP,
    BreakerPolicy,
    EndpointState,
    Go,
    Outcome,
    Probe,
    Refuse,
    Wait,
    after_outcome,
    take_probe,
    verdict,
)

POLICY = BreakerPolicy(failures_to_open=3, open_s=1.0, max_open_s=8.0, probe_s=5.0)
OUTCOMES = st.sampled_from([UP, DOWN]) | st.floats(0.1, 20).map(lambda s: Outcome(kind="held", held_s=s))
STEPS = st.lists(st.tuples(st.floats(0, 10), OUTCOMES | st.just("probe")), max_size=40)


def walk(steps: list[tuple[float, Outcome | str]]) -> list[tuple[float, EndpointState, Outcome | str]]:
    state, now, trace = CLEAN, 0.0, []
    for passed_s, step in steps:
        now += passed_s
        if isinstance(step, Outcome):
            state = after_outcome(state, step, now, POLICY)
        else:
            state = take_probe(state, now, POLICY) or state
        trace.append((now, state, step))
    return trace


@given(STEPS)
def test_it_opens_only_after_enough_failures_in_a_row(steps: list[tuple[float, Outcome | str]]) -> None:
    in_a_row = 0
    for _now, state, step in walk(steps):
        if isinstance(step, Outcome):
            in_a_row = in_a_row + 1 if step == DOWN else 0
        if state.open_until is not None:
            assert in_a_row >= POLICY.failures_to_open
        if in_a_row == 0 and isinstance(step, Outcome):
            assert state.open_until is None


@given(STEPS, st.floats(0, 50))
def test_nobody_waits_for_ever(steps: list[tuple[float, Outcome | str]], later_s: float) -> None:
    for now, state, _step in walk(steps):
        match verdict(state, now):
            case Refuse(for_s):
                assert 0 < for_s <= POLICY.max_open_s
            case Wait(for_s):
                assert 0 < for_s <= 60.0
            case Go() | Probe():
                pass
        assert isinstance(verdict(state, now + POLICY.max_open_s + POLICY.probe_s + 61 + later_s), Go | Probe)


@given(STEPS)
def test_at_most_one_call_tries_at_a_time(steps: list[tuple[float, Outcome | str]]) -> None:
    for now, state, _step in walk(steps):
        first = take_probe(state, now, POLICY)
        if first is not None and state.open_until is not None:
            assert take_probe(first, now, POLICY) is None


@given(STEPS, st.floats(-1e6, 1e6))
def test_a_state_means_the_same_on_another_clock(
    steps: list[tuple[float, Outcome | str]], by_s: float
) -> None:
    for now, state, _step in walk(steps):
        here, there = verdict(state, now), verdict(state.shifted(by_s), now + by_s)
        if isinstance(here, Refuse | Wait) and here.for_s < 1e-6:
            continue
        assert type(here) is type(there)
