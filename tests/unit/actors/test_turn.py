"""The turn machine, rule by rule."""

from __future__ import annotations

import pytest

from callboard.actors.chat_model import ModelReply, Usage
from callboard.actors.events import (
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
from callboard.actors.history import UnfinishedTurn, unfinished_turn
from callboard.actors.items import FunctionCall, FunctionCallOutput, Item
from callboard.actors.turn import (
    CAP_NOTE,
    CAPPED_ANSWER,
    EMPTY_NOTE,
    NOT_RUN,
    OUTCOME_UNKNOWN,
    TRANSITIONS,
    Append,
    AskModel,
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    KillCall,
    ModelFailed,
    ModelReplied,
    Phase,
    Resume,
    RetryAfter,
    RetryDue,
    StartCall,
    StopModel,
    Turn,
    TurnLimits,
)
from callboard.tools.content import Citation, TextBlock, ToolResult, error_result

OK = ToolResult(content=(TextBlock("ok"),))


class Stage:
    """A turn and all that came out of it; ``auto`` makes every append durable at once."""

    def __init__(
        self, limits: TurnLimits | None = None, history: tuple[Item, ...] = (), *, auto: bool = True
    ) -> None:
        self.turn = Turn(limits or TurnLimits(), history)
        self.auto = auto
        self.now = 100.0
        self.log: list[Event] = []

    def give(self, given: Input) -> list[Effect]:
        self.now += 1
        effects = self.turn.handle(given, self.now)
        for effect in list(effects):
            if isinstance(effect, Append):
                self.log.extend(effect.events)
                if self.auto and effect.wait:
                    effects += self.give(Durable(effect.token))
        return effects

    def begin(self) -> list[Effect]:
        return self.give(Begin(turn_id="t", text="hi"))

    def reply(
        self, *calls: FunctionCall, text: str = "", refusals: dict[str, ToolResult] | None = None
    ) -> list[Effect]:
        reply = ModelReply(text=text, calls=calls, usage=Usage(input_tokens=1, output_tokens=2))
        return self.give(ModelReplied(reply=reply, refusals=refusals or {}))

    def finish(self, *call_ids: str, result: ToolResult = OK) -> list[Effect]:
        return [effect for i in call_ids for effect in self.give(CallFinished(call_id=i, result=result))]

    def step(self, call_id: str, arguments: str = "{}") -> list[Effect]:
        self.reply(call(call_id, arguments))
        return self.finish(call_id)


def call(call_id: str, arguments: str = "{}", tool: str = "f") -> FunctionCall:
    return FunctionCall(call_id=call_id, tool=tool, arguments=arguments)


def kinds(effects: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def asked(effects: list[Effect]) -> AskModel:
    (ask,) = [effect for effect in effects if isinstance(effect, AskModel)]
    return ask


def outcomes(log: list[Event]) -> list[tuple[str, str]]:
    return [(e.call_id, e.outcome) for e in log if isinstance(e, ToolCallFinished)]


# acceptance


def test_the_turn_is_durable_before_the_model_is_asked() -> None:
    stage = Stage(TurnLimits(deadline_s=60), auto=False)
    assert stage.give(Begin(turn_id="t", text="hi", tool_deadline_s=5)) == [
        Append(
            events=(TurnStarted(turn_id="t", text="hi", deadline_s=60, tool_deadline_s=5),),
            token=1,
            wait=True,
        )
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
    failed = ModelFailed(kind="timeout", message="no token", retryable=True)
    delays = []
    for _ in range(3):
        discard, after = stage.give(failed)
        assert discard == Discard("timeout")
        assert isinstance(after, RetryAfter)
        delays.append(after.delay_s)
        assert stage.turn.state == "retrying"
        assert kinds(stage.give(RetryDue())) == ["AskModel"]
    assert delays == [0.25, 0.5, 1.0]
    assert stage.give(failed)[-1] == Ended(
        TurnFailed(turn_id="t", reason="model_timeout", message="no token")
    )


@pytest.mark.parametrize(("wish", "delay"), [(5.0, 5.0), (3600.0, 30.0), (0.0, 0.0), (-1.0, 0.25)])
def test_the_endpoints_wish_is_followed_up_to_a_cap(wish: float, delay: float) -> None:
    stage = Stage()
    stage.begin()
    effects = stage.give(ModelFailed(kind="rate_limited", message="", retryable=True, retry_after_s=wish))
    assert effects[-1] == RetryAfter(delay)


def test_backoff_never_exceeds_eight_seconds() -> None:
    stage = Stage(TurnLimits(model_attempts=50))
    stage.begin()
    for _ in range(49):
        (_, after) = stage.give(ModelFailed(kind="timeout", message="", retryable=True))
        stage.give(RetryDue())
    assert after == RetryAfter(8.0)


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


def prepared(state: Phase) -> Stage:
    stage = Stage(auto=False)
    stage.begin()
    if state is Phase.ACCEPTING:
        return stage
    stage.give(Durable(1))
    if state is Phase.RETRYING:
        stage.give(ModelFailed(kind="timeout", message="", retryable=True))
    if state in (Phase.STARTING, Phase.CALLING):
        stage.reply(call("a"), call("b"))
    if state is Phase.CALLING:
        stage.give(Durable(2))
        stage.finish("a")
    assert stage.turn.phase is state
    return stage


CUT_OFF = {
    Phase.ACCEPTING: ([], []),
    Phase.ASKING: ([StopModel()], []),
    Phase.RETRYING: ([], []),
    Phase.STARTING: ([], [("a", "cancelled"), ("b", "cancelled")]),
    Phase.CALLING: ([KillCall("b")], [("a", "ok"), ("b", "cancelled")]),
}


@pytest.mark.parametrize("phase", CUT_OFF)
@pytest.mark.parametrize("given", [Cancel(reason="owner_gone"), DeadlinePassed()], ids=["cancel", "deadline"])
def test_a_turn_can_be_cut_off_in_every_phase(phase: Phase, given: Input) -> None:
    stage = prepared(phase)
    first, results = CUT_OFF[phase]
    *before, append = stage.give(given)
    assert before == first
    assert isinstance(append, Append)
    assert append.wait
    assert outcomes(stage.log) == results
    match append.events[-1]:
        case TurnCancelled(reason=reason):
            assert isinstance(given, Cancel)
            assert reason == "owner_gone"
        case TurnFailed(reason=reason):
            assert reason == "deadline"
        case other:
            pytest.fail(f"{other}")
    assert stage.give(Durable(append.token)) == [Ended(append.events[-1])]


LATE: list[Input] = [
    Begin(turn_id="u", text=""),
    ModelReplied(reply=ModelReply(text="late", calls=(call("z"),))),
    ModelFailed(kind="timeout", message="", retryable=True),
    CallFinished(call_id="b", result=OK),
    Cancel(),
    DeadlinePassed(),
    RetryDue(),
]


@pytest.mark.parametrize("given", LATE, ids=lambda given: type(given).__name__)
def test_whatever_comes_while_ending_and_after_the_end_is_ignored(given: Input) -> None:
    stage = prepared(Phase.CALLING)
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
    assert rows == set(Phase) - {Phase.ENDED}
    for phase in CUT_OFF:
        assert {Cancel, DeadlinePassed} <= {given for row, given in TRANSITIONS if row is phase}


def test_limits_that_make_no_sense_are_named() -> None:
    with pytest.raises(ValueError, match="max_steps must be 1 or more, got 0"):
        TurnLimits(max_steps=0)
    with pytest.raises(ValueError, match="on_cap must be 'answer' or 'return'"):
        TurnLimits(on_cap="stop")  # type: ignore[arg-type]


# resuming


def left(*tail: Event, calls: tuple[str, ...] = ("a", "b", "c")) -> UnfinishedTurn:
    step = StepFinished(turn_id="t", step=1, calls=tuple(call(i) for i in calls))
    unfinished = unfinished_turn([TurnStarted(turn_id="t", text="hi"), step, *tail])
    assert unfinished is not None
    return unfinished


def begun(call_id: str) -> ToolCallStarted:
    return ToolCallStarted(turn_id="t", call_id=call_id, tool="f", arguments={})


def test_a_turn_lost_before_its_first_step_asks_the_model_again() -> None:
    stage = Stage()
    unfinished = unfinished_turn([TurnStarted(turn_id="t", text="hi")])
    assert unfinished is not None
    assert asked(stage.give(Resume(unfinished=unfinished))).step == 1
    assert stage.log == [TurnResumed(turn_id="t", attempt=1)]


def test_open_calls_are_repeated_only_where_allowed_and_pending_ones_are_run() -> None:
    stage = Stage(auto=False)
    unfinished = left(begun("a"), begun("b"))
    (append,) = stage.give(Resume(unfinished=unfinished, repeatable=frozenset({"b"})))
    assert isinstance(append, Append)
    assert append.wait
    assert append.events[0] == TurnResumed(turn_id="t", attempt=1)
    assert outcomes(stage.log) == [("a", "unknown")]
    assert isinstance(append.events[1], ToolCallFinished)
    assert append.events[1].content == (TextBlock(OUTCOME_UNKNOWN),)
    assert [e.call_id for e in append.events if isinstance(e, ToolCallStarted)] == ["b", "c"]
    starts = stage.give(Durable(append.token))
    assert [e.call.call_id for e in starts if isinstance(e, StartCall)] == ["b", "c"]
    ask = asked(stage.finish("c", "b"))
    assert [i.call_id for i in ask.items if isinstance(i, FunctionCallOutput)] == ["a", "b", "c"]


def test_a_pending_call_that_was_disabled_meanwhile_is_refused() -> None:
    stage = Stage()
    refusals = {"a": error_result("off", "denied"), "c": error_result("off", "denied")}
    unfinished = left(begun("a"), begun("b"))
    stage.give(Resume(unfinished=unfinished, repeatable=frozenset("ab"), refusals=refusals))
    assert outcomes(stage.log) == [("a", "unknown"), ("c", "denied")]


def test_a_third_loss_is_poison() -> None:
    stage = Stage()
    resumed = [TurnResumed(turn_id="t", attempt=n) for n in (1, 2)]
    effects = stage.give(Resume(unfinished=left(begun("a"), *resumed), repeatable=frozenset("a")))
    assert not any(isinstance(e, StartCall | AskModel) for e in effects)
    assert stage.log[0] == TurnResumed(turn_id="t", attempt=3)
    assert outcomes(stage.log) == [("a", "unknown"), ("b", "cancelled"), ("c", "cancelled")]
    assert isinstance(stage.log[-1], TurnFailed)
    assert stage.log[-1].reason == "poison"


def test_results_from_before_count_after_the_resumption() -> None:
    cited = ToolCallFinished(
        turn_id="t", call_id="a", tool="f", is_error=False, outcome="ok", citations=(Citation(document="d"),)
    )
    stage = Stage()
    assert asked(stage.give(Resume(unfinished=left(cited, calls=("a",))))).step == 2
    stage.reply(text="done")
    assert isinstance(stage.log[-1], TurnAnswered)
    assert stage.log[-1].citations == (Citation(document="d"),)


def test_an_answer_that_was_logged_without_its_ending_is_not_asked_for_again() -> None:
    final = StepFinished(turn_id="t", step=1, text="done")
    unfinished = unfinished_turn([TurnStarted(turn_id="t", text="hi"), final])
    assert unfinished is not None
    stage = Stage()
    stage.give(Resume(unfinished=unfinished))
    assert isinstance(stage.log[-1], TurnAnswered)
    assert stage.log[-1].text == "done"


def test_cancelling_a_resumed_turn_before_its_calls_start_keeps_what_is_unknown() -> None:
    stage = Stage(auto=False)
    stage.give(Resume(unfinished=left(begun("a")), repeatable=frozenset("a")))
    stage.give(Cancel())
    results = {e.call_id: e for e in stage.log if isinstance(e, ToolCallFinished)}
    assert results["a"].outcome == "unknown"
    assert results["b"].content == (TextBlock(NOT_RUN),)
