"""The forms in which a history may come in: exports, event lines, message lists; and what is none of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callboard.actors.chat_model import Usage
from callboard.actors.events import (
    ConversationOpened,
    Event,
    EventError,
    HistoryRepaired,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
    event_to_json,
)
from callboard.actors.history import items_of
from callboard.actors.history_forms import read_history
from callboard.actors.history_import import adopted, repaired
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput
from callboard.tools.content import Citation, ImageBlock, JsonBlock, TextBlock

LOG: tuple[Event, ...] = (
    ConversationOpened(seq=1, at="2026-01-31T12:00:00.000+00:00", conversation_id="c", user="u", team="t"),
    TurnStarted(seq=2, turn_id="t1", text="hi", deadline_s=3),
    StepFinished(
        seq=3,
        turn_id="t1",
        step=1,
        calls=(FunctionCall(call_id="a", tool="sum", arguments="{}"),),
        usage=Usage(),
    ),
    ToolCallStarted(seq=4, turn_id="t1", call_id="a", tool="sum", arguments={"x": [1, None]}),
    ToolCallFinished(
        seq=5,
        turn_id="t1",
        call_id="a",
        tool="sum",
        is_error=False,
        outcome="ok",
        content=(TextBlock("3"), JsonBlock({"a": 1}), ImageBlock("aGk=", "image/png")),
        citations=(Citation(document="a.md", line=3),),
        duration_s=0.1,
    ),
    TurnAnswered(seq=6, turn_id="t1", text="so"),
)


def weather_messages() -> list[dict[str, Any]]:
    call = {"id": "w", "type": "function", "function": {"name": "weather", "arguments": '{"in": "Oslo"}'}}
    return [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Weather?"}, {"type": "text", "text": "In Oslo."}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "w", "content": "rain"},
        {"role": "assistant", "content": "It rains."},
        {"role": "user", "content": "Thanks"},
    ]


def test_an_export_and_event_lines_are_read_as_the_events_they_were() -> None:
    forms = [event_to_json(event) for event in LOG]
    assert read_history(json.dumps({"format": "callboard history", "version": 1, "events": forms})) == (
        LOG,
        (),
    )
    assert read_history("\n".join(json.dumps(form) for form in forms) + "\n") == (LOG, ())
    assert read_history(json.dumps(forms)) == (LOG, ())
    assert read_history(json.dumps(forms[0])) == (LOG[:1], ())


def test_a_message_list_becomes_turns_with_calls_and_results() -> None:
    events, notes = read_history(json.dumps(weather_messages()))
    log, repairs = repaired(adopted(events, conversation_id="c"), notes)
    items = items_of(log)
    assert [type(item) for item in items] == [
        ChatMessage,
        FunctionCall,
        FunctionCallOutput,
        *[ChatMessage] * 3,
    ]
    assert items[0] == ChatMessage(role="user", content=(TextBlock("Weather?\nIn Oslo."),))
    assert items[1:3] == (
        FunctionCall(call_id="w", tool="weather", arguments='{"in": "Oslo"}'),
        FunctionCallOutput(call_id="w", content=(TextBlock("rain"),)),
    )
    assert items[3] == ChatMessage(role="assistant", content=(TextBlock("It rains."),))
    assert [e.reason for e in log if isinstance(e, TurnFailed)] == ["imported"]
    told = log[-1]
    assert isinstance(told, HistoryRepaired)
    assert "system prompt" in told.repairs[0]
    assert told.repairs == repairs


def test_a_message_list_may_stand_under_messages() -> None:
    assert read_history(json.dumps({"model": "m", "messages": weather_messages()})) == read_history(
        json.dumps(weather_messages())
    )


def test_two_user_messages_in_a_row_are_one_turn_and_an_early_answer_gets_a_question() -> None:
    log, notes = read_history(
        json.dumps(
            [
                {"role": "assistant", "content": "Hello!"},
                {"role": "user", "content": "a"},
                {"role": "user", "content": "b"},
                {"role": "assistant", "content": "c"},
            ]
        )
    )
    assert [e.text for e in log if isinstance(e, TurnStarted)] == ["(no question)", "a\n\nb"]
    assert len(notes) == 1
    assert [e.text for e in log if isinstance(e, TurnAnswered)] == ["Hello!", "c"]


def test_images_of_tools_are_kept_and_what_cannot_be_is_said() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    call = {"id": "p", "type": "function", "function": {"name": "plot", "arguments": {"x": 1}}}
    log, notes = read_history(
        json.dumps(
            [
                {"role": "user", "content": [image, {"type": "input_audio", "input_audio": {}}]},
                {"role": "assistant", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "p", "content": [image]},
                {"role": "assistant", "content": None, "refusal": "No."},
            ]
        )
    )
    assert [e.content for e in log if isinstance(e, ToolCallFinished)] == [(ImageBlock("aGk=", "image/png"),)]
    assert [e.arguments for e in log if isinstance(e, ToolCallStarted)] == [{"x": 1}]
    assert [e.text for e in log if isinstance(e, TurnAnswered)] == ["No."]
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "line 1"),
        ("{}", "expected a history"),
        ("[]", "expected a history"),
        ("3", "expected a history"),
        ("[1]", "message 1"),
        ('[{"role": "wizard"}]', "'wizard'"),
        ('[{"role": "user", "content": 3}]', "message 1"),
        ('[{"role": "user", "content": ["x"]}]', "message 1"),
        ('[{"role": "user"}, {"role": "tool", "content": "x"}]', "message 2"),
        ('[{"role": "assistant", "function_call": {"name": "x"}}]', "tool_calls"),
        ('[{"role": "assistant", "tool_calls": {"id": "x"}}]', "tool_calls"),
        ('[{"role": "assistant", "tool_calls": [{"id": "x"}]}]', "a call such as"),
        ('{"format": "other", "events": []}', "'other'"),
        ('{"format": "callboard history", "version": 9, "events": []}', "newer"),
        ('{"events": [3]}', "event 1"),
        ('{"events": [{"type": "no_such_event"}]}', "no_such_event"),
        ('{"events": [{"type": "turn_started", "turn_id": "t"}]}', "text"),
        (
            '{"events": [{"type": "turn_started", "turn_id": "t", "text": 5}]}',
            "turn_started.text: expected a text",
        ),
        ('{"events": [{"type": "turn_started", "turn_id": "t", "text": "x", "seq": true}]}', "seq"),
        ('{"events": [{"type": "step_finished", "turn_id": "t", "step": 1, "calls": "x"}]}', "calls"),
        ('{"events": [{"type": "step_finished", "turn_id": "t", "step": 1, "usage": 4}]}', "usage"),
        (
            '{"events": [{"type": "step_finished", "turn_id": "t", "step": 1, "calls": '
            '[{"call_id": 1, "tool": "x", "arguments": ""}]}]}',
            "calls[0].call_id: expected a text, got a whole number",
        ),
        ('{"events": [{"type": "conversation_closed", "at": "yesterday"}]}', "yesterday"),
        ('{"events": [{"type": "conversation_closed", "at": "2026-01-31T12:00:00"}]}', "offset"),
        ('{"type": "conversation_closed"}\n{"type', "line 2"),
        ("[" * 100_000, "nested"),
    ],
)
def test_what_is_no_history_is_refused_with_the_place(text: str, says: str) -> None:
    with pytest.raises(EventError) as refused:
        read_history(text)
    assert says in str(refused.value)
