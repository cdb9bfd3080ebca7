"""Every invariant's check finds the history in which it does not hold, and passes the one in which it does."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.testing.chaos.history import Entry
from callboard.testing.chaos.invariants import (
    Check,
    clean_stop,
    honesty,
    isolation,
    journal_kept,
    no_double_effect,
    no_leftovers,
    one_ending,
    recovery,
    restart_discipline,
    single_owner,
    turns_in_order,
    violations,
)


def entry(at: float, kind: str, **facts: Any) -> Entry:
    return Entry(at=at, kind=kind, facts=facts)


STARTED = entry(1.0, "turn_event", id="t", type="turn_started", seq=2)
ANSWERED = entry(2.0, "turn_end", id="t", conversation="c", ending="turn_answered", reason="", took_s=1.0)
FAILED = entry(9.0, "turn_end", id="t", conversation="c", ending="turn_failed", reason="x", took_s=1.0)
STOPPED = entry(9.0, "stopped", code=0, took_s=1.0)
PROBED = entry(8.0, "probe", ok=True, why="turn_answered", took_s=0.1)


TURN = entry(0.5, "turn", id="t", conversation="c")


def log(*kinds: str, turn: str = "t", **facts: Any) -> Entry:
    """A log of these event types; every event but the opening is the turn's."""
    events: list[dict[str, Any]] = [{"seq": 1, "type": "conversation_opened"}]
    for seq, kind in enumerate(kinds, start=2):
        events.append({"seq": seq, "type": kind, "turn_id": turn, "call_id": "k", "tool": "note_down"})
        events[-1]["outcome"] = "ok"
    return entry(9.0, "log", conversation="c", events=events, **facts)


WHOLE = log("turn_started", "tool_call_started", "tool_call_finished", "turn_answered")


@pytest.mark.parametrize(
    ("check", "history"),
    [
        (one_ending, [STARTED]),
        (one_ending, [STARTED, ANSWERED, ANSWERED]),
        (
            one_ending,
            [STARTED, entry(99, "turn_end", id="t", conversation="c", ending="x", reason="", took_s=90.0)],
        ),
        (no_double_effect, [entry(1, "effect", id="t", times=2)]),
        (journal_kept, [entry(1, "journal", complaints=["a page is torn"])]),
        (journal_kept, [entry(1, "log", conversation="c", events=[{"seq": 2, "type": "x"}])]),
        (journal_kept, [TURN, STARTED, log()]),
        (isolation, [STARTED, FAILED]),
        (isolation, [entry(1.0, "fault", fault="sigkill", id="x", victim="client", pid=1), STARTED, FAILED]),
        (no_leftovers, [entry(1, "left", processes=[1], files=[])]),
        (no_leftovers, [entry(1, "left", processes=[], files=["/x"])]),
        (restart_discipline, [entry(1, "starts", id="x", per_second=6)]),
        (recovery, []),
        (recovery, [entry(1, "probe", ok=False, why="turn_failed", took_s=0.1)]),
        (recovery, [entry(1, "probe", ok=True, why="turn_answered", took_s=11.0)]),
        (single_owner, [entry(1, "owners", conversation="c", pids=[1, 2])]),
        (turns_in_order, [log("turn_answered")]),
        (turns_in_order, [log("turn_started", "turn_answered", "tool_call_finished")]),
        (turns_in_order, [entry(1, "shown", requests=1, faults=["no result of k"])]),
        (honesty, [log("turn_started", "tool_call_finished", "turn_answered")]),
        (honesty, [WHOLE, entry(9, "effect", id="t", times=0)]),
        (honesty, [WHOLE, FAILED]),
        (clean_stop, []),
        (clean_stop, [entry(1, "stopped", code=1, took_s=1.0)]),
        (clean_stop, [entry(1, "stopped", code=0, took_s=6.0)]),
    ],
)
def test_a_history_in_which_it_does_not_hold_is_found(check: Check, history: list[Entry]) -> None:
    assert len(check(history)) == 1


def test_a_good_history_violates_nothing() -> None:
    fault = entry(8.5, "fault", fault="sigkill", id="x", victim="client", pid=1)
    good = [STARTED, ANSWERED, fault, PROBED, STOPPED, entry(9, "effect", id="t", times=1)]
    good += [entry(9, "left", processes=[], files=[]), entry(9, "starts", id="x", per_second=5)]
    good += [entry(9, "owners", conversation="c", pids=[1]), TURN, WHOLE]
    good += [entry(9, "journal", complaints=[]), entry(9, "shown", requests=2, faults=[])]
    assert violations(good) == []


def test_a_failed_turn_beside_a_fault_is_no_breach_of_isolation() -> None:
    assert (
        isolation([entry(8.5, "fault", fault="sigkill", id="x", victim="client", pid=1), STARTED, FAILED])
        == []
    )
