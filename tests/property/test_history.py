"""Whatever a log went through, the model is shown a valid history: prefixes, disorder, doubles and gaps."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationOpened,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnContinued,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnSuspended,
)
from callboard.actors.history import items_of, unfinished_turn
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.actors.turn import Append, AskModel, Durable, Resume, Turn, TurnLimits
from callboard.tools.content import TextBlock

TURN_IDS = st.sampled_from(["t1", "t2"])
CALL_IDS = st.sampled_from(["a", "b", "a_2", ""])
TEXTS = st.sampled_from(["", "words"])
CALLS = st.lists(
    st.builds(FunctionCall, call_id=CALL_IDS, tool=st.just("f"), arguments=st.just("{}")), max_size=3
).map(tuple)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(TurnStarted, turn_id=TURN_IDS, text=TEXTS),
    st.builds(StepFinished, turn_id=TURN_IDS, step=st.integers(1, 3), text=TEXTS, calls=CALLS),
    st.builds(ToolCallStarted, turn_id=TURN_IDS, call_id=CALL_IDS, tool=st.just("f")),
    st.builds(
        ToolCallFinished,
        turn_id=TURN_IDS,
        call_id=CALL_IDS,
        tool=st.just("f"),
        is_error=st.booleans(),
        outcome=st.just("ok"),
        content=st.just((TextBlock("r"),)),
    ),
    st.builds(ApprovalRequested, turn_id=TURN_IDS, call_id=CALL_IDS, tool=st.just("f")),
    st.builds(
        ApprovalDecided,
        turn_id=TURN_IDS,
        call_id=CALL_IDS,
        approved=st.booleans(),
        arguments=st.none() | st.just({"n": 1}),
    ),
    st.builds(TurnAnswered, turn_id=TURN_IDS, text=TEXTS),
    st.builds(TurnFailed, turn_id=TURN_IDS, reason=st.just("r"), message=st.just("m")),
    st.builds(TurnCancelled, turn_id=TURN_IDS),
    st.builds(TurnResumed, turn_id=TURN_IDS, attempt=st.just(1)),
    *(st.builds(kind, turn_id=TURN_IDS) for kind in (TurnInterrupted, TurnSuspended, TurnContinued)),
    st.just(ConversationOpened(conversation_id="c", user="u", team="t")),
)
# Most arbitrary lists hold no turn at all: a start for each, somewhere near the front, makes them tell something.
LOGS = st.builds(
    lambda front, rest: [*front, *rest],
    st.permutations([TurnStarted(turn_id="t1", text="hi"), TurnStarted(turn_id="t2", text="ho")]),
    st.lists(EVENTS, max_size=25),
)


def assert_valid(items: tuple[Item, ...]) -> None:
    """Each call has one output, behind it and before the next message; no id comes twice."""
    waiting: list[str] = []
    seen: set[str] = set()
    for item in items:
        match item:
            case FunctionCall(call_id=call_id):
                assert call_id
                assert call_id not in seen
                seen.add(call_id)
                waiting.append(call_id)
            case FunctionCallOutput(call_id=call_id):
                assert waiting.pop(0) == call_id
            case ChatMessage():
                assert not waiting
    assert not waiting


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, max_size=25) | LOGS, data=st.data())
def test_every_prefix_of_every_log_gives_a_valid_history(events: list[Event], data: st.DataObject) -> None:
    upto = data.draw(st.integers(0, len(events)))
    assert_valid(items_of(events[:upto], "be brief"))
    assert_valid(items_of(events[:upto], without="t1"))


@settings(max_examples=300, deadline=None)
@given(events=LOGS, damaged=st.booleans())
def test_every_log_can_be_resumed_to_a_valid_request_or_to_one_ending(
    events: list[Event], damaged: bool
) -> None:
    unfinished = unfinished_turn(events)
    if unfinished is None:
        return
    before = items_of(events, without=unfinished.turn_id)
    turn = Turn(TurnLimits(), before)
    effects = turn.handle(Resume(unfinished=unfinished, damaged=damaged), 0.0)
    written: list[Event] = []
    for effect in effects:
        if isinstance(effect, Append):
            written.extend(effect.events)
            effects += turn.handle(Durable(effect.token), 0.0)
        if isinstance(effect, AskModel):
            assert_valid(effect.items)
    assert_valid(turn.items)
    assert_valid(items_of([*events, *written]))
    assert sum(event.terminal for event in written) == (turn.state == "ended")
    assert turn.state in ("ended", "asking", "calling", "suspended")
