"""The journal actor: owns the conversations' logs. A shell over ``storage.journal``.

An append is answered after it is durable. It decides nothing about turns; the log's rules (epochs, gaps,
repetition) are the storage's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from callboard.actors.events import (
    ConversationOpened,
    EventError,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnStarted,
    event_from_json,
    event_to_json,
    type_name,
)
from callboard.actors.messages import AppendEvents, GetUnfinished, LogOpened, OpenLog
from callboard.actors.settings import Settings
from callboard.storage.journal import FileJournal, JournalError
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure


class JournalActor(Child):
    """``args``: ``settings``."""

    def start(self) -> None:
        """Open the store."""
        settings: Settings = self.init.args["settings"]
        self._store = FileJournal(
            Path(settings.state_dir) / "conversations",
            opening_types=frozenset({type_name(TurnStarted)}),
            closing_types=frozenset(type_name(c) for c in (TurnAnswered, TurnFailed, TurnCancelled)),
        )

    def handle(self, envelope: Envelope) -> None:
        """Answer one command; a storage fault is an answer, never a crash."""
        try:
            self.reply(envelope, self._carry_out(envelope.body))
        except JournalError as fault:
            self.log.warning("journal_refused", kind=fault.kind, reason=str(fault))
            self.reply(envelope, Failure(kind=fault.kind, message=str(fault), origin=self.init.id))

    def _carry_out(self, command: Any) -> Any:
        match command:
            case AppendEvents(conversation_id=conversation, epoch=epoch, events=events):
                return self._store.append(conversation, epoch, [event_to_json(e) for e in events])
            case OpenLog(conversation_id=conversation, create=create):
                return self._open(conversation, create)
            case GetUnfinished():
                return tuple(self._store.unfinished())
        return Failure(kind="unknown_command", message=f"the journal does not know {command!r}")

    def _open(self, conversation: str, create: ConversationOpened | None) -> LogOpened | Failure:
        if create is None and not self._store.exists(conversation):
            return Failure(kind="not_found", message=f"there is no conversation {conversation}")
        opened = self._store.open(conversation, create.team if create else "")
        if opened.dropped:
            self.log.error("journal_cut", conversation=conversation, dropped=opened.dropped)
        try:
            events = tuple(event_from_json(record) for record in opened.records)
        except EventError as fault:
            return Failure(
                kind="unreadable", message=f"the log of conversation {conversation} cannot be read: {fault}"
            )
        lost = opened.damaged if not events else not isinstance(events[0], ConversationOpened)
        if lost:
            return Failure(
                kind="unreadable", message=f"the log of conversation {conversation} has lost its beginning"
            )
        if create is None and not events:
            return Failure(kind="not_found", message=f"there is no conversation {conversation}")
        return LogOpened(epoch=opened.epoch, events=events, damaged=opened.damaged)
