"""Whatever log comes in, what comes out is one: a valid history for a model, and repaired for good."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationClosed,
    ConversationOpened,
    Event,
    StepFinished,
    TextDelta,
    ToolApproved,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnContinued,
    TurnFailed,
    TurnResumed,
    TurnStarted,
    TurnSuspended,
    event_from_json,
    event_to_json,
)
from callboard.actors.history import items_of, unfinished_turn
from callboard.actors.history_import import adopted, repaired
from callboard.actors.items import FunctionCall, FunctionCallOutput

TURNS = st.sampled_from(["", "t", "t_2", "u"])
CALLS = st.sampled_from(["", "a", "a_2", "b", "call_1"])
NUMBERS = st.one_of(st.none(), st.integers(-1, 12))
CALL = st.builds(FunctionCall, call_id=CALLS, tool=st.just("sum"), arguments=st.just("{}"))
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        ConversationOpened, seq=NUMBERS, conversation_id=st.just("c"), user=st.just(""), team=st.just("")
    ),
    st.builds(TurnStarted, seq=NUMBERS, turn_id=TURNS, text=st.sampled_from(["one", "two"])),
    st.builds(
        StepFinished, seq=NUMBERS, turn_id=TURNS, step=st.just(1), calls=st.lists(CALL, max_size=3).map(tuple)
    ),
    st.builds(ToolCallStarted, seq=NUMBERS, turn_id=TURNS, call_id=CALLS, tool=st.just("sum")),
    st.builds(
        ToolCallFinished,
        seq=NUMBERS,
        turn_id=TURNS,
        call_id=CALLS,
        tool=st.just("sum"),
        is_error=st.booleans(),
        outcome=st.just("ok"),
    ),
    st.builds(TurnAnswered, seq=NUMBERS, turn_id=TURNS, text=st.just("so")),
    st.builds(TurnFailed, seq=NUMBERS, turn_id=TURNS, reason=st.just("x"), message=st.just("y")),
    st.builds(TurnCancelled, seq=NUMBERS, turn_id=TURNS),
    st.builds(TurnResumed, seq=NUMBERS, turn_id=TURNS, attempt=st.just(1)),
    st.builds(TextDelta, turn_id=TURNS, text=st.just("s")),
    st.builds(ConversationClosed, seq=NUMBERS),
    st.builds(TurnSuspended, seq=NUMBERS, turn_id=TURNS),
    st.builds(TurnContinued, seq=NUMBERS, turn_id=TURNS),
    st.builds(ApprovalRequested, seq=NUMBERS, turn_id=TURNS, call_id=CALLS, tool=st.just("sum")),
    st.builds(ApprovalDecided, seq=NUMBERS, turn_id=TURNS, call_id=CALLS, approved=st.booleans()),
    st.builds(ToolApproved, seq=NUMBERS, tool=st.just("sum"), version=st.just("v")),
)
LOGS = st.lists(EVENTS, max_size=30)


@given(LOGS)
def test_a_repaired_log_is_a_valid_history_for_a_model(log: list[Event]) -> None:
    whole, _ = repaired(log)
    waiting: list[str] = []
    seen: Counter[str] = Counter()
    for item in items_of(whole):
        match item:
            case FunctionCall():
                waiting.append(item.call_id)
                seen[item.call_id] += 1
            case FunctionCallOutput():
                assert item.call_id == waiting.pop(0), "outputs come in call order"
            case _:
                assert not waiting, "no message stands between a call and its output"
    assert not waiting
    assert max(seen.values(), default=1) == 1


@given(LOGS)
def test_a_repaired_log_has_a_result_of_its_own_for_every_call_and_an_end_for_every_turn(
    log: list[Event],
) -> None:
    whole, _ = repaired(log)
    assert [event.seq for event in whole] == list(range(1, len(whole) + 1))
    assert isinstance(whole[0], ConversationOpened)
    assert sum(isinstance(event, ConversationOpened) for event in whole) == 1
    calls = [call.call_id for event in whole if isinstance(event, StepFinished) for call in event.calls]
    results = [event.call_id for event in whole if isinstance(event, ToolCallFinished)]
    assert sorted(calls) == sorted(results)
    begun = [event.turn_id for event in whole if isinstance(event, TurnStarted)]
    ended = [getattr(event, "turn_id", "") for event in whole if event.terminal]
    assert sorted(begun) == sorted(ended)
    assert unfinished_turn(whole) is None


@given(LOGS)
def test_repairing_again_changes_nothing(log: list[Event]) -> None:
    whole, _ = repaired(log)
    assert repaired(whole) == (whole, ())
    assert tuple(event_from_json(event_to_json(event)) for event in whole) == whole


@given(LOGS)
def test_an_adopted_log_needs_no_opening(log: list[Event]) -> None:
    whole, _ = repaired(
        adopted(log, conversation_id="new", user="ann", team="red", at="2026-01-01T00:00:00+00:00")
    )
    opened = whole[0]
    assert isinstance(opened, ConversationOpened)
    assert (opened.conversation_id, opened.user, opened.team) == ("new", "ann", "red")
    assert all(event.at for event in whole)
