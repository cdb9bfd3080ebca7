"""A turn that is taken up again: what was lost, what was left, and what a person has to say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnContinued,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnSuspended,
)
from callboard.actors.history import UnfinishedTurn, unfinished_turn
from callboard.actors.items import FunctionCallOutput
from callboard.actors.turn import (
    Append,
    AskModel,
    Cancel,
    DeadlinePassed,
    Decided,
    Discard,
    Durable,
    Interrupt,
    Left,
    Resume,
    SetTimer,
    StartCall,
    Suspended,
)
from callboard.actors.turn_words import NOT_RUN, OUTCOME_UNKNOWN
from callboard.testing.turn_stage import Stage, asked, call, kinds, outcomes, types
from callboard.tools.content import Citation, TextBlock, error_result


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
    discard, append = stage.give(Resume(unfinished=unfinished, repeatable=frozenset({"b"})))
    assert discard == Discard("resumed")
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


def test_a_second_loss_is_poison() -> None:
    stage = Stage()
    resumed = TurnResumed(turn_id="t", attempt=1)
    effects = stage.give(Resume(unfinished=left(begun("a"), resumed), repeatable=frozenset("a")))
    assert not any(isinstance(e, StartCall | AskModel) for e in effects)
    assert stage.log[0] == TurnResumed(turn_id="t", attempt=2)
    assert outcomes(stage.log) == [("a", "unknown"), ("b", "cancelled"), ("c", "cancelled")]
    assert isinstance(stage.log[-1], TurnFailed)
    assert stage.log[-1].reason == "poison"


def test_a_stop_on_purpose_is_no_loss_however_often() -> None:
    stopped = (TurnInterrupted(turn_id="t"), TurnResumed(turn_id="t", attempt=1))
    unfinished = left(*stopped, *stopped, TurnInterrupted(turn_id="t"))
    assert (unfinished.resumes, unfinished.losses) == (2, 0)
    assert left(*stopped, *stopped).losses == 1
    stage = Stage()
    assert "StartCall" in kinds(stage.give(Resume(unfinished=unfinished)))


def test_a_damaged_log_fails_the_turn_and_claims_nothing_about_its_calls() -> None:
    stage = Stage()
    stage.give(Resume(unfinished=left(begun("a"), TurnSuspended(turn_id="t")), damaged=True))
    assert types(stage.log)[0] == "turn_continued"
    assert outcomes(stage.log) == [("a", "unknown"), ("b", "unknown"), ("c", "unknown")]
    assert isinstance(stage.log[-1], TurnFailed)
    assert stage.log[-1].reason == "log_damaged"


def test_the_deadline_goes_on_over_a_loss_and_may_pass_before_the_resumption() -> None:
    unfinished = unfinished_turn([TurnStarted(turn_id="t", text="hi", deadline_s=10)])
    assert unfinished is not None
    stage = Stage()
    assert SetTimer(DeadlinePassed(), 6.0) in stage.give(Resume(unfinished=unfinished, elapsed_s=4))
    late = Stage()
    late.give(Resume(unfinished=unfinished, elapsed_s=10))
    assert isinstance(late.log[-1], TurnFailed)
    assert late.log[-1].reason == "deadline"


def at(seconds: float) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def test_the_used_time_is_told_by_the_log_without_the_time_in_suspension() -> None:
    began = TurnStarted(turn_id="t", text="hi", at=at(0))
    now = datetime.fromisoformat(at(100))
    suspended = [began, TurnSuspended(turn_id="t", at=at(5))]
    continued = [*suspended, TurnContinued(turn_id="t", at=at(65))]
    for events, used_s in (([began], 100), (suspended, 5), (continued, 40)):
        unfinished = unfinished_turn(events)
        assert unfinished is not None
        assert unfinished.elapsed_s(now) == used_s
    unknown = unfinished_turn([TurnStarted(turn_id="t", text="hi", at="noon")])
    assert unknown is not None
    assert unknown.elapsed_s(now) == 0


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


# with a person asked


def requested(*call_ids: str) -> list[Event]:
    return [
        ApprovalRequested(turn_id="t", call_id=i, tool="f", arguments={}, digest=f"d-{i}") for i in call_ids
    ]


def test_a_suspended_turn_comes_back_suspended_with_the_decisions_so_far() -> None:
    denied = ApprovalDecided(turn_id="t", call_id="b", approved=False)
    result = ToolCallFinished(turn_id="t", call_id="b", tool="f", is_error=True, outcome="denied")
    pauses = [
        TurnSuspended(turn_id="t"),
        TurnContinued(turn_id="t"),
        denied,
        result,
        TurnSuspended(turn_id="t"),
    ]
    lives = [TurnResumed(turn_id="t", attempt=n) for n in (1, 2)]
    stage = Stage(auto=False)
    unfinished = left(*requested("a", "b", "c"), *lives, *pauses)
    assert stage.give(Resume(unfinished=unfinished, refusals={"a": error_result("off")})) == [Suspended()]
    assert stage.log == []
    assert [request.call_id for request in stage.turn.awaiting] == ["a", "c"]
    assert stage.give(Decided(call_id="b", approved=True)) == []
    (append, *_) = stage.give(Decided(call_id="c", approved=True))
    assert isinstance(append, Append)
    assert types(list(append.events)) == ["turn_continued", "approval_decided", "tool_call_started"]
    (start,) = stage.give(Durable(append.token))
    assert isinstance(start, StartCall)
    assert (start.call.call_id, start.approval) == ("c", "d-c")


def test_a_suspended_turn_can_be_left_again_without_a_trace() -> None:
    stage = Stage(auto=False)
    stage.give(Resume(unfinished=left(*requested("a"), TurnSuspended(turn_id="t"), calls=("a",))))
    assert stage.give(Interrupt()) == [Left()]
    assert stage.log == []


def test_an_approved_call_that_did_not_start_starts_as_it_was_approved_unless_it_is_refused_now() -> None:
    approved = [
        ApprovalDecided(turn_id="t", call_id="a", approved=True, arguments={"n": 2}),
        ApprovalDecided(turn_id="t", call_id="b", approved=True),
    ]
    stage = Stage()
    unfinished = left(*requested("a", "b", "c"), *approved)
    effects = stage.give(Resume(unfinished=unfinished, refusals={"b": error_result("off", "denied")}))
    assert [e for e in effects if isinstance(e, StartCall)] == [
        StartCall(call=call("a"), arguments={"n": 2}, approval="d-a")
    ]
    assert outcomes(stage.log) == [("b", "denied")]
    assert [request.call_id for request in stage.turn.awaiting] == ["c"]
    stage.finish("a")
    assert stage.turn.state == "suspended"


def test_a_decision_that_comes_before_the_resumption_is_durable_counts() -> None:
    stage = Stage(auto=False)
    stage.give(Resume(unfinished=left(*requested("a"), calls=("a",))))
    (append,) = stage.give(Decided(call_id="a", approved=True))
    assert isinstance(append, Append)
    assert stage.give(Durable(1)) == []
    assert kinds(stage.give(Durable(append.token))) == ["StartCall"]


def test_a_pending_call_of_a_lost_turn_may_need_a_person_now() -> None:
    stage = Stage()
    stage.give(Resume(unfinished=left(calls=("a",)), approvals={"a": "policy"}))
    assert types(stage.log) == ["turn_resumed", "approval_requested", "turn_suspended"]


def test_a_denied_repetition_of_a_lost_call_is_told_as_unknown() -> None:
    stage = Stage()
    resume = Resume(
        unfinished=left(begun("a"), calls=("a",)), repeatable=frozenset("a"), approvals={"a": "policy"}
    )
    stage.give(resume)
    stage.give(Decided(call_id="a", approved=False))
    assert outcomes(stage.log) == [("a", "unknown")]


@pytest.mark.parametrize("calls", [(), ("a",)])
def test_a_log_that_says_suspended_without_a_request_goes_on(calls: tuple[str, ...]) -> None:
    stage = Stage()
    effects = stage.give(Resume(unfinished=left(TurnSuspended(turn_id="t"), calls=calls)))
    assert types(stage.log)[:2] == ["turn_continued", "turn_resumed"]
    assert kinds(effects)[-1] in ("AskModel", "StartCall")


def test_a_lost_call_that_waits_for_a_person_keeps_the_turn_suspended() -> None:
    log = (begun("a"), TurnResumed(turn_id="t", attempt=1), *requested("a"), TurnSuspended(turn_id="t"))
    stage = Stage()
    assert stage.give(Resume(unfinished=left(*log, calls=("a",)))) == [Suspended()]
    stage.give(Cancel())
    assert outcomes(stage.log) == [("a", "unknown")]
