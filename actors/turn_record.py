"""A turn's own log while it runs: the facts so far, and those that are yet to be written.

It makes the events with the turn's id in them, in the order of the log. Pure bookkeeping, no decisions; used by the
turn machine alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.actors.asked_calls import tools_asked_in_each
from callboard.actors.chat_model import ModelReply, Usage
from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ContextTrimmed,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.items import FunctionCall
from callboard.actors.turn_effects import StartCall
from callboard.actors.turn_facts import TurnFacts, UnfinishedTurn
from callboard.actors.turn_inputs import Decided, ModelReplied
from callboard.actors.turn_words import REPEAT_STEPS
from callboard.tools.content import ToolResult


class TurnRecord:
    """``facts`` hold every event from the moment that it is noted, durable or not."""

    def __init__(self, started: TurnStarted) -> None:
        self.facts = TurnFacts(started)
        self._unwritten: list[Event] = []

    @classmethod
    def of(cls, unfinished: UnfinishedTurn) -> TurnRecord:
        """Take up the record of a turn that is in the log so far."""
        record = cls(unfinished.started)
        for event in unfinished.events:
            record.facts.take(event)
        return record

    @property
    def turn_id(self) -> str:
        """The turn's id."""
        return self.facts.started.turn_id

    def note(self, event: Event) -> None:
        """Add a fact, to be written with the next ``drain``."""
        self.facts.take(event)
        self._unwritten.append(event)

    def drain(self) -> tuple[Event, ...]:
        """Give the events that are to be written now, each once."""
        unwritten, self._unwritten = tuple(self._unwritten), []
        return unwritten

    def failed(self, reason: str, message: str) -> TurnFailed:
        """Make this ending; it is not noted yet."""
        return TurnFailed(turn_id=self.turn_id, reason=reason, message=message)

    def answered(self, text: str, *, capped: bool, spare: Usage, duration_s: float) -> TurnAnswered:
        """Make this ending; it is not noted yet. ``spare`` was used by replies that are no steps."""
        return TurnAnswered(
            turn_id=self.turn_id,
            text=text,
            citations=self.facts.citations(),
            capped=capped,
            steps=len(self.facts.steps),
            usage=self.facts.usage() + spare,
            duration_s=duration_s,
        )

    def step(self, given: ModelReplied, reply: ModelReply, calls: tuple[FunctionCall, ...]) -> None:
        """Note the model's reply, what it was not shown, and what it repeats."""
        number = len(self.facts.steps) + 1
        left_out = given.left_out
        if left_out is not None:
            trimmed = ContextTrimmed(
                turn_id=self.turn_id,
                step=number,
                left_out_items=left_out.items,
                left_out_tokens=left_out.tokens,
                cut_results=left_out.cut_results,
                limit=left_out.limit,
            )
            self.note(trimmed)
        step = StepFinished(
            turn_id=self.turn_id,
            step=number,
            text=reply.text,
            calls=calls,
            usage=reply.usage,
            model=reply.model,
            repeated=self._repeated(calls),
        )
        self.note(step)

    def _repeated(self, calls: tuple[FunctionCall, ...]) -> tuple[str, ...]:
        before = [step.calls for step in self.facts.steps[1 - REPEAT_STEPS :]]
        if len(before) < REPEAT_STEPS - 1:
            return ()
        return tuple(tools_asked_in_each([*before, calls]))

    def requested(
        self, call: FunctionCall, arguments: Mapping[str, Any], digest: str, reason: str
    ) -> ApprovalRequested:
        """Note that a person is asked."""
        request = ApprovalRequested(
            turn_id=self.turn_id,
            call_id=call.call_id,
            tool=call.tool,
            arguments=dict(arguments),
            digest=digest,
            reason=reason,
        )
        self.note(request)
        return request

    def decided(self, given: Decided) -> ApprovalDecided:
        """Note what the person said."""
        decided = ApprovalDecided(
            turn_id=self.turn_id,
            call_id=given.call_id,
            approved=given.approved,
            arguments=None if given.arguments is None else dict(given.arguments),
            by=given.by,
            reason=given.reason,
            expired=given.expired,
        )
        self.note(decided)
        return decided

    def begun(self, start: StartCall, decision: str = "") -> None:
        """Note that the call is to run."""
        call = start.call
        started = ToolCallStarted(
            turn_id=self.turn_id,
            call_id=call.call_id,
            tool=call.tool,
            arguments=start.arguments,
            decision=decision,
        )
        self.note(started)

    def finished(
        self, call: FunctionCall, result: ToolResult, duration_s: float = 0.0, decision: str = ""
    ) -> None:
        """Note the call's one result."""
        finished = ToolCallFinished(
            turn_id=self.turn_id,
            call_id=call.call_id,
            tool=call.tool,
            is_error=result.is_error,
            outcome=result.outcome,
            content=result.content,
            citations=result.citations,
            duration_s=duration_s,
            decision=decision,
            output=result.output,
            attachments=result.attachments,
        )
        self.note(finished)
