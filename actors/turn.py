"""The turn machine: one user message up to its one ending (FEATURES C1, C4, C8; DESIGN, decisions 4 and 5).

It decides what is written down, when the model is asked, which calls run, and how the turn ends. It never
touches a clock, a socket, a file or an actor: a shell feeds it inputs with the monotonic instant ``now`` and
performs the effects in the order given. ``TRANSITIONS`` is the machine's whole table: an input that has no
row in the present phase (late, doubled, out of place) is ignored. Called by the client actor and by
``callboard.run``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from callboard.actors.asked_calls import parse_arguments, tools_asked_in_each, with_unique_ids
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
from callboard.actors.history import items_of
from callboard.actors.items import FunctionCall, Item
from callboard.actors.turn_terms import (
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
    OnCap,
    Resume,
    RetryAfter,
    RetryDue,
    StartCall,
    StopModel,
    TurnLimits,
)
from callboard.tools.content import Citation, ToolResult, error_result

__all__ = [
    "TRANSITIONS",
    "Append",
    "AskModel",
    "Begin",
    "CallFinished",
    "Cancel",
    "DeadlinePassed",
    "Discard",
    "Durable",
    "Effect",
    "Ended",
    "Input",
    "KillCall",
    "ModelFailed",
    "ModelReplied",
    "OnCap",
    "Phase",
    "Resume",
    "RetryAfter",
    "RetryDue",
    "StartCall",
    "StopModel",
    "Turn",
    "TurnLimits",
    "parse_arguments",
]

OUTCOME_UNKNOWN = "outcome unknown: the process was lost while this call ran; it was not repeated"
NOT_RUN = "not run: the turn ended before this call started"
CAP_NOTE = (
    "The step limit of this turn is reached and the tools are closed. "
    "Answer now, in words, with what the results above give you; say what is missing."
)
CAPPED_ANSWER = "The step limit was reached before an answer was found; the tool results so far are kept."
EMPTY_NOTE = "Your last reply was empty. Answer the user, or call a tool."
REPEAT_STEPS = 3
_MAX_BACKOFF_S = 8.0
_MAX_RETRY_AFTER_S = 30.0


class Phase(enum.Enum):
    """Where a turn stands; the value is what a person is shown (two phases may look alike)."""

    def __init__(self, shown: str, number: int) -> None:
        self.shown = shown

    NEW = ("waiting_acceptance", 0)
    ACCEPTING = ("waiting_acceptance", 1)
    ASKING = ("asking", 2)
    RETRYING = ("retrying", 3)
    STARTING = ("calling", 4)
    CALLING = ("calling", 5)
    ENDING = ("ending", 6)
    ENDED = ("ended", 7)


class Turn:
    """One turn. ``history`` is what the model was shown before it, the system message included."""

    def __init__(self, limits: TurnLimits, history: tuple[Item, ...] = ()) -> None:
        self._limits = limits
        self._history = history
        self._phase = Phase.NEW
        self._began_at = 0.0
        self._token = 0
        self._started = TurnStarted(turn_id="", text="")
        self._steps: list[StepFinished] = []
        self._results: dict[str, ToolCallFinished] = {}
        self._to_start: dict[str, StartCall] = {}
        self._running: dict[str, StartCall] = {}
        self._failures = 0
        self._was_empty = False
        self._spare_usage = Usage()
        self._lost: frozenset[str] = frozenset()
        self._ending: Event | None = None

    def handle(self, given: Input, now: float) -> list[Effect]:
        """Take one input at the monotonic instant ``now``; give the effects to perform, in this order."""
        transition = TRANSITIONS.get((self._phase, type(given)))
        return [] if transition is None else transition(self, given, now)

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
        ending = () if self._ending is None else (self._ending,)
        return self._history + items_of((self._started, *self._steps, *self._results.values(), *ending))

    def with_unique_ids(self, reply: ModelReply) -> ModelReply:
        """Give the reply with call ids that are new in this conversation, position by position (MCP.md, B78).

        The machine does it to every reply; a shell that keys refusals by id does it before, at no harm.
        """
        taken = {item.call_id for item in self._history if isinstance(item, FunctionCall)}
        taken.update(call.call_id for step in self._steps for call in step.calls)
        return replace(reply, calls=with_unique_ids(reply.calls, taken))

    # acceptance

    def _begin(self, given: Begin, now: float) -> list[Effect]:
        self._began_at = now
        self._started = TurnStarted(
            turn_id=given.turn_id,
            text=given.text,
            deadline_s=self._limits.deadline_s,
            tool_deadline_s=given.tool_deadline_s,
        )
        self._phase = Phase.ACCEPTING
        return [self._append(self._started, wait=True)]

    def _resume(self, given: Resume, now: float) -> list[Effect]:
        unfinished = given.unfinished
        self._began_at = now
        self._started = unfinished.started
        self._steps = list(unfinished.steps)
        self._results = dict(unfinished.results)
        self._lost = frozenset(call.call_id for call in unfinished.open_calls)
        resumed = TurnResumed(turn_id=unfinished.turn_id, attempt=unfinished.resumes + 1)
        if unfinished.resumes >= self._limits.max_resumes:
            message = f"the turn lost its process {unfinished.resumes + 1} times; it is not tried again"
            left = (*unfinished.open_calls, *unfinished.pending_calls)
            closed = [self._finished(call, self._not_run(call)) for call in left]
            return self._end(self._failed("poison", message), before=(resumed, *closed))
        refusals = dict(given.refusals)
        for call in unfinished.open_calls:
            if call.call_id not in given.repeatable or call.call_id in refusals:
                refusals[call.call_id] = error_result(OUTCOME_UNKNOWN, "unknown")
        decided = self._decide((*unfinished.open_calls, *unfinished.pending_calls), refusals)
        if not decided and self._steps and not self._steps[-1].calls and self._steps[-1].text.strip():
            return self._end(self._answered(self._steps[-1].text, now), before=(resumed,))
        self._phase = Phase.ACCEPTING
        return [self._append(resumed, *decided, wait=True)]

    # the model

    def _go_on(self, given: Durable | None, now: float) -> list[Effect]:
        if given is not None and given.upto < self._token:
            return []
        if self._to_start:
            self._running, self._to_start = self._to_start, {}
            self._phase = Phase.CALLING
            return list(self._running.values())
        if len(self._steps) >= self._limits.max_steps and self._limits.on_cap == "return":
            return self._end(self._failed("step_cap", f"no answer within {self._limits.max_steps} steps"))
        self._failures = 0
        self._was_empty = False
        return self._ask()

    def _ask(self, given: RetryDue | None = None, now: float = 0.0) -> list[Effect]:
        self._phase = Phase.ASKING
        step = len(self._steps) + 1
        return [AskModel(items=self.items, tools_open=self._tools_open, step=step, note=self._note())]

    @property
    def _tools_open(self) -> bool:
        return len(self._steps) < self._limits.max_steps

    def _note(self) -> str | None:
        if not self._tools_open:
            return CAP_NOTE
        if self._was_empty:
            return EMPTY_NOTE
        tools = tools_asked_in_each(self._steps[-REPEAT_STEPS:])
        if not tools or len(self._steps) < REPEAT_STEPS:
            return None
        return (
            f"You called {', '.join(tools)} with the same arguments {REPEAT_STEPS} times in a row. "
            "The result will not change: use it, try something else, or answer."
        )

    def _take_reply(self, given: ModelReplied, now: float) -> list[Effect]:
        reply = self.with_unique_ids(given.reply)
        if not reply.calls or not self._tools_open:
            return self._take_answer(reply, now)
        refusals = {
            new.call_id: given.refusals[old.call_id]
            for old, new in zip(given.reply.calls, reply.calls, strict=True)
            if old.call_id in given.refusals
        }
        self._steps.append(self._step(reply, reply.calls))
        decided = self._decide(reply.calls, refusals)
        self._phase = Phase.STARTING
        return [self._append(self._steps[-1], *decided, wait=True)]

    def _take_answer(self, reply: ModelReply, now: float) -> list[Effect]:
        text = reply.text
        if not text.strip():
            if self._tools_open:
                return self._take_empty(reply)
            text = CAPPED_ANSWER
        self._steps.append(self._step(reply, ()))
        return self._end(self._answered(text, now), before=(self._steps[-1],))

    def _take_empty(self, reply: ModelReply) -> list[Effect]:
        if self._was_empty:
            return self._end(self._failed("empty_answer", "the model gave neither text nor calls, twice"))
        self._was_empty = True
        self._spare_usage += reply.usage
        return self._ask()

    def _take_failure(self, given: ModelFailed, now: float) -> list[Effect]:
        self._failures += 1
        if not given.retryable or self._failures >= self._limits.model_attempts:
            return self._end(self._failed(f"model_{given.kind}", given.message))
        self._phase = Phase.RETRYING
        return [Discard(given.kind), RetryAfter(_retry_delay_s(self._failures, given.retry_after_s))]

    # the calls

    def _decide(self, calls: Sequence[FunctionCall], refusals: Mapping[str, ToolResult]) -> list[Event]:
        """List each call among those to start, or give it a result; return the facts, in call order."""
        facts: list[Event] = []
        for position, call in enumerate(calls, start=1):
            arguments = parse_arguments(call.arguments)
            refusal = refusals.get(call.call_id) or self._refusal(position, arguments)
            if refusal is not None:
                facts.append(self._finished(call, refusal))
                continue
            start = StartCall(call=call, arguments=arguments or {})
            self._to_start[call.call_id] = start
            facts.append(self._begun(start))
        return facts

    def _refusal(self, position: int, arguments: dict[str, Any] | None) -> ToolResult | None:
        if position > self._limits.max_calls:
            return error_result(f"not run: at most {self._limits.max_calls} calls may be made in one step")
        return error_result("not run: the arguments are not a JSON object") if arguments is None else None

    def _take_result(self, given: CallFinished, now: float) -> list[Effect]:
        start = self._running.pop(given.call_id, None)
        if start is None:
            return []
        finished = self._finished(start.call, given.result, given.duration_s)
        effects: list[Effect] = [self._append(finished, wait=False)]
        return effects if self._running else effects + self._go_on(None, now)

    # the endings

    def _cancel(self, given: Cancel, now: float) -> list[Effect]:
        ending = TurnCancelled(turn_id=self._started.turn_id, reason=given.reason)
        return self._abort(ending, f"cancelled ({given.reason})")

    def _expire(self, given: DeadlinePassed, now: float) -> list[Effect]:
        return self._abort(self._failed("deadline", "the turn's deadline passed"), "cancelled (deadline)")

    def _abort(self, ending: Event, why: str) -> list[Effect]:
        effects: list[Effect] = [StopModel()] if self._phase is Phase.ASKING else []
        effects.extend(KillCall(call_id) for call_id in self._running)
        ran = [self._finished(s.call, error_result(why, "cancelled")) for s in self._running.values()]
        rest = [self._finished(s.call, self._not_run(s.call)) for s in self._to_start.values()]
        self._running, self._to_start = {}, {}
        return effects + self._end(ending, before=(*ran, *rest))

    def _not_run(self, call: FunctionCall) -> ToolResult:
        """Say what is known of a call that this process did not start."""
        if call.call_id in self._lost:
            return error_result(OUTCOME_UNKNOWN, "unknown")
        return error_result(NOT_RUN, "cancelled")

    def _end(self, ending: Event, before: Iterable[Event] = ()) -> list[Effect]:
        self._phase = Phase.ENDING
        self._ending = ending
        return [self._append(*before, ending, wait=True)]

    def _announce(self, given: Durable, now: float) -> list[Effect]:
        if given.upto < self._token or self._ending is None:
            return []
        self._phase = Phase.ENDED
        return [Ended(self._ending)]

    # facts

    def _append(self, *events: Event, wait: bool) -> Append:
        self._token += 1
        return Append(events=events, token=self._token, wait=wait)

    def _step(self, reply: ModelReply, calls: tuple[FunctionCall, ...]) -> StepFinished:
        return StepFinished(
            turn_id=self._started.turn_id,
            step=len(self._steps) + 1,
            text=reply.text,
            calls=calls,
            usage=reply.usage,
            model=reply.model,
        )

    def _begun(self, start: StartCall) -> ToolCallStarted:
        call = start.call
        turn_id = self._started.turn_id
        return ToolCallStarted(
            turn_id=turn_id, call_id=call.call_id, tool=call.tool, arguments=start.arguments
        )

    def _finished(self, call: FunctionCall, result: ToolResult, duration_s: float = 0.0) -> ToolCallFinished:
        finished = ToolCallFinished(
            turn_id=self._started.turn_id,
            call_id=call.call_id,
            tool=call.tool,
            is_error=result.is_error,
            outcome=result.outcome,
            content=result.content,
            citations=result.citations,
            duration_s=duration_s,
        )
        self._results[call.call_id] = finished
        return finished

    def _answered(self, text: str, now: float) -> TurnAnswered:
        return TurnAnswered(
            turn_id=self._started.turn_id,
            text=text,
            citations=self._citations(),
            capped=len(self._steps) > self._limits.max_steps,
            steps=len(self._steps),
            usage=sum((step.usage for step in self._steps), self._spare_usage),
            duration_s=now - self._began_at,
        )

    def _citations(self) -> tuple[Citation, ...]:
        calls = (call for step in self._steps for call in step.calls)
        results = (self._results[call.call_id] for call in calls if call.call_id in self._results)
        return tuple(dict.fromkeys(citation for result in results for citation in result.citations))

    def _failed(self, reason: str, message: str) -> TurnFailed:
        return TurnFailed(turn_id=self._started.turn_id, reason=reason, message=message)


_Transition: TypeAlias = Callable[[Turn, Any, float], list[Effect]]
_OPEN_PHASES = (Phase.ACCEPTING, Phase.ASKING, Phase.RETRYING, Phase.STARTING, Phase.CALLING)

TRANSITIONS: Mapping[tuple[Phase, type], _Transition] = {
    (Phase.NEW, Begin): Turn._begin,
    (Phase.NEW, Resume): Turn._resume,
    (Phase.ACCEPTING, Durable): Turn._go_on,
    (Phase.ASKING, ModelReplied): Turn._take_reply,
    (Phase.ASKING, ModelFailed): Turn._take_failure,
    (Phase.RETRYING, RetryDue): Turn._ask,
    (Phase.STARTING, Durable): Turn._go_on,
    (Phase.CALLING, CallFinished): Turn._take_result,
    (Phase.ENDING, Durable): Turn._announce,
    **{(phase, Cancel): Turn._cancel for phase in _OPEN_PHASES},
    **{(phase, DeadlinePassed): Turn._expire for phase in _OPEN_PHASES},
}


def _retry_delay_s(failures: int, retry_after_s: float | None) -> float:
    if retry_after_s is not None and retry_after_s >= 0:
        return min(_MAX_RETRY_AFTER_S, retry_after_s)
    return min(_MAX_BACKOFF_S, 0.25 * 2.0 ** (failures - 1))
