"""What a turn's events amount to: its steps, its calls, what a person decided, and how often it was lost.

A pure fold over the log. It takes events in any order, and doubled ones, without losing work that was done; what
comes after a turn's ending is passed over. It decides nothing. Used by ``actors/history.py`` for what a model is
shown, by the turn machine for its own turn, and by the client actor when it wakes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from callboard.actors.chat_model import Usage
from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    Event,
    StepFinished,
    ToolCallFinished,
    ToolCallStarted,
    TurnContinued,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnSuspended,
)
from callboard.actors.items import FunctionCall
from callboard.tools.content import Citation


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedTurn:
    """A turn without an ending, as the log tells it in ``events``.

    ``open_calls`` were started and have no result; ``pending_calls`` were asked for and never started; both are in
    the order of the model's asking. ``waiting`` are those of them that a person is to decide on. ``resumes`` counts
    the times that it was taken up before, ``losses`` the times that its process was lost, the last one included,
    where the system was not stopped on purpose.
    """

    started: TurnStarted
    events: tuple[Event, ...] = ()
    open_calls: tuple[FunctionCall, ...] = ()
    pending_calls: tuple[FunctionCall, ...] = ()
    waiting: frozenset[str] = frozenset()
    resumes: int = 0
    losses: int = 1
    suspended: bool = False
    paused_s: float = 0.0
    stopped_at: str | None = None

    @property
    def turn_id(self) -> str:
        """The turn's id, which is the request id that brought it."""
        return self.started.turn_id

    def elapsed_s(self, now: datetime) -> float:
        """Give the seconds of its deadline that are used at ``now`` (with a time zone); suspension does not count.

        The time in which no process had it counts: a deadline is the caller's. Zero where the log has no times.
        """
        began, until = instant_of(self.started.at), instant_of(self.stopped_at) or now
        return 0.0 if began is None else max(0.0, (until - began).total_seconds() - self.paused_s)


@dataclass(slots=True)
class TurnFacts:
    """One turn while it is folded; ``take`` each of its events in order."""

    started: TurnStarted
    events: list[Event] = field(default_factory=list)
    steps: list[StepFinished] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    results: dict[str, ToolCallFinished] = field(default_factory=dict)
    requests: dict[str, ApprovalRequested] = field(default_factory=dict)
    decisions: dict[str, ApprovalDecided] = field(default_factory=dict)
    resumes: int = 0
    losses: int = 0
    was_interrupted: bool = False
    suspended: TurnSuspended | None = None
    paused_s: float = 0.0
    ending: Event | None = None

    def take(self, event: Event) -> None:
        """Add one event; the first of a kind counts where there may be one only."""
        if self.ending is not None:
            return
        self.events.append(event)
        match event:
            case StepFinished():
                if all(step.step != event.step for step in self.steps):
                    self.steps.append(event)
            case ToolCallStarted():
                self.begun.add(event.call_id)
            case ToolCallFinished():
                self.results.setdefault(event.call_id, event)
            case ApprovalRequested():
                self.requests.setdefault(event.call_id, event)
            case ApprovalDecided():
                self.decisions.setdefault(event.call_id, event)
            case _:
                self._take_course(event)

    def _take_course(self, event: Event) -> None:
        match event:
            case TurnResumed():
                self.resumes += 1
                self.losses += 0 if self.was_interrupted else 1
                self.was_interrupted = False
            case TurnInterrupted():
                self.was_interrupted = True
            case TurnSuspended():
                self.suspended = self.suspended or event
            case TurnContinued() if self.suspended is not None:
                self.paused_s += seconds_between(self.suspended.at, event.at)
                self.suspended = None
            case _ if event.terminal:
                self.ending = event
            case _:
                pass

    @property
    def calls(self) -> list[FunctionCall]:
        """Every call that the model asked for, in its order."""
        return [call for step in self.steps for call in step.calls]

    def is_waiting(self, call_id: str) -> bool:
        """True while a person's decision on this call is to come."""
        known = self.decisions.keys() | self.results.keys()
        return call_id in self.requests and call_id not in known

    def usage(self) -> Usage:
        """Add up what the steps used."""
        return sum((step.usage for step in self.steps), Usage())

    def citations(self) -> tuple[Citation, ...]:
        """Give the results' citations in the order of the calls, each once."""
        found = (self.results[call.call_id] for call in self.calls if call.call_id in self.results)
        return tuple(dict.fromkeys(citation for result in found for citation in result.citations))

    def unfinished(self) -> UnfinishedTurn:
        """Give what whoever takes the turn up must know."""
        left = [call for call in self.calls if call.call_id not in self.results]
        return UnfinishedTurn(
            started=self.started,
            events=tuple(self.events),
            open_calls=tuple(call for call in left if call.call_id in self.begun),
            pending_calls=tuple(call for call in left if call.call_id not in self.begun),
            waiting=frozenset(call.call_id for call in left if self.is_waiting(call.call_id)),
            resumes=self.resumes,
            losses=self.losses + (0 if self.was_interrupted else 1),
            suspended=self.suspended is not None,
            paused_s=self.paused_s,
            stopped_at=None if self.suspended is None else self.suspended.at,
        )


def turns_of(events: Iterable[Event]) -> Mapping[str, TurnFacts]:
    """Fold a log into its turns, by id, in the order in which they were accepted.

    What names a turn that was not accepted before it belongs to none.
    """
    turns: dict[str, TurnFacts] = {}
    for event in events:
        turn_id = getattr(event, "turn_id", "")
        if isinstance(event, TurnStarted) and turn_id not in turns:
            turns[turn_id] = TurnFacts(event)
        turn = turns.get(turn_id)
        if turn is not None:
            turn.take(event)
    return turns


def unfinished_turn(events: Iterable[Event]) -> UnfinishedTurn | None:
    """Give the oldest turn that has no ending, or None."""
    turn = next((t for t in turns_of(events).values() if t.ending is None), None)
    return None if turn is None else turn.unfinished()


def instant_of(at: str | None) -> datetime | None:
    """Read an event's ``at``; None where it is missing, or is not an instant with a time zone."""
    try:
        instant = datetime.fromisoformat(at or "")
    except ValueError:
        return None
    return instant if instant.tzinfo is not None else None


def seconds_between(first: str | None, second: str | None) -> float:
    """Give the seconds from one event's ``at`` to another's; zero where they are unknown or out of order."""
    start, end = instant_of(first), instant_of(second)
    return 0.0 if start is None or end is None else max(0.0, (end - start).total_seconds())
