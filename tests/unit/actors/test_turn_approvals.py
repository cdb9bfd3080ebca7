"""A turn that waits for a person (FEATURES T8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from callboard.actors.chat_model import ModelReply
from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    ToolPinned,
)
from callboard.actors.items import FunctionCallOutput
from callboard.actors.turn import (
    Append,
    Cancel,
    DeadlinePassed,
    Decided,
    Durable,
    Effect,
    ModelReplied,
    Resume,
    SetTimer,
    StartCall,
    StepTimedOut,
    Suspended,
    TurnLimits,
)
from callboard.actors.turn_approval import approval_digest, expired_after, expires_in_s
from callboard.actors.turn_facts import unfinished_turn
from callboard.actors.turn_inputs import ToolVersion
from callboard.supervisor.envelope import Principal
from callboard.testing.turn_stage import Stage, asked, call, kinds, outcomes, types
from callboard.tools.content import TextBlock

WHY = {"a": "destructive", "b": "destructive"}


def waiting(limits: TurnLimits | None = None) -> Stage:
    stage = Stage(limits)
    stage.begin()
    stage.reply(call("a"), call("b"), approvals=WHY)
    assert stage.turn.state == "suspended"
    return stage


def test_a_turn_is_suspended_once_that_is_durable_and_its_clocks_stop() -> None:
    stage = Stage(TurnLimits(deadline_s=60, step_deadline_s=9), auto=False)
    stage.begin()
    stage.give(Durable(1))
    step, suspended, *timers = stage.reply(call("a", '{"n": 1}'), approvals=WHY)
    assert isinstance(step, Append)
    assert types(list(step.events)) == ["step_finished", "approval_requested"]
    assert isinstance(suspended, Append)
    assert types(list(suspended.events)) == ["turn_suspended"]
    assert timers == [SetTimer(DeadlinePassed(), None), SetTimer(StepTimedOut(0), None)]
    request = step.events[1]
    assert isinstance(request, ApprovalRequested)
    assert (request.call_id, request.arguments, request.reason) == ("a", {"n": 1}, "destructive")
    assert stage.turn.awaiting == (request,)
    assert stage.give(Durable(2)) == []
    assert not stage.turn.is_resting
    assert stage.give(Durable(3)) == [Suspended()]
    assert stage.turn.is_resting
    assert stage.give(Durable(3)) == []


def test_calls_that_need_nobody_start_at_once_and_the_rest_waits_for_them() -> None:
    stage = Stage()
    stage.begin()
    effects = stage.reply(call("a"), call("c"), approvals=WHY)
    assert [e.call.call_id for e in effects if isinstance(e, StartCall)] == ["c"]
    assert stage.turn.state == "calling"
    assert kinds(stage.finish("c")) == ["Append", "Append", "Suspended"]
    assert types(stage.log)[-2:] == ["tool_call_finished", "turn_suspended"]


def test_a_decision_while_other_calls_run_suspends_nothing() -> None:
    stage = Stage()
    stage.begin()
    stage.reply(call("a"), call("c"), approvals=WHY)
    effects = stage.give(Decided(call_id="a", approved=True))
    assert [e.call.call_id for e in effects if isinstance(e, StartCall)] == ["a"]
    asked(stage.finish("c", "a"))
    assert not {"turn_suspended", "turn_continued"} & set(types(stage.log))


def test_each_call_is_decided_apart_in_any_order_and_once() -> None:
    stage = waiting()
    stage.give(Decided(call_id="b", approved=False, by="ann", reason="too dangerous"))
    assert stage.turn.state == "suspended"
    assert types(stage.log)[-4:] == [
        "turn_continued",
        "approval_decided",
        "tool_call_finished",
        "turn_suspended",
    ]
    assert stage.give(Decided(call_id="b", approved=True)) == []
    assert stage.give(Decided(call_id="nonsense", approved=True)) == []
    effects = stage.give(Decided(call_id="a", approved=True, by="ann"))
    (start,) = [e for e in effects if isinstance(e, StartCall)]
    assert start.call.call_id == "a"
    assert stage.give(Decided(call_id="a", approved=True)) == []
    ask = asked(stage.finish("a"))
    outputs = [item for item in ask.items if isinstance(item, FunctionCallOutput)]
    assert [output.call_id for output in outputs] == ["a", "b"]
    assert outputs[1].content == (TextBlock("not run: ann denied this call: too dangerous"),)
    decided = [e for e in stage.log if isinstance(e, ApprovalDecided)]
    assert [(e.call_id, e.approved, e.by) for e in decided] == [("b", False, "ann"), ("a", True, "ann")]


def test_a_decision_on_another_request_than_the_one_that_waits_is_ignored() -> None:
    stage = waiting()
    (request, _) = stage.turn.awaiting
    assert stage.give(Decided(call_id="a", approved=True, digest="other")) == []
    assert stage.give(Decided(call_id="a", approved=True, digest=request.digest)) != []


def test_edited_arguments_are_what_runs_and_the_model_is_told() -> None:
    stage = waiting()
    stage.give(Decided(call_id="b", approved=False))
    effects = stage.give(Decided(call_id="a", approved=True, arguments={"path": "/tmp/x"}))
    (start,) = [e for e in effects if isinstance(e, StartCall)]
    assert start.arguments == {"path": "/tmp/x"}
    assert [e.arguments for e in stage.log if isinstance(e, ToolCallStarted)] == [{"path": "/tmp/x"}]
    ask = asked(stage.finish("a"))
    (output,) = [i for i in ask.items if isinstance(i, FunctionCallOutput) and i.call_id == "a"]
    assert output.content == (
        TextBlock('[The user changed the arguments before this ran, to {"path": "/tmp/x"}]'),
        TextBlock("ok"),
    )


def test_the_clock_runs_on_from_where_it_stood() -> None:
    stage = Stage(TurnLimits(deadline_s=60, step_deadline_s=9))
    stage.begin()
    stage.reply(call("a"), approvals=WHY)
    stage.now += 3600
    effects = stage.give(Decided(call_id="a", approved=True))
    assert [e for e in effects if isinstance(e, SetTimer)] == [
        SetTimer(DeadlinePassed(), 58.0),
        SetTimer(StepTimedOut(1), 9),
    ]
    stage.finish("a")
    stage.reply(text="done")
    assert getattr(stage.log[-1], "duration_s", 0) < 60


def test_an_ending_of_a_suspended_turn_continues_it_first() -> None:
    stage = waiting()
    stage.give(Cancel())
    continued = types(stage.log).index("turn_continued")
    assert types(stage.log)[continued:] == [
        "turn_continued",
        "tool_call_finished",
        "tool_call_finished",
        "turn_cancelled",
    ]
    assert stage.turn.awaiting == ()


def test_the_steps_deadline_ends_what_runs_but_not_what_waits() -> None:
    stage = Stage(TurnLimits(step_deadline_s=5))
    stage.begin()
    stage.reply(call("a"), call("c"), approvals=WHY)
    stage.give(StepTimedOut(1))
    assert outcomes(stage.log) == [("c", "deadline")]
    assert stage.turn.state == "suspended"
    assert stage.give(StepTimedOut(1)) == []


def test_a_refused_call_is_never_asked_about() -> None:
    stage = Stage()
    stage.begin()
    stage.reply(call("a", "{"), approvals=WHY)
    assert not any(isinstance(e, ApprovalRequested) for e in stage.log)
    assert any(isinstance(e, ToolCallFinished) for e in stage.log)
    assert sum(isinstance(e, StepFinished) for e in stage.log) == 1


PRINCIPAL = Principal(user="ann", team="red", roles=("admin", "dev"))


def test_a_digest_does_not_depend_on_spelling() -> None:
    one = approval_digest(call("a", '{"x": 1, "y": "ü"}'), tool_version="v", principal=PRINCIPAL)
    other = replace(PRINCIPAL, roles=("dev", "admin"))
    assert approval_digest(call("a", '{"y":"\\u00fc","x":1}'), tool_version="v", principal=other) == one
    assert len(one) == 64


@pytest.mark.parametrize(
    "digest",
    [
        approval_digest(call("b", "{}"), tool_version="v", principal=PRINCIPAL),
        approval_digest(call("a", '{"x": 1}'), tool_version="v", principal=PRINCIPAL),
        approval_digest(call("a", "{}", tool="g"), tool_version="v", principal=PRINCIPAL),
        approval_digest(call("a", "{}"), tool_version="w", principal=PRINCIPAL),
        approval_digest(call("a", "{}"), tool_version="v", principal=replace(PRINCIPAL, user="bob")),
        approval_digest(call("a", "{}"), tool_version="v", principal=replace(PRINCIPAL, team="blue")),
        approval_digest(call("a", "{}"), tool_version="v", principal=replace(PRINCIPAL, roles=("dev",))),
        approval_digest(call("a", "{"), tool_version="v", principal=PRINCIPAL),
    ],
    ids=["call", "arguments", "tool", "version", "user", "team", "roles", "no-object"],
)
def test_a_digest_is_bound_to_all_that_a_person_approved(digest: str) -> None:
    assert digest != approval_digest(call("a", "{}"), tool_version="v", principal=PRINCIPAL)


def test_arguments_with_half_a_character_have_a_digest() -> None:
    assert approval_digest(call("a", '{"x": "\\ud800"}'), tool_version="", principal=Principal())


# ------------------------------------------------------------ what is pinned, and what expires
def _pin(version: str) -> ToolPinned:
    return ToolPinned(tool="f", version=version, description=f"f as {version}")


def _reply(stage: Stage, *ids: str, version: str, approvals: dict[str, str] | None = None) -> list[Effect]:
    given = ModelReplied(
        reply=ModelReply(text="", calls=tuple(call(one) for one in ids)),
        approvals=approvals or {},
        tool_versions={"f": ToolVersion(version, _pin(version))},
    )
    return stage.give(given)


def test_a_definition_is_pinned_once_before_the_first_start_and_in_one_piece_with_it() -> None:
    stage = Stage()
    stage.begin()
    effects = _reply(stage, "a", "b", version="v1")
    appended = next(e for e in effects if isinstance(e, Append))
    assert types(list(appended.events)) == [
        "step_finished",
        "tool_pinned",
        "tool_call_started",
        "tool_call_started",
    ]
    assert appended.wait
    stage.finish("a", "b")
    _reply(stage, "c", version="v2")
    assert [event.version for event in stage.log if isinstance(event, ToolPinned)] == ["v1", "v2"]


def test_what_a_person_is_asked_about_is_pinned_when_it_was_approved_of() -> None:
    stage = Stage()
    stage.begin()
    _reply(stage, "a", "b", version="v1", approvals=WHY)
    assert "tool_pinned" not in types(stage.log)
    stage.give(Decided(call_id="b", approved=False))
    assert "tool_pinned" not in types(stage.log)
    stage.give(Decided(call_id="a", approved=True))
    assert types(stage.log)[-3:] == ["approval_decided", "tool_pinned", "tool_call_started"]


@pytest.mark.parametrize(("version_now", "pinned"), [("v1", ["v1"]), ("v2", [])])
def test_after_a_restart_no_other_version_is_pinned_than_was_approved_of(
    version_now: str, pinned: list[str]
) -> None:
    former = Stage()
    former.begin()
    _reply(former, "a", version="v1", approvals=WHY)
    unfinished = unfinished_turn(former.log)
    assert unfinished is not None
    stage = Stage()
    versions = {"f": ToolVersion(version_now, _pin(version_now))}
    stage.give(Resume(unfinished=unfinished, tool_versions=versions, approvals=WHY))
    stage.give(Decided(call_id="a", approved=True))
    assert [event.version for event in stage.log if isinstance(event, ToolPinned)] == pinned
    assert types(stage.log)[-1] == "tool_call_started"


def test_an_expired_request_is_denied_and_the_model_reads_why() -> None:
    stage = waiting()
    reason = expired_after(86_400)
    stage.give(Decided(call_id="b", approved=False, reason=reason, expired=True))
    assert stage.turn.state == "suspended"
    ask = asked(stage.give(Decided(call_id="a", approved=False, reason=reason, expired=True)))
    outputs = [item for item in ask.items if isinstance(item, FunctionCallOutput)]
    told = "not run: this call needed a person's approval and expired unanswered after 24 h"
    assert [output.content for output in outputs] == [(TextBlock(told),)] * 2
    assert outcomes(stage.log) == [("b", "denied"), ("a", "denied")]
    assert [e.expired for e in stage.log if isinstance(e, ApprovalDecided)] == [True, True]
    assert stage.give(Decided(call_id="a", approved=True)) == []


@pytest.mark.parametrize(
    ("at", "left_s"),
    [
        ("2026-01-01T00:00:00+00:00", 30.0),
        ("2026-01-01T01:00:00+01:00", 30.0),
        ("2025-12-31T23:59:00+00:00", -30.0),
        (None, 60.0),
        ("nonsense", 60.0),
    ],
)
def test_a_request_expires_by_the_instant_in_the_log(at: str | None, left_s: float) -> None:
    request = ApprovalRequested(turn_id="t", call_id="a", tool="f", at=at)
    assert expires_in_s(request, 60.0, datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)) == left_s


@pytest.mark.parametrize(
    ("seconds", "told"), [(86_400, "24 h"), (90, "90 s"), (120, "2 min"), (0.5, "0.5 s")]
)
def test_how_long_was_waited_is_said_in_words(seconds: float, told: str) -> None:
    assert expired_after(seconds) == f"expired unanswered after {told}"
