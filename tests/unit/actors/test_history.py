"""Folding a log into what the model is shown, the turn left open, and the enabled set."""

from __future__ import annotations

from callboard.actors.events import (
    ApprovalDecided,
    ConversationOpened,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnResumed,
    TurnStarted,
)
from callboard.actors.history import NO_RESULT, items_of, unfinished_turn
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item, Role
from callboard.tools.content import TextBlock

OPENED = ConversationOpened(conversation_id="c", user="u", team="t", enabled=("clock", "sum"))


def started(turn_id: str = "t1", text: str = "hi") -> TurnStarted:
    return TurnStarted(turn_id=turn_id, text=text)


def call(call_id: str) -> FunctionCall:
    return FunctionCall(call_id=call_id, tool="sum", arguments="{}")


def step(*call_ids: str, text: str = "", turn_id: str = "t1", number: int = 1) -> StepFinished:
    return StepFinished(turn_id=turn_id, step=number, text=text, calls=tuple(call(i) for i in call_ids))


def begun(call_id: str) -> ToolCallStarted:
    return ToolCallStarted(turn_id="t1", call_id=call_id, tool="sum", arguments={})


def finished(call_id: str, text: str = "3", *, is_error: bool = False) -> ToolCallFinished:
    return ToolCallFinished(
        turn_id="t1",
        call_id=call_id,
        tool="sum",
        is_error=is_error,
        outcome="error" if is_error else "ok",
        content=(TextBlock(text),),
    )


def message(role: Role, text: str, *, interrupted: bool = False) -> ChatMessage:
    return ChatMessage(role=role, content=(TextBlock(text),), interrupted=interrupted)


def output(call_id: str, text: str = "3", *, is_error: bool = False) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, content=(TextBlock(text),), is_error=is_error)


def shown(*events: Event, prompt: str = "") -> list[Item]:
    return list(items_of(events, prompt))


def test_an_answered_turn_is_shown_in_order_and_its_answer_once() -> None:
    items = shown(
        OPENED,
        started(),
        step("a", "b", text="let me see"),
        begun("a"),
        begun("b"),
        finished("b", "second"),
        finished("a", "first", is_error=True),
        step(text="done", number=2),
        TurnAnswered(turn_id="t1", text="done"),
        prompt="be brief",
    )
    assert items == [
        message("system", "be brief"),
        message("user", "hi"),
        message("assistant", "let me see"),
        call("a"),
        call("b"),
        output("a", "first", is_error=True),
        output("b", "second"),
        message("assistant", "done"),
    ]


def test_an_answer_that_differs_from_the_last_text_does_not_hide_it() -> None:
    items = shown(started(), step(text="thinking"), TurnAnswered(turn_id="t1", text="capped"))
    assert items[1:] == [message("assistant", "thinking"), message("assistant", "capped")]


def test_a_call_without_a_result_gets_a_synthetic_one() -> None:
    items = shown(started(), step("a", "b"), begun("a"), finished("b"))
    assert items[-2:] == [output("a", NO_RESULT, is_error=True), output("b")]


def test_cancelled_and_failed_turns_keep_their_work_and_say_so() -> None:
    work = (started(), step("a"), begun("a"), finished("a"))
    for ending, text in (
        (TurnCancelled(turn_id="t1"), "[This turn was cancelled.]"),
        (TurnFailed(turn_id="t1", reason="step_cap", message="m"), "[This turn failed: step_cap.]"),
    ):
        items = shown(*work, ending)
        assert items[1:-1] == [call("a"), output("a")]
        assert items[-1] == message("assistant", text, interrupted=True)


def test_turns_are_shown_whole_even_where_their_events_interleave() -> None:
    second = TurnAnswered(turn_id="t2", text="two")
    items = shown(
        started(), started("t2", "next"), step(text="one"), TurnAnswered(turn_id="t1", text="one"), second
    )
    texts = [item.content[0] for item in items if isinstance(item, ChatMessage)]
    assert texts == [TextBlock("hi"), TextBlock("one"), TextBlock("next"), TextBlock("two")]


def test_a_second_result_or_a_late_event_changes_nothing() -> None:
    events = [started(), step("a"), finished("a", "first"), TurnCancelled(turn_id="t1")]
    late = [finished("a", "second"), step("z", number=2), TurnAnswered(turn_id="t1", text="no")]
    assert shown(*events, *late) == shown(*events)


def test_one_turn_can_be_left_out() -> None:
    events = [started(), step(text="one"), TurnAnswered(turn_id="t1", text="one"), started("t2", "next")]
    assert items_of(events, "", without="t2") == items_of(events[:-1], "")


def test_the_unfinished_turn_tells_open_calls_from_pending_ones() -> None:
    turn = unfinished_turn(
        [
            started("t0"),
            TurnCancelled(turn_id="t0"),
            started(),
            TurnResumed(turn_id="t1", attempt=1),
            step("a", "b", "c"),
            begun("b"),
            begun("a"),
            finished("a"),
            begun("b"),
        ]
    )
    assert turn is not None
    assert (turn.turn_id, turn.resumes) == ("t1", 1)
    assert turn.open_calls == (call("b"),)
    assert turn.pending_calls == (call("c"),)
    assert items_of(turn.events, "")[1:5] == (call("a"), call("b"), call("c"), output("a"))


def test_a_log_whose_turns_all_ended_has_no_unfinished_turn() -> None:
    assert unfinished_turn([OPENED]) is None
    assert unfinished_turn([OPENED, started(), TurnFailed(turn_id="t1", reason="r", message="m")]) is None


def test_a_call_id_that_comes_twice_is_shown_under_two_names_with_an_output_each() -> None:
    other = StepFinished(turn_id="t2", step=1, calls=(call("a"),))
    result = ToolCallFinished(turn_id="t2", call_id="a", tool="sum", is_error=False, outcome="ok")
    items = shown(
        started(), step("a", "a"), finished("a"), TurnCancelled(turn_id="t1"), started("t2"), other, result
    )
    assert [i.call_id for i in items if isinstance(i, FunctionCall)] == ["a", "a_2", "a_3"]
    assert [i.call_id for i in items if isinstance(i, FunctionCallOutput)] == ["a", "a_2", "a_3"]


def test_a_step_that_was_logged_twice_is_shown_once() -> None:
    once = [started(), step("a"), finished("a")]
    assert shown(*once, step("a")) == shown(*once)


def test_arguments_that_the_user_changed_are_told_with_the_result() -> None:
    decided = ApprovalDecided(turn_id="t1", call_id="a", approved=True, arguments={"n": "ü"})
    (result,) = shown(started(), step("a"), decided, finished("a"))[2:]
    assert isinstance(result, FunctionCallOutput)
    assert result.content == (
        TextBlock('[The user changed the arguments before this ran, to {"n": "ü"}]'),
        TextBlock("3"),
    )
