"""Make a log from elsewhere whole, to be a conversation's here: each call has one result, each turn one end.

It decides what of a foreign log is kept, renamed, dropped or added, and says each change in a sentence. It drops no
work that was done, reads no file and knows no journal. Pure. Called by whoever imports a history: the API, the
command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callboard.actors.asked_calls import with_unique_ids
from callboard.actors.events import (
    ConversationClosed,
    ConversationOpened,
    Event,
    HistoryRepaired,
    StepFinished,
    ToolApproved,
    ToolCallFinished,
    ToolCallStarted,
    ToolPinned,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.history import NO_RESULT
from callboard.actors.items import FunctionCall
from callboard.tools.content import TextBlock

IMPORTED = "imported"
MAX_REPAIRS = 200
_MAX_ID = 60


def repaired(
    events: Iterable[Event], notes: Iterable[str] = (), *, reopen: bool = False
) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Give the events as a valid log, numbered from 1, and a sentence for each thing that had to be changed.

    The opening stands first; a call without a result gets one (an error, ``NO_RESULT``), a result without a call is
    dropped, a repeated id renamed, a turn without an end ends as ``failed(imported)``. Standing approvals of tools,
    which nobody here gave, are left out; with ``reopen`` the closing is, so that the conversation takes turns again.
    Times are kept. Where anything was changed, the last event is a HistoryRepaired that says so. Repairing the outcome
    again changes nothing. ``notes`` are changes that were made before, to be told first.
    """
    mending = _Mending(reopen)
    for note in notes:
        mending.note(note)
    for event in mending.in_order(list(events)):
        mending.take(event)
    mending.end_open_turns()
    log, repairs = mending.outcome()
    return tuple(replace(event, seq=seq) for seq, event in enumerate(log, start=1)), repairs


def adopted(
    events: Iterable[Event],
    *,
    conversation_id: str,
    user: str = "",
    team: str = "",
    at: str | None = None,
) -> tuple[Event, ...]:
    """Give the events as a conversation of this id, user and team, without roles, linked to no process.

    What its opening says of template and tools stays; without an opening it gets a plain one. Events without a time
    get ``at``. Call ``repaired`` after it.
    """
    kept = list(events)
    former = next((event for event in kept if isinstance(event, ConversationOpened)), None)
    opening = former or ConversationOpened(
        conversation_id=conversation_id, user=user, team=team, enabled=("*",)
    )
    opening = replace(opening, conversation_id=conversation_id, user=user, team=team, roles=(), owner=None)
    if former is None:
        log: list[Event] = [replace(opening, at=next((e.at for e in kept if e.at), None)), *kept]
    else:
        log = [
            replace(opening, seq=event.seq, at=event.at) if isinstance(event, ConversationOpened) else event
            for event in kept
        ]
    return tuple(event if event.at or at is None else replace(event, at=at) for event in log)


@dataclass(slots=True)
class _Turn:
    """One turn so far. ``renamed`` leads from a call's id in the log to its ids here, in the order of asking."""

    turn_id: str
    asked: dict[str, FunctionCall] = field(default_factory=dict)
    renamed: dict[str, list[str]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    ended: bool = False


class _Mending:
    """One pass over a log, event by event."""

    def __init__(self, reopen: bool) -> None:
        self._reopen = reopen
        self._log: list[Event] = []
        self._repairs: list[str] = []
        self._left_out = 0
        self._turns: dict[str, _Turn] = {}
        self._turn_of: dict[str, str] = {}
        self._call_ids: set[str] = set()
        self._last_at: str | None = None

    def in_order(self, events: list[Event]) -> list[Event]:
        """Put the opening first and numbered events in the order of their numbers, each once; note what is missing."""
        openings = [event for event in events if isinstance(event, ConversationOpened)]
        rest = [event for event in events if not isinstance(event, ConversationOpened)]
        if not openings:
            self.note("the opening of the conversation was missing; a plain one was put in")
            at = rest[0].at if rest else None
            openings = [ConversationOpened(conversation_id="", user="", team="", at=at)]
        elif openings[0] is not events[0]:
            self.note("the opening of the conversation did not stand first")
        for _ in openings[1:]:
            self.note("a second opening of the conversation was left out")
        if all(event.seq is not None for event in rest):
            rest = self._sorted(rest, openings[0].seq or 0)
        return [openings[0], *rest]

    def take(self, event: Event) -> None:
        """Keep, change or leave out one event."""
        self._last_at = event.at or self._last_at
        turn_id = getattr(event, "turn_id", None)
        if not event.logged:
            self.note(f"a live event ({event.type}) was left out")
        elif isinstance(event, TurnStarted):
            self._start(event)
        elif isinstance(event, ToolApproved):
            self.note(f"the standing approval of {_shown(event.tool)} was left out")
        elif isinstance(event, ToolPinned):
            self.note(f"the pinned definition of {_shown(event.tool)} was left out")
        elif self._reopen and isinstance(event, ConversationClosed):
            self.note("the closing of the conversation was left out")
        elif turn_id is None:
            self._log.append(event)
        else:
            turn = self._turns.get(self._turn_of.get(turn_id, ""))
            if turn is None or turn.ended:
                why = "has no turn" if turn is None else "came after its turn's end"
                self.note(f"a {event.type} that {why} ({_shown(turn_id)}) was left out")
            else:
                self._take_of_turn(turn, _changed(event, turn_id=turn.turn_id))

    def end_open_turns(self) -> None:
        """End what has no end, in the order in which turns were accepted; before the closing, if that comes last."""
        closed = next(
            (n for n, e in enumerate(self._log) if isinstance(e, ConversationClosed)), len(self._log)
        )
        tail = self._log[closed:]
        if any(hasattr(event, "turn_id") for event in tail):
            tail = []
        self._log = self._log[: len(self._log) - len(tail)]
        for turn in self._turns.values():
            if not turn.ended:
                self.note(f"turn {_shown(turn.turn_id)} had no end; it ends as failed ({IMPORTED})")
                message = "the turn had no ending when its history was imported"
                self._end(
                    turn, TurnFailed(turn_id=turn.turn_id, reason=IMPORTED, message=message, at=self._last_at)
                )
        self._log += tail

    def outcome(self) -> tuple[list[Event], tuple[str, ...]]:
        """Give the log, ending with what was repaired, and the repairs of this pass."""
        repairs = list(self._repairs)
        if self._left_out:
            repairs.append(f"and {self._left_out} more repairs")
        if not repairs:
            return self._log, ()
        former = [event for event in self._log if isinstance(event, HistoryRepaired)]
        told = tuple(repair for event in former for repair in event.repairs) + tuple(repairs)
        log = [event for event in self._log if not isinstance(event, HistoryRepaired)]
        return [*log, HistoryRepaired(repairs=told, at=self._last_at)], tuple(repairs)

    # turns

    def _start(self, event: TurnStarted) -> None:
        former = self._turns.get(self._turn_of.get(event.turn_id, ""))
        if former is not None and not former.ended:
            self.note(f"a repeated turn_started ({_shown(event.turn_id)}) was left out")
            return
        turn_id = _free(event.turn_id, self._turns.keys().__contains__, "turn")
        if turn_id != event.turn_id:
            self.note(f"a turn's id that was used before, {_shown(event.turn_id)}, became {_shown(turn_id)}")
        self._turns[turn_id] = _Turn(turn_id)
        self._turn_of[event.turn_id] = turn_id
        self._log.append(_changed(event, turn_id=turn_id))

    def _take_of_turn(self, turn: _Turn, event: Event) -> None:
        if isinstance(event, StepFinished):
            self._take_step(turn, event)
        elif event.terminal:
            self._end(turn, event)
        elif hasattr(event, "call_id"):
            self._take_of_call(turn, event, event.call_id)
        else:
            self._log.append(event)

    def _take_step(self, turn: _Turn, event: StepFinished) -> None:
        calls = with_unique_ids(event.calls, self._call_ids)
        for old, new in zip(event.calls, calls, strict=True):
            turn.asked[new.call_id] = new
            turn.renamed.setdefault(old.call_id, []).append(new.call_id)
            if new != old:
                self.note(
                    f"a call's id that was empty or used before, {_shown(old.call_id)}, became {new.call_id}"
                )
        self._call_ids.update(call.call_id for call in calls)
        self._log.append(event if calls == event.calls else replace(event, calls=calls))

    def _take_of_call(self, turn: _Turn, event: Event, old_id: str) -> None:
        """Find which call is meant: of several that had one id, the first that this can still be said of."""
        open_ids = [name for name in turn.renamed.get(old_id, ()) if name not in turn.answered]
        if not open_ids:
            why = "a call that has its result" if old_id in turn.renamed else "a call that nobody made"
            self.note(f"a {event.type} for {why} ({_shown(old_id)}) was left out")
            return
        call_id = open_ids[0]
        if isinstance(event, ToolCallStarted):
            call_id = next((name for name in open_ids if name not in turn.begun), open_ids[-1])
            turn.begun.add(call_id)
        elif isinstance(event, ToolCallFinished):
            turn.answered.add(call_id)
            event = self._with_what_came(event)
        self._log.append(_changed(event, call_id=call_id))

    def _with_what_came(self, finished: ToolCallFinished) -> ToolCallFinished:
        """An attachment is imported with its content or not at all."""
        kept = tuple(attachment for attachment in finished.attachments if attachment.content is not None)
        if len(kept) < len(finished.attachments):
            self.note(
                f"an attachment of call {_shown(finished.call_id)} came without its content and was left out"
            )
        return dataclasses.replace(finished, attachments=kept)

    def _end(self, turn: _Turn, ending: Event) -> None:
        for call in turn.asked.values():
            if call.call_id not in turn.answered:
                self.note(
                    f"call {_shown(call.call_id)} ({_shown(call.tool)}) had no result; it was given one"
                )
                self._log.append(_no_result(turn.turn_id, call, ending.at or self._last_at))
        turn.ended = True
        self._log.append(ending)

    # numbers

    def _sorted(self, events: Sequence[Event], opening: int) -> list[Event]:
        numbered: dict[int, Event] = {}
        last = opening
        for event in events:
            seq = event.seq or 0
            if seq in numbered or seq == opening > 0:
                self.note(f"a second event with the number {seq} was left out")
                continue
            if seq < last:
                self.note(f"event {seq} stood behind event {last}")
            last = max(last, seq)
            numbered[seq] = event
        former = opening
        for seq in sorted(numbered):
            if seq > former + 1:
                self.note(f"events {former + 1} to {seq - 1} are missing")
            former = seq
        return [numbered[seq] for seq in sorted(numbered)]

    def note(self, repair: str) -> None:
        """Remember one repair; beyond ``MAX_REPAIRS`` they are counted."""
        if len(self._repairs) < MAX_REPAIRS:
            self._repairs.append(repair)
        else:
            self._left_out += 1


def _no_result(turn_id: str, call: FunctionCall, at: str | None) -> ToolCallFinished:
    return ToolCallFinished(
        turn_id=turn_id,
        call_id=call.call_id,
        tool=call.tool,
        is_error=True,
        outcome="unknown",
        content=(TextBlock(NO_RESULT),),
        at=at,
    )


def _changed(event: Event, **fields: Any) -> Event:
    same = all(getattr(event, name) == value for name, value in fields.items())
    return event if same else replace(event, **fields)


def _free(wanted: str, is_taken: Callable[[str], bool], stem: str) -> str:
    if wanted and not is_taken(wanted):
        return wanted
    number = 2 if wanted else 1
    while is_taken(f"{wanted or stem}_{number}"):
        number += 1
    return f"{wanted or stem}_{number}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_ID else f"{text[:_MAX_ID]}…")
