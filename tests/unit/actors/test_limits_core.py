from __future__ import annotations

import pytest

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
    outcome_of,
    take_probe,
    verdict,
)

POLICY = BreakerPolicy(failures_to_open=3, open_s=2.0, max_open_s=5.0, probe_s=30.0)


def failed(times: int, state: EndpointState = CLEAN, now: float = 0.0) -> EndpointState:
    for _ in range(times):
        state = after_outcome(state, DOWN, now, POLICY)
    return state


def test_a_few_failures_change_nothing_and_the_last_one_opens() -> None:
    assert verdict(failed(2), 0.0) == Go()
    assert verdict(failed(3), 0.5) == Refuse(1.5)


def test_a_success_in_between_starts_the_count_again() -> None:
    assert verdict(failed(2, after_outcome(failed(2), UP, 0.0, POLICY)), 0.0) == Go()


def test_after_its_time_one_call_may_try_and_the_others_wait() -> None:
    opened = failed(3)
    assert take_probe(opened, 1.0, POLICY) is None
    assert verdict(opened, 2.0) == Probe()
    probing = take_probe(opened, 2.0, POLICY)
    assert probing is not None
    assert verdict(probing, 3.0) == Wait(0.25, "unavailable")
    assert take_probe(probing, 3.0, POLICY) is None


def test_a_probe_that_never_ends_gives_way_to_another() -> None:
    probing = take_probe(failed(3), 2.0, POLICY)
    assert probing is not None
    assert verdict(probing, 32.0) == Probe()


def test_a_probe_that_succeeds_closes_it_for_all() -> None:
    probing = take_probe(failed(3), 2.0, POLICY)
    assert probing is not None
    assert after_outcome(probing, UP, 3.0, POLICY) == CLEAN


def test_each_failed_probe_doubles_the_time_up_to_the_limit() -> None:
    state, now, opened_for = failed(3), 0.0, []
    for _ in range(4):
        wait = verdict(state, now)
        assert isinstance(wait, Refuse)
        opened_for.append(wait.for_s)
        now += wait.for_s
        probing = take_probe(state, now, POLICY)
        assert probing is not None
        state = after_outcome(probing, DOWN, now, POLICY)
    assert opened_for == [2.0, 4.0, 5.0, 5.0]


def test_late_failures_do_not_keep_it_open_longer() -> None:
    opened = failed(3)
    assert after_outcome(opened, DOWN, 1.9, POLICY) == opened


def test_a_wish_holds_everybody_back_and_the_longest_counts() -> None:
    held = after_outcome(CLEAN, Outcome(kind="held", held_s=9.0), 0.0, POLICY)
    held = after_outcome(held, Outcome(kind="held", held_s=1.0), 0.0, POLICY)
    assert verdict(held, 1.0) == Wait(8.0, "rate_limited")
    assert verdict(held, 9.0) == Go()


def test_a_success_does_not_end_a_wish() -> None:
    held = after_outcome(CLEAN, Outcome(kind="held", held_s=9.0), 0.0, POLICY)
    assert verdict(after_outcome(held, UP, 1.0, POLICY), 1.0) == Wait(8.0, "rate_limited")


@pytest.mark.parametrize(
    ("kind", "retry_after_s", "outcome"),
    [
        ("unreachable", None, DOWN),
        ("timeout", None, DOWN),
        ("overloaded", None, DOWN),
        ("overloaded", 3.0, Outcome(kind="held", held_s=3.0)),
        ("server_error", None, DOWN),
        ("interrupted", None, DOWN),
        ("rate_limited", None, UP),
        ("rate_limited", 7.0, Outcome(kind="held", held_s=7.0)),
        ("rate_limited", 1e9, Outcome(kind="held", held_s=60.0)),
        ("rate_limited", 0.0, UP),
        ("rejected", None, UP),
        ("context_window", None, UP),
        ("bad_reply", None, UP),
        ("bug", None, None),
        ("a kind of the user's own", None, None),
    ],
)
def test_each_kind_of_failure_says_something_of_the_endpoint(
    kind: str, retry_after_s: float | None, outcome: Outcome | None
) -> None:
    assert outcome_of(kind, retry_after_s) == outcome


def test_a_state_travels_as_remaining_seconds() -> None:
    opened = failed(3, now=100.0)
    assert opened.shifted(-101.0).open_until == 1.0
    assert opened.shifted(-101.0).shifted(101.0) == opened
    assert CLEAN.shifted(5.0) == CLEAN
