"""The turn machine: one user message up to its one ending (FEATURES C1, C4, C8, T8; DESIGN, decisions 4 to 6).

It decides what is written down, when the model is asked, which calls run, when a person is waited for, and how the
turn ends. It never touches a clock, a socket, a file or an actor: a shell feeds it inputs with the monotonic
instant ``now`` and performs the effects in the order given. ``TRANSITIONS`` (``turn_table.py``) is its whole table:
an input that has no row in the present phase (late, doubled, out of place) is ignored. Called by the client actor
and by ``callboard.run``; docs/turn.md shows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from callboard.actors.asked_calls import with_unique_ids
from callboard.actors.chat_model import ModelReply, Usage
from callboard.actors.events import (
    ApprovalRequested,
    Event,
    TurnAnswered,
    TurnCancelled,
    TurnContinued,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnSuspended,
)
from callboard.actors.history import items_of_turn
from callboard.actors.items import FunctionCall, Item
from callboard.actors.turn_calls import TurnCalls
from callboard.actors.turn_clock import TurnClock
from callboard.actors.turn_effects import (
    Append,
    AskModel,
    Discard,
    Effect,
    Ended,
    KillCall,
    Left,
    RetryAfter,
    SetTimer,
    StartCall,
    StopModel,
    Suspended,
)
from callboard.actors.turn_inputs import (
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Decided,
    Durable,
    Input,
    Interrupt,
    ModelFailed,
    ModelReplied,
    Resume,
    RetryDue,
    StepTimedOut,
    StorageFailed,
    Verdicts,
)
from callboard.actors.turn_limits import OnCap, TurnLimits, is_too_long_a_wish, retry_delay_s
from callboard.actors.turn_record import TurnRecord
from callboard.actors.turn_resume import (
    calls_left,
    final_text,
    lost_calls,
    stays_suspended,
    verdicts_of,
    why_not,
)
from callboard.actors.turn_table import OPEN_PHASES, TRANSITIONS, Phase
from callboard.actors.turn_words import (
    CAP_NOTE,
    CAPPED_ANSWER,
    EMPTY_NOTE,
    past_step_deadline,
    repeat_note,
)
from callboard.supervisor.envelope import Principal
from callboard.tools.content import error_result

__all__ = [
    "OPEN_PHASES",
    "TRANSITIONS",
    "Append",
    "AskModel",
    "Begin",
    "CallFinished",
    "Cancel",
    "DeadlinePassed",
    "Decided",
    "Discard",
    "Durable",
    "Effect",
    "Ended",
    "Input",
    "Interrupt",
    "KillCall",
    "Left",
    "ModelFailed",
    "ModelReplied",
    "OnCap",
    "Phase",
    "Resume",
    "RetryAfter",
    "RetryDue",
    "SetTimer",
    "StartCall",
    "StepTimedOut",
    "StopModel",
    "StorageFailed",
    "Suspended",
    "Turn",
    "TurnLimits",
    "Verdicts",
]


class Turn:
    """One turn. ``history`` is what the model was shown before it, the system message included."""

    def __init__(
        self, limits: TurnLimits, history: tuple[Item, ...] = (), principal: Principal | None = None
    ) -> None:
        self._limits = limits
        self._history = history
        self._principal = principal or Principal()
        self._phase = Phase.NEW
        self._clock = TurnClock(limits.deadline_s, limits.step_deadline_s)
        self._record = TurnRecord(TurnStarted(turn_id="", text=""))
        self._calls = TurnCalls(self._record, limits, self._principal)
        self._token = 0
        self._awaited: int | None = None
        self._failures = 0
        self._was_empty = False
        self._spare_usage = Usage()
        self._is_to_leave = False

    def handle(self, given: Input, now: float) -> list[Effect]:
        """Take one input at the monotonic instant ``now``; give the effects to perform, in this order."""
        may_follow = TRANSITIONS.get((self._phase, type(given)))
        if may_follow is None:
            return []
        effects = self._take(given, now)
        assert self._phase in may_follow, f"{type(given).__name__} must not lead to {self._phase.name}"
        return effects

    @property
    def phase(self) -> Phase:
        """Where the turn stands, exactly."""
        return self._phase

    @property
    def state(self) -> str:
        """Where the turn stands, for display: ``waiting_acceptance``, ``asking``, …, ``ended``."""
        return self._phase.shown

    @property
    def items(self) -> tuple[Item, ...]:
        """The history, this turn included as far as it got; valid for a model at any time."""
        return (*self._history, *items_of_turn(self._record.facts, self._ids_before()))

    @property
    def awaiting(self) -> tuple[ApprovalRequested, ...]:
        """The calls that wait for a person's decision."""
        return self._calls.waiting if self._phase in OPEN_PHASES else ()

    @property
    def is_resting(self) -> bool:
        """True while it waits for a person and that is durable: its owner may leave, and nothing of it is lost."""
        return self._phase is Phase.SUSPENDED and self._awaited is None

    def with_unique_ids(self, reply: ModelReply) -> ModelReply:
        """Give the reply with call ids that are new in this conversation, position by position (MCP.md, B78).

        The machine does it to every reply; a shell that keys refusals by id does it before, at no harm.
        """
        taken = self._ids_before() | {call.call_id for call in self._record.facts.calls}
        return replace(reply, calls=with_unique_ids(reply.calls, taken))

    def _ids_before(self) -> set[str]:
        return {item.call_id for item in self._history if isinstance(item, FunctionCall)}

    def _take(self, given: Input, now: float) -> list[Effect]:
        match given:
            case Begin():
                return self._begin(given, now)
            case Resume():
                return self._resume(given, now)
            case Durable():
                return self._durable(given, now)
            case ModelReplied():
                return self._take_reply(given, now)
            case ModelFailed():
                return self._take_failure(given)
            case RetryDue():
                return self._ask()
            case CallFinished():
                return self._take_result(given, now)
            case Decided():
                return self._take_decision(given, now)
            case StepTimedOut():
                return self._take_step_deadline(given, now)
            case Cancel() | DeadlinePassed() | StorageFailed():
                return self._cut_off(given)
            case Interrupt():
                return self._leave()
            case _:
                assert_never(given)

    # acceptance

    def _begin(self, given: Begin, now: float) -> list[Effect]:
        started = TurnStarted(
            turn_id=given.turn_id,
            text=given.text,
            deadline_s=self._limits.deadline_s,
            tool_deadline_s=given.tool_deadline_s,
        )
        self._record = TurnRecord(started)
        self._calls = TurnCalls(self._record, self._limits, self._principal)
        self._record.note(started)
        self._phase = Phase.ACCEPTING
        return [self._append(wait=True), *self._clock.start(now)]

    def _resume(self, given: Resume, now: float) -> list[Effect]:
        unfinished, deadline_s = given.unfinished, given.unfinished.started.deadline_s
        self._record = TurnRecord.of(unfinished)
        self._calls = TurnCalls(self._record, self._limits, self._principal, lost_calls(given))
        self._clock = TurnClock(deadline_s, self._limits.step_deadline_s, given.elapsed_s)
        if stays_suspended(given):
            self._calls.wait_again(calls_left(given), given.tool_versions)
            self._phase = Phase.SUSPENDED
            return [Suspended()]
        if unfinished.suspended:
            self._record.note(TurnContinued(turn_id=unfinished.turn_id))
        if not given.damaged:
            self._record.note(TurnResumed(turn_id=unfinished.turn_id, attempt=unfinished.resumes + 1))
        failure = why_not(given, self._limits.max_resumes, is_over=self._clock.is_over(now))
        if failure is not None:
            self._calls.close(calls_left(given))
            return [Discard("resumed"), *self._end(self._record.failed(*failure))]
        return [Discard("resumed"), *self._take_up(given, now)]

    def _take_up(self, given: Resume, now: float) -> list[Effect]:
        timer = self._clock.start(now)
        answer = final_text(given)
        if answer is not None:
            return self._end(self._answered(answer, now))
        self._calls.take_up(calls_left(given), verdicts_of(given), self._token + 1)
        self._phase = Phase.ACCEPTING
        return [self._append(wait=True), *timer]

    def _durable(self, given: Durable, now: float) -> list[Effect]:
        if self._phase is Phase.CALLING:
            return [*self._calls.start_due(given.upto)]
        if self._awaited is None or given.upto < self._awaited:
            return []
        self._awaited = None
        match self._phase:
            case Phase.ACCEPTING:
                return self._accepted(given, now)
            case Phase.SUSPENDED:
                return [Suspended()]
            case Phase.ENDING:
                return self._announce()
            case _:
                self._phase = Phase.LEFT
                return [Left()]

    def _accepted(self, given: Durable, now: float) -> list[Effect]:
        self._phase = Phase.CALLING
        started = self._calls.start_due(given.upto)
        timer = self._clock.start_step(len(self._record.facts.steps)) if started else []
        return [*started, *timer, *self._settle(now)]

    # the model

    def _settle(self, now: float) -> list[Effect]:
        """Go on when no call is under way: wait for the person who is asked, or take the next step."""
        if self._calls.are_under_way:
            return []
        if self._calls.waiting:
            return self._suspend(now)
        if len(self._record.facts.steps) >= self._limits.max_steps and self._limits.on_cap == "return":
            return self._fail("step_cap", f"no answer within {self._limits.max_steps} steps")
        self._failures = 0
        self._was_empty = False
        return self._ask()

    def _ask(self) -> list[Effect]:
        self._phase = Phase.ASKING
        step = len(self._record.facts.steps) + 1
        ask = AskModel(
            items=self.items,
            tools_open=self._tools_open,
            step=step,
            note=self._note(),
            turn_at=len(self._history),
        )
        return [ask, *self._clock.start_step(step)]

    @property
    def _tools_open(self) -> bool:
        return len(self._record.facts.steps) < self._limits.max_steps

    def _note(self) -> str | None:
        if not self._tools_open:
            return CAP_NOTE
        if self._was_empty:
            return EMPTY_NOTE
        steps = self._record.facts.steps
        return repeat_note(steps[-1].repeated) if steps and steps[-1].repeated else None

    def _take_reply(self, given: ModelReplied, now: float) -> list[Effect]:
        reply = self.with_unique_ids(given.reply)
        if not reply.calls or not self._tools_open:
            return self._take_answer(given, reply, now)
        self._record.step(given, reply, reply.calls)
        self._calls.take_up(reply.calls, given.renamed(_ids(reply, given.reply)), self._token + 1)
        self._phase = Phase.CALLING
        return [self._append(wait=self._calls.are_under_way), *self._settle(now)]

    def _take_answer(self, given: ModelReplied, reply: ModelReply, now: float) -> list[Effect]:
        text = reply.text
        if not text.strip():
            if self._tools_open:
                return self._take_empty(reply)
            text = CAPPED_ANSWER
        self._record.step(given, reply, ())
        return self._end(self._answered(text, now))

    def _take_empty(self, reply: ModelReply) -> list[Effect]:
        if self._was_empty:
            return self._fail("empty_answer", "the model gave neither text nor calls, twice")
        self._was_empty = True
        self._spare_usage += reply.usage
        return self._ask()

    def _take_failure(self, given: ModelFailed) -> list[Effect]:
        self._failures += 1
        is_last = self._failures >= self._limits.model_attempts or is_too_long_a_wish(given.retry_after_s)
        if is_last or not given.retryable:
            reason = given.kind if given.kind == "context_window" else f"model_{given.kind}"
            return self._fail(reason, given.message)
        self._phase = Phase.RETRYING
        delay_s = retry_delay_s(self._failures, given.retry_after_s, given.chance)
        return [Discard(given.kind), RetryAfter(delay_s), *self._clock.stop_step()]

    # the calls

    def _take_result(self, given: CallFinished, now: float) -> list[Effect]:
        if not self._calls.finish(given):
            return []
        return [self._append(wait=False), *self._settle(now)]

    def _take_step_deadline(self, given: StepTimedOut, now: float) -> list[Effect]:
        """The model's reply is asked for again, as after any silence; calls are ended, and the turn goes on without."""
        steps, limit_s = len(self._record.facts.steps), self._limits.step_deadline_s
        if limit_s is None or given.step != steps + (1 if self._phase is Phase.ASKING else 0):
            return []
        if self._phase is Phase.ASKING:
            message = f"the model gave no whole reply within the step's deadline of {limit_s:g} s"
            return [
                StopModel(),
                *self._take_failure(ModelFailed(kind="timeout", message=message, retryable=True)),
            ]
        killed = self._calls.cut_off(
            past_step_deadline(limit_s, ran=True), past_step_deadline(limit_s, ran=False)
        )
        return [*killed, self._append(wait=False), *self._settle(now)]

    # a person

    def _suspend(self, now: float) -> list[Effect]:
        self._phase = Phase.SUSPENDED
        self._record.note(TurnSuspended(turn_id=self._record.turn_id))
        return [self._append(wait=True), *self._clock.stop(now)]

    def _take_decision(self, given: Decided, now: float) -> list[Effect]:
        if not self._calls.expects(given):
            return []
        timers: list[Effect] = []
        if self._phase is Phase.SUSPENDED:
            self._record.note(TurnContinued(turn_id=self._record.turn_id))
            timers = self._clock.start(now) + self._clock.start_step(len(self._record.facts.steps))
        self._calls.decide(given, self._token + 1)
        if self._phase is Phase.ACCEPTING:
            return [self._append(wait=True)]
        self._phase = Phase.CALLING
        return [self._append(wait=self._calls.are_under_way), *timers, *self._settle(now)]

    # the endings

    def _cut_off(self, given: Cancel | DeadlinePassed | StorageFailed) -> list[Effect]:
        match given:
            case Cancel(reason=reason):
                why = reason
                ending: Event = TurnCancelled(turn_id=self._record.turn_id, reason=reason)
            case DeadlinePassed():
                why, ending = "deadline", self._record.failed("deadline", "the turn's deadline passed")
            case StorageFailed(kind=kind, message=message):
                why, ending = kind, self._record.failed(kind, message)
        effects: list[Effect] = [StopModel()] if self._phase is Phase.ASKING else []
        if self._phase is Phase.SUSPENDED:
            self._record.note(TurnContinued(turn_id=self._record.turn_id))
        effects += self._calls.cut_off(error_result(f"cancelled ({why})", "cancelled"))
        self._calls.close_waiting()
        return effects + self._end(ending)

    def _end(self, ending: Event) -> list[Effect]:
        self._phase = Phase.ENDING
        self._record.note(ending)
        return [self._append(wait=True)]

    def _announce(self) -> list[Effect]:
        self._phase = Phase.ENDED
        ending = self._record.facts.ending
        assert ending is not None, "a turn that ends has an ending"
        return [Ended(ending), *([Left()] if self._is_to_leave else [])]

    def _leave(self) -> list[Effect]:
        """Stop on purpose. What runs is killed and stays open in the log; a suspended turn stays as it is."""
        if self._phase is Phase.ENDING:
            self._is_to_leave = True
            return []
        if self._phase is Phase.SUSPENDED:
            self._phase = Phase.LEFT if self._awaited is None else Phase.LEAVING
            return [Left()] if self._awaited is None else []
        effects: list[Effect] = [StopModel()] if self._phase is Phase.ASKING else []
        effects += self._calls.abandon()
        self._phase = Phase.LEAVING
        self._record.note(TurnInterrupted(turn_id=self._record.turn_id))
        return [*effects, self._append(wait=True)]

    # what effects and endings are made of

    def _append(self, *, wait: bool) -> Append:
        self._token += 1
        if wait:
            self._awaited = self._token
        return Append(events=self._record.drain(), token=self._token, wait=wait)

    def _fail(self, reason: str, message: str) -> list[Effect]:
        return self._end(self._record.failed(reason, message))

    def _answered(self, text: str, now: float) -> TurnAnswered:
        capped = len(self._record.facts.steps) > self._limits.max_steps
        duration_s = self._clock.elapsed_s(now)
        return self._record.answered(text, capped=capped, spare=self._spare_usage, duration_s=duration_s)


def _ids(reply: ModelReply, asked: ModelReply) -> dict[str, str]:
    return {new.call_id: old.call_id for new, old in zip(reply.calls, asked.calls, strict=True)}
