"""The turn machine, rule by rule."""

from __future__ import annotations

import pytest

from callboard.actors.chat_model import ModelReply, Usage
from callboard.actors.context_window import LeftOut
from callboard.actors.events import (
    ContextTrimmed,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.items import FunctionCall, FunctionCallOutput
from callboard.actors.turn import (
    OPEN_PHASES,
    TRANSITIONS,
    Append,
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Decided,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    Interrupt,
    KillCall,
    Left,
    ModelFailed,
    ModelReplied,
    Phase,
    RetryAfter,
    RetryDue,
    SetTimer,
    StartCall,
    StepTimedOut,
    StopModel,
    StorageFailed,
    Turn,
    TurnLimits,
)
from callboard.actors.turn_words import CAP_NOTE, CAPPED_ANSWER, EMPTY_NOTE
from callboard.testing.turn_stage import OK, Stage, asked, call, kinds, outcomes, types
from callboard.tools.content import Attachment, Citation, ToolResult, error_result

# acceptance


def test_the_turn_is_durable_before_the_model_is_asked() -> None:
    stage = Stage(TurnLimits(deadline_s=60), auto=False)
    assert stage.give(Begin(turn_id="t", text="hi", tool_deadline_s=5)) == [
        Append(
            events=(TurnStarted(turn_id="t", text="hi", deadline_s=60, tool_deadline_s=5),),
            token=1,
            wait=True,
        ),
        SetTimer(DeadlinePassed(), 60.0),
    ]
    assert stage.turn.state == "waiting_acceptance"
    assert stage.give(Durable(0)) == []
    ask = asked(stage.give(Durable(1)))
    assert (ask.step, ask.tools_open, ask.note, len(ask.items)) == (1, True, None, 1)
    assert stage.turn.state == "asking"


def test_a_plain_answer_is_durable_before_the_turn_ends() -> None:
    stage = Stage(auto=False)
    stage.begin()
    stage.give(Durable(1))
    (append,) = stage.reply(text="hello")
    assert isinstance(append, Append)
    assert [type(event) for event in append.events] == [StepFinished, TurnAnswered]
    assert stage.turn.state == "ending"
    answered = append.events[1]
    assert stage.give(Durable(2)) == [Ended(answered)]
    assert isinstance(answered, TurnAnswered)
    assert (answered.text, answered.steps, answered.capped) == ("hello", 1, False)
    assert answered.usage == Usage(input_tokens=1, output_tokens=2)
    assert answered.duration_s == 2.0
    assert stage.turn.state == "ended"


# calls


def test_the_step_and_its_starts_are_one_batch_durable_before_any_call_runs() -> None:
    stage = Stage(auto=False)
    stage.begin()
    stage.give(Durable(1))
    (append,) = stage.reply(call("a", '{"n": 1}'), call("b", " "), text="wait")
    assert isinstance(append, Append)
    assert append.wait
    assert [type(event) for event in append.events] == [StepFinished, ToolCallStarted, ToolCallStarted]
    assert stage.give(Durable(2)) == [
        StartCall(call=call("a", '{"n": 1}'), arguments={"n": 1}),
        StartCall(call=call("b", " "), arguments={}),
    ]
    assert stage.turn.state == "calling"


def test_an_earlier_append_becoming_durable_starts_no_call() -> None:
    stage = Stage(auto=False)
    stage.begin()
    stage.give(Durable(1))
    stage.reply(call("a"))
    stage.give(Durable(2))
    stage.finish("a")
    (batch,) = stage.reply(call("b"))
    assert isinstance(batch, Append)
    assert batch.token == 4
    assert stage.give(Durable(3)) == []
    assert kinds(stage.give(Durable(4))) == ["StartCall"]


def test_results_are_logged_as_they_come_and_shown_in_call_order() -> None:
    stage = Stage()
    stage.begin()
    stage.reply(call("a"), call("b"))
    (first,) = stage.finish("b")
    assert isinstance(first, Append)
    assert not first.wait
    ask = asked(stage.finish("a"))
    assert [i.call_id for i in ask.items if isinstance(i, FunctionCallOutput)] == ["a", "b"]
    assert [call_id for call_id, _ in outcomes(stage.log)] == ["b", "a"]


def test_a_refused_call_gets_its_result_without_a_start() -> None:
    stage = Stage()
    stage.begin()
    effects = stage.reply(call("a"), call("b"), refusals={"a": error_result("disabled", "denied")})
    assert [e.call.call_id for e in effects if isinstance(e, StartCall)] == ["b"]
    assert [e.call_id for e in stage.log if isinstance(e, ToolCallStarted)] == ["b"]
    assert outcomes(stage.log) == [("a", "denied")]


def test_when_every_call_is_refused_the_model_is_asked_again() -> None:
    stage = Stage()
    stage.begin()
    assert asked(stage.reply(call("a"), refusals={"a": error_result("no")})).step == 2


@pytest.mark.parametrize("text", ["{", "[1]", "3", '"x"', "[" * 100_000])
def test_arguments_that_are_no_object_never_reach_a_tool(text: str) -> None:
    stage = Stage()
    stage.begin()
    assert asked(stage.reply(call("a", text))).step == 2
    assert outcomes(stage.log) == [("a", "error")]


@pytest.mark.parametrize("text", ["", "  ", "null", "{}"])
def test_blank_arguments_are_an_empty_object(text: str) -> None:
    stage = Stage()
    stage.begin()
    assert stage.reply(call("a", text))[-1] == StartCall(call=call("a", text), arguments={})


def test_doubled_and_unknown_results_are_ignored() -> None:
    stage = Stage()
    stage.begin()
    stage.reply(call("a"), call("b"))
    stage.finish("a")
    assert stage.finish("a", "nonsense") == []
    assert stage.turn.state == "calling"


def test_calls_over_the_limit_of_one_reply_are_not_run() -> None:
    stage = Stage(TurnLimits(max_calls=2))
    stage.begin()
    effects = stage.reply(*(call(str(n)) for n in range(4)))
    assert sum(isinstance(e, StartCall) for e in effects) == 2
    assert outcomes(stage.log) == [("2", "error"), ("3", "error")]


def test_call_ids_are_made_unique_position_by_position() -> None:
    stage = Stage(history=(call("a"), FunctionCallOutput(call_id="a", content=())))
    stage.begin()
    effects = stage.reply(call("a", '{"n":1}'), call("a", '{"n":2}'), call(""), call("b"))
    starts = [(e.call.call_id, e.arguments) for e in effects if isinstance(e, StartCall)]
    assert starts == [("a_2", {"n": 1}), ("a_3", {"n": 2}), ("call_1", {}), ("b", {})]
    ask = asked(stage.finish("a_3", "b", "a_2", "call_1"))
    stage_two = [i.call_id for i in ask.items if isinstance(i, FunctionCall)]
    assert stage_two == ["a", "a_2", "a_3", "call_1", "b"]
    assert [e.call.call_id for e in stage.reply(call("b")) if isinstance(e, StartCall)] == ["b_2"]


def test_refusals_follow_their_calls_through_the_renaming() -> None:
    stage = Stage(history=(call("a"), FunctionCallOutput(call_id="a", content=())))
    stage.begin()
    effects = stage.reply(call("a"), call("b"), refusals={"a": error_result("no")})
    assert [e.call.call_id for e in effects if isinstance(e, StartCall)] == ["b"]
    assert outcomes(stage.log) == [("a_2", "error")]


def test_citations_are_collected_in_call_order_without_doubles() -> None:
    stage = Stage()
    stage.begin()
    one, two = Citation(document="one"), Citation(document="two")
    stage.reply(call("a"), call("b"))
    stage.finish("b", result=ToolResult(citations=(two, one)))
    stage.finish("a", result=ToolResult(citations=(one,)))
    stage.reply(text="done")
    answered = stage.log[-1]
    assert isinstance(answered, TurnAnswered)
    assert answered.citations == (one, two)
    assert answered.usage == Usage(input_tokens=2, output_tokens=4)


def test_the_same_call_three_steps_in_a_row_is_noted_to_the_model() -> None:
    stage = Stage()
    stage.begin()
    assert asked(stage.step("a", '{"x":1,"y":2}')).note is None
    assert asked(stage.step("b", '{"y":2, "x":1}')).note is None
    note = asked(stage.step("c", '{"x":1,"y":2}')).note
    assert note is not None
    assert "called f with the same arguments 3 times" in note
    assert asked(stage.step("d", '{"x":2}')).note is None
    repeated = [step.repeated for step in stage.log if isinstance(step, StepFinished)]
    assert repeated == [(), (), ("f",), ()]


# the cap


def test_at_the_cap_the_tools_close_and_a_last_answer_is_asked_for() -> None:
    stage = Stage(TurnLimits(max_steps=2))
    stage.begin()
    assert asked(stage.step("a")).tools_open
    last = asked(stage.step("b"))
    assert (last.tools_open, last.note, last.step) == (False, CAP_NOTE, 3)
    assert last.context[:-1] == last.items
    stage.reply(call("c"), text="what I have")
    answered = stage.log[-1]
    assert isinstance(answered, TurnAnswered)
    assert (answered.text, answered.capped, answered.steps) == ("what I have", True, 3)
    assert outcomes(stage.log) == [("a", "ok"), ("b", "ok")]
    assert not any(isinstance(i, FunctionCall) and i.call_id == "c" for i in stage.turn.items)


def test_a_capped_turn_without_words_states_it() -> None:
    stage = Stage(TurnLimits(max_steps=1))
    stage.begin()
    stage.step("a")
    stage.reply(call("b"))
    assert isinstance(stage.log[-1], TurnAnswered)
    assert stage.log[-1].text == CAPPED_ANSWER


def test_on_cap_return_fails_and_keeps_the_work() -> None:
    stage = Stage(TurnLimits(max_steps=1, on_cap="return"))
    stage.begin()
    effects = stage.step("a")
    assert kinds(effects) == ["Append", "Append", "Ended"]
    assert isinstance(stage.log[-1], TurnFailed)
    assert stage.log[-1].reason == "step_cap"
    assert any(isinstance(item, FunctionCallOutput) for item in stage.turn.items)


def test_an_answer_in_the_last_allowed_step_is_not_capped() -> None:
    stage = Stage(TurnLimits(max_steps=2))
    stage.begin()
    stage.step("a")
    stage.reply(text="done")
    assert isinstance(stage.log[-1], TurnAnswered)
    assert not stage.log[-1].capped


# the model's failures


def test_a_retryable_failure_is_retried_with_backoff_and_then_fails() -> None:
    stage = Stage(TurnLimits(model_attempts=4))
    stage.begin()
    failed = ModelFailed(kind="timeout", message="no token", retryable=True, chance=0.5)
    delays = []
    for _ in range(3):
        discard, after = stage.give(failed)
        assert discard == Discard("timeout")
        assert isinstance(after, RetryAfter)
        delays.append(after.delay_s)
        assert stage.turn.state == "retrying"
        assert kinds(stage.give(RetryDue())) == ["AskModel"]
    assert delays == [0.1875, 0.375, 0.75]
    assert stage.give(failed)[-1] == Ended(
        TurnFailed(turn_id="t", reason="model_timeout", message="no token")
    )


@pytest.mark.parametrize("kind", ["rate_limited", "unavailable"])
def test_the_endpoints_wish_is_followed_and_never_undercut(kind: str) -> None:
    stage = Stage()
    stage.begin()
    failed = ModelFailed(kind=kind, message="", retryable=True, retry_after_s=5.0, chance=0.5)
    assert stage.give(failed)[-1] == RetryAfter(5.25)


def test_a_wish_for_longer_than_a_turn_may_wait_ends_it_at_once() -> None:
    stage = Stage()
    stage.begin()
    stage.give(ModelFailed(kind="rate_limited", message="in 40 s", retryable=True, retry_after_s=40.0))
    assert stage.log[-1] == TurnFailed(turn_id="t", reason="model_rate_limited", message="in 40 s")


def test_a_history_that_does_not_fit_is_named_as_such() -> None:
    stage = Stage()
    stage.begin()
    stage.give(ModelFailed(kind="context_window", message="too long", retryable=False))
    assert stage.log[-1] == TurnFailed(turn_id="t", reason="context_window", message="too long")


def test_what_cannot_be_retried_fails_at_once() -> None:
    stage = Stage()
    stage.begin()
    stage.give(ModelFailed(kind="rejected", message="wrong key", retryable=False))
    assert stage.log[-1] == TurnFailed(turn_id="t", reason="model_rejected", message="wrong key")


def test_each_step_has_its_own_attempts() -> None:
    stage = Stage(TurnLimits(model_attempts=2))
    stage.begin()
    for call_id in ("a", "b"):
        stage.give(ModelFailed(kind="timeout", message="", retryable=True))
        stage.give(RetryDue())
        stage.step(call_id)
    assert stage.turn.state == "asking"


def test_an_empty_answer_is_asked_for_once_more_and_then_fails() -> None:
    stage = Stage()
    stage.begin()
    ask = asked(stage.reply(text=" \n"))
    assert (ask.note, ask.step) == (EMPTY_NOTE, 1)
    stage.reply()
    assert isinstance(stage.log[-1], TurnFailed)
    assert stage.log[-1].reason == "empty_answer"


def test_an_answer_after_an_empty_one_counts_the_usage_of_both() -> None:
    stage = Stage()
    stage.begin()
    stage.reply()
    stage.reply(text="now")
    assert isinstance(stage.log[-1], TurnAnswered)
    assert stage.log[-1].usage == Usage(input_tokens=2, output_tokens=4)


# cancelling


def prepared(state: str) -> Stage:
    stage = Stage(auto=False)
    stage.begin()
    if state == "accepting":
        return stage
    stage.give(Durable(1))
    if state == "retrying":
        stage.give(ModelFailed(kind="timeout", message="", retryable=True))
    if state in ("starting", "calling"):
        stage.reply(call("a"), call("b"))
    if state == "calling":
        stage.give(Durable(2))
        stage.finish("a")
    if state.startswith("suspended"):
        stage.reply(call("a"), call("b"), approvals={"a": "destructive", "b": "destructive"})
        stage.give(Durable(3))
        stage.give(Decided(call_id="a", approved=False))
    phase = {"starting": Phase.CALLING}.get(state) or Phase[state.upper()]
    assert stage.turn.phase is phase
    return stage


CUT_OFF: dict[str, tuple[list[Effect], list[tuple[str, str]]]] = {
    "accepting": ([], []),
    "asking": ([StopModel()], []),
    "retrying": ([], []),
    "starting": ([], [("a", "cancelled"), ("b", "cancelled")]),
    "calling": ([KillCall("b")], [("a", "ok"), ("b", "cancelled")]),
    "suspended": ([], [("a", "denied"), ("b", "cancelled")]),
}
CUTS: list[Input] = [
    Cancel(reason="owner_gone"),
    DeadlinePassed(),
    StorageFailed(kind="storage_full", message="no room"),
]


@pytest.mark.parametrize("state", CUT_OFF)
@pytest.mark.parametrize("given", CUTS, ids=lambda given: type(given).__name__)
def test_a_turn_can_be_cut_off_in_every_state(state: str, given: Input) -> None:
    stage = prepared(state)
    if state == "suspended" and isinstance(given, DeadlinePassed):
        assert stage.give(given) == []
        return
    first, results = CUT_OFF[state]
    *before, append = stage.give(given)
    assert before == first
    assert isinstance(append, Append)
    assert append.wait
    assert outcomes(stage.log) == results
    match append.events[-1]:
        case TurnCancelled(reason=reason):
            assert reason == "owner_gone"
        case TurnFailed(reason=reason):
            assert reason == ("deadline" if isinstance(given, DeadlinePassed) else "storage_full")
        case other:
            pytest.fail(f"{other}")
    assert stage.give(Durable(append.token)) == [Ended(append.events[-1])]


@pytest.mark.parametrize("state", [state for state in CUT_OFF if state != "suspended"])
def test_a_turn_can_be_left_on_purpose_in_every_state(state: str) -> None:
    stage = prepared(state)
    results = outcomes(stage.log)
    *before, append = stage.give(Interrupt())
    assert before == CUT_OFF[state][0]
    assert isinstance(append, Append)
    assert [event.type for event in append.events] == ["turn_interrupted"]
    for late in (*LATE, Interrupt()):
        assert stage.give(late) == []
    assert stage.give(Durable(append.token)) == [Left()]
    assert outcomes(stage.log) == results
    assert stage.turn.state == "left"


def test_a_turn_that_is_left_while_it_ends_ends_first() -> None:
    stage = prepared("calling")
    append = stage.give(Cancel())[-1]
    assert isinstance(append, Append)
    assert stage.give(Interrupt()) == []
    assert stage.give(Durable(append.token)) == [Ended(append.events[-1]), Left()]


LATE: list[Input] = [
    Begin(turn_id="u", text=""),
    ModelReplied(reply=ModelReply(text="late", calls=(call("z"),))),
    ModelFailed(kind="timeout", message="", retryable=True),
    CallFinished(call_id="b", result=OK),
    Cancel(),
    DeadlinePassed(),
    RetryDue(),
    StepTimedOut(1),
    Decided(call_id="b", approved=True),
    StorageFailed(kind="storage_full", message=""),
]


@pytest.mark.parametrize("given", LATE, ids=lambda given: type(given).__name__)
def test_whatever_comes_while_ending_and_after_the_end_is_ignored(given: Input) -> None:
    stage = prepared("calling")
    append = stage.give(Cancel())[-1]
    assert isinstance(append, Append)
    assert stage.give(given) == []
    assert kinds(stage.give(Durable(append.token))) == ["Ended"]
    assert stage.give(given) == []
    assert stage.give(Durable(append.token)) == []


def test_nothing_can_happen_to_a_turn_that_did_not_begin() -> None:
    for given in LATE[1:]:
        assert Turn(TurnLimits()).handle(given, 0.0) == []


def test_the_table_knows_every_open_phase_and_no_way_out_of_the_end() -> None:
    rows = {phase for phase, _ in TRANSITIONS}
    assert rows == set(Phase) - {Phase.ENDED, Phase.LEFT}
    for phase in OPEN_PHASES:
        assert {Cancel, StorageFailed, Interrupt} <= {given for row, given in TRANSITIONS if row is phase}


def test_every_phase_can_be_reached() -> None:
    reached = {Phase.NEW}.union(*TRANSITIONS.values())
    assert reached == set(Phase)


def test_limits_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="max_steps must be 1 or more, got 0"):
        TurnLimits(max_steps=0)
    with pytest.raises(ValueError, match="step_deadline_s must be a positive number of seconds, got 0"):
        TurnLimits(step_deadline_s=0)
    with pytest.raises(ValueError, match="on_cap must be 'answer' or 'return'"):
        TurnLimits(on_cap="stop")  # type: ignore[arg-type]


# the step's deadline and the turn's clock


def test_a_model_that_is_over_the_steps_deadline_is_asked_again_with_a_fresh_clock() -> None:
    stage = Stage(TurnLimits(step_deadline_s=5, model_attempts=2))
    assert stage.begin()[-1] == SetTimer(StepTimedOut(1), 5)
    assert stage.give(StepTimedOut(2)) == []
    stopped, discard, retry, timer = stage.give(StepTimedOut(1))
    assert (stopped, discard, timer) == (StopModel(), Discard("timeout"), SetTimer(StepTimedOut(0), None))
    assert isinstance(retry, RetryAfter)
    assert stage.give(RetryDue())[-1] == SetTimer(StepTimedOut(1), 5)
    stage.give(StepTimedOut(1))
    ended = stage.log[-1]
    assert isinstance(ended, TurnFailed)
    assert (ended.reason, "deadline of 5 s" in ended.message) == ("model_timeout", True)


def test_calls_over_the_steps_deadline_are_killed_and_the_model_is_told() -> None:
    stage = Stage(TurnLimits(step_deadline_s=5))
    stage.begin()
    stage.reply(call("a"), call("b"))
    stage.finish("a")
    assert stage.give(StepTimedOut(2)) == []
    effects = stage.give(StepTimedOut(1))
    assert kinds(effects) == ["KillCall", "Append", "AskModel", "SetTimer"]
    assert outcomes(stage.log) == [("a", "ok"), ("b", "deadline")]
    assert effects[-1] == SetTimer(StepTimedOut(2), 5)
    assert stage.finish("b") == []


def test_a_call_that_the_steps_deadline_overtakes_while_it_is_written_never_starts() -> None:
    stage = Stage(TurnLimits(step_deadline_s=5), auto=False)
    stage.begin()
    stage.give(Durable(1))
    stage.reply(call("a"))
    assert "AskModel" in kinds(stage.give(StepTimedOut(1)))
    assert outcomes(stage.log) == [("a", "deadline")]
    assert stage.give(Durable(3)) == []


def test_calls_over_the_limit_of_the_turn_are_not_run() -> None:
    stage = Stage(TurnLimits(max_turn_calls=3))
    stage.begin()
    stage.reply(call("a"), call("b"))
    stage.finish("a", "b")
    effects = stage.reply(call("c"), call("d"))
    assert [e.call.call_id for e in effects if isinstance(e, StartCall)] == ["c"]
    assert outcomes(stage.log)[-1] == ("d", "error")


# what else the shell hands in


def test_what_the_model_was_not_shown_is_an_event_before_its_step() -> None:
    stage = Stage(history=(call("x"), FunctionCallOutput(call_id="x", content=())))
    assert asked(stage.begin()).turn_at == 2
    left_out = LeftOut(items=2, tokens=90, cut_results=1, limit=100)
    stage.give(ModelReplied(reply=ModelReply(text="done"), left_out=left_out))
    assert types(stage.log) == ["turn_started", "context_trimmed", "step_finished", "turn_answered"]
    assert stage.log[1] == ContextTrimmed(
        turn_id="t", step=1, left_out_items=2, left_out_tokens=90, cut_results=1, limit=100
    )


def test_the_resolved_decision_is_logged_with_the_start_and_with_the_refusal() -> None:
    stage = Stage()
    stage.begin()
    decisions = {"a": "allowed: enabled here", "b": "denied: rule 3"}
    reply = ModelReply(calls=(call("a"), call("b")))
    stage.give(ModelReplied(reply=reply, refusals={"b": error_result("no", "denied")}, decisions=decisions))
    told = {e.call_id: e.decision for e in stage.log if isinstance(e, ToolCallStarted | ToolCallFinished)}
    assert told == decisions


def test_what_a_tool_printed_and_its_whole_text_are_logged_but_not_shown() -> None:
    stage = Stage()
    stage.begin()
    stage.reply(call("a"))
    whole = Attachment.of(b"whole", "text/plain")
    ask = asked(stage.finish("a", result=ToolResult(output="printed", attachments=(whole,))))
    finished = stage.log[-1]
    assert isinstance(finished, ToolCallFinished)
    assert (finished.output, finished.attachments) == ("printed", (whole,))
    assert ask.items[-1] == FunctionCallOutput(call_id="a", content=())
