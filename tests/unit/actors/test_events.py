"""Events and their JSON form."""

from __future__ import annotations

import json

import pytest

from callboard.actors.chat_model import Usage
from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationOpened,
    Event,
    EventError,
    Owner,
    StepFinished,
    TextDelta,
    TextDiscarded,
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
    event_from_json,
    event_to_json,
)
from callboard.actors.items import FunctionCall
from callboard.tools.content import Citation, ImageBlock, JsonBlock, ResourceBlock, TextBlock

BLOCKS = (
    TextBlock("x"),
    JsonBlock({"a": [1, None]}),
    ImageBlock("aGk=", "image/png"),
    ResourceBlock("file:///a", "text/plain", text="t"),
)
CITED = (Citation(document="d", page=2, score=0.5), Citation(url="https://example.org"))
SAMPLES: list[Event] = [
    ConversationOpened(
        seq=1, at="2026-01-01T00:00:00Z", conversation_id="c", user="u", team="t", roles=("r",)
    ),
    ConversationOpened(
        conversation_id="c",
        user="u",
        team="t",
        enabled=("a", "b"),
        owner=Owner(pid=1, start_time=2.5, boot_id="b"),
    ),
    TurnStarted(seq=2, turn_id="t", text="hi", deadline_s=3.0),
    TurnResumed(turn_id="t", attempt=2),
    TurnInterrupted(turn_id="t"),
    TurnSuspended(turn_id="t"),
    TurnContinued(turn_id="t"),
    StepFinished(turn_id="t", step=2, repeated=("f",)),
    ApprovalRequested(turn_id="t", call_id="a", tool="f", arguments={"n": 1}, digest="d", reason="r"),
    ApprovalDecided(turn_id="t", call_id="a", approved=True, arguments={"n": 2}, by="ann", reason="r"),
    StepFinished(
        turn_id="t",
        step=1,
        text="x",
        calls=(FunctionCall(call_id="a", tool="f", arguments="{"),),
        usage=Usage(input_tokens=3, output_tokens=4),
        model="m",
    ),
    ToolCallStarted(turn_id="t", call_id="a", tool="f", arguments={"n": [1]}),
    ToolCallFinished(
        turn_id="t",
        call_id="a",
        tool="f",
        is_error=True,
        outcome="killed",
        content=BLOCKS,
        citations=CITED,
        duration_s=0.25,
    ),
    TurnAnswered(turn_id="t", text="x", citations=CITED, capped=True, steps=3, usage=Usage(input_tokens=1)),
    TurnFailed(turn_id="t", reason="step_cap", message="m"),
    TurnCancelled(turn_id="t", reason="owner_gone"),
    TextDelta(turn_id="t", text="x"),
    TextDiscarded(turn_id="t", reason="timeout"),
]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.type)
def test_every_event_comes_back_from_its_json_text(event: Event) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_exactly_the_three_endings_are_terminal_and_live_events_are_not_logged() -> None:
    assert {type(e) for e in SAMPLES if e.terminal} == {TurnAnswered, TurnFailed, TurnCancelled}
    assert {type(e) for e in SAMPLES if not e.logged} == {TextDelta, TextDiscarded}


def test_an_unknown_type_and_a_missing_field_are_named() -> None:
    with pytest.raises(EventError, match="unknown event type 'nonsense'"):
        event_from_json({"type": "nonsense"})
    with pytest.raises(EventError, match="turn_id"):
        event_from_json({"type": "turn_cancelled"})
    with pytest.raises(EventError, match="bad tool_call_finished"):
        event_from_json({"type": "tool_call_finished", "content": [{"type": "text"}]})


def test_fields_of_a_later_version_are_passed_over() -> None:
    form = event_to_json(TurnCancelled(turn_id="t")) | {"mood": "fine"}
    assert event_from_json(form) == TurnCancelled(turn_id="t")
