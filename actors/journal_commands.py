"""What each command to the journal means to the store, and the store's answer as a message.

A refusal or a fault of the storage is an answer, a Failure of the same kind; only a bug raises. It knows the store's
methods, and no database. Called in the writer's thread.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.actors.attachments import without_contents
from callboard.actors.events import ConversationOpened, Event, EventError, event_from_json, event_to_json
from callboard.actors.messages import (
    AppendEvents,
    DeleteLog,
    GetUnfinished,
    History,
    ImportLog,
    KeepPieces,
    ListLogs,
    LogList,
    LogOpened,
    OpenLog,
    ReadLog,
    ReadPiece,
    UnfinishedLog,
)
from callboard.actors.names import JOURNAL
from callboard.storage.journal_terms import UNKNOWN, Append, JournalError, Record, Summary
from callboard.supervisor.envelope import Failure
from callboard.tools.content import JsonBlock

MAX_PAGE = 10_000
NOT_FOUND = "not_found"
_COMMON_BYTES = 500
_JSON_BYTES = 50_000


@dataclass(frozen=True, slots=True)
class Expire:
    """Delete what rested for longer than its team's age (seconds; None: for ever). Answer: how many, or a Failure."""

    default_age_s: float | None
    per_team: Mapping[str, float]


def append_all(store: Any, commands: Sequence[AppendEvents]) -> list[int | Failure]:
    """Carry out many appends as one transaction."""
    appends = [
        Append(
            conversation=command.conversation_id,
            team=command.team,
            epoch=command.epoch,
            records=[event_to_json(event) for event in command.events],
        )
        for command in commands
    ]
    try:
        answers: list[int | JournalError] = store.commit(appends)
    except JournalError as fault:
        return [failure_of(fault)] * len(commands)
    return [failure_of(answer) if isinstance(answer, JournalError) else answer for answer in answers]


def carry_out_each(store: Any, commands: Sequence[Any]) -> list[Any]:
    """Carry out commands other than appends."""
    return [_carry_out(store, command) for command in commands]


def weight(command: AppendEvents) -> int:
    """Give about how many bytes an append will write: what is large in an event is its text, or a result's content."""
    size = 0
    for event in command.events:
        size += _COMMON_BYTES + len(getattr(event, "text", ""))
        for block in getattr(event, "content", ()):
            for name in ("text", "data", "blob"):
                size += len(getattr(block, name, None) or "")
            size += _JSON_BYTES if isinstance(block, JsonBlock) else 0
    return size


def failure_of(error: JournalError) -> Failure:
    """Give the store's error as a message."""
    kind = NOT_FOUND if error.kind == UNKNOWN else error.kind
    return Failure(kind=kind, message=error.message, retryable=error.is_fault, origin=JOURNAL)


def _carry_out(store: Any, command: Any) -> Any:
    try:
        match command:
            case OpenLog(conversation_id=conversation, team=team, create=create):
                return _open(store, conversation, team, create)
            case GetUnfinished():
                return tuple(UnfinishedLog(conversation_id=c, team=t) for c, t in store.unfinished())
            case ReadLog(conversation_id=conversation, team=team, after=after, limit=limit):
                records, more = store.read(conversation, team, max(0, after), _page(limit))
                return History(events=_events(conversation, records), more=more)
            case KeepPieces(conversation_id=conversation, team=team, epoch=epoch, pieces=pieces):
                store.keep(conversation, team, epoch, pieces)
                return True
            case ReadPiece(conversation_id=conversation, team=team, digest=digest):
                return store.piece(conversation, team, digest)
            case ListLogs(team=team, user=user, limit=limit, before=before):
                return _list(store, team, user, _page(limit), before)
            case Expire(default_age_s=default, per_team=per_team):
                return store.expire(time.time(), default, per_team)
            case DeleteLog(conversation_id=conversation, team=team):
                store.delete(conversation, team)
                return True
            case ImportLog(conversation_id=conversation, team=team, events=events):
                slim, contents = without_contents(events)
                return store.insert(conversation, team, _numbered(slim), pieces=contents)
            case _:
                return Failure(kind="unknown_command", message=f"the journal does not know {command!r}")
    except JournalError as error:
        return failure_of(error)
    except _Unreadable as fault:
        return Failure(kind="unreadable", message=str(fault), origin=JOURNAL)


class _Unreadable(Exception):
    pass


def _open(store: Any, conversation: str, team: str, create: ConversationOpened | None) -> Any:
    if create is None:
        store.read(conversation, team, 0, 1)  # an unknown one must not come to be by being asked for
    opened = store.open(conversation, team)
    events = _events(conversation, opened.records)
    lost = opened.damaged if not events else not isinstance(events[0], ConversationOpened)
    if lost:
        raise _Unreadable(f"the log of conversation {conversation} has lost its beginning")
    return LogOpened(epoch=opened.epoch, events=events, damaged=opened.damaged)


def _list(store: Any, team: str, user: str | None, limit: int, before: str | None) -> LogList:
    found: list[Summary] = store.listing(team, user, limit + 1, before)
    return LogList(conversations=tuple(found[:limit]), more=len(found) > limit)


def _page(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))


def _events(conversation: str, records: Sequence[Record]) -> tuple[Event, ...]:
    try:
        return tuple(event_from_json(record) for record in records)
    except EventError as fault:
        raise _Unreadable(f"the log of conversation {conversation} cannot be read: {fault}") from fault


def _numbered(events: Sequence[Event]) -> list[Record]:
    return [event_to_json(dataclasses.replace(event, seq=n)) for n, event in enumerate(events, start=1)]
