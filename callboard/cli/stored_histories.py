"""The journal without a daemon: which one a command means, and its conversations as the API would show them.

It opens a store, for reading beside a daemon or for writing alone, and maps its errors to ours; it decides nothing
about conversations. ``callboard history`` and ``callboard journal`` use it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from callboard.errors import CallboardError, ConversationNotFound, Refused, Unavailable

if TYPE_CHECKING:
    from callboard.actors.events import Event
    from callboard.config import Config
    from callboard.storage.journal import Journal
    from callboard.storage.journal_terms import JournalError
    from callboard.views import ConversationInfo

_PAGE = 1000


class Histories(Protocol):
    """What the history commands need: a running ``System`` has it, and so has ``StoredHistories``."""

    def conversations(
        self, *, team: str = "", user: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[ConversationInfo]:
        """List a team's conversations, the last changed first, from behind the cursor ``before``."""
        ...

    def history(self, conversation_id: str, *, team: str = "", after: int = 0) -> list[Event]:
        """Give the events after number ``after``; raises ConversationNotFound."""
        ...

    def attachment(self, conversation_id: str, digest: str, *, team: str = "") -> bytes:
        """Give an attachment's content; raises ConversationNotFound, or Refused when there is none."""
        ...

    def whole_history(self, conversation_id: str, *, team: str = "") -> list[Event]:
        """Give all events, with the contents of their attachments, lost ones without; raises ConversationNotFound."""
        ...

    def delete_conversation(self, conversation_id: str, *, team: str = "") -> None:
        """Delete the log and all that only it needs; raises ConversationNotFound."""
        ...

    def import_conversation(
        self, events: Iterable[Event], *, conversation_id: str | None = None, team: str = "", user: str = ""
    ) -> str:
        """Write a new conversation's log and give its id; raises Refused when it exists."""
        ...


class StoredHistories:
    """``Histories`` on a journal that is open here."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def conversations(
        self, *, team: str = "", user: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[ConversationInfo]:
        """List a team's conversations."""
        from callboard.shown import conversation_info

        try:
            with journal_errors():
                found = self._journal.listing(team, user=user, limit=limit, before=before)
        except ConversationNotFound:
            return []  # there is no journal yet
        return [conversation_info(summary) for summary in found]

    def history(self, conversation_id: str, *, team: str = "", after: int = 0) -> list[Event]:
        """Give the events after number ``after``."""
        from callboard.actors.events import EventError, event_from_json

        events: list[Event] = []
        more = True
        while more:
            with journal_errors():
                records, more = self._journal.read(
                    conversation_id, team, after=after + len(events), limit=_PAGE
                )
            try:
                events += [event_from_json(record) for record in records]
            except EventError as fault:
                raise Unavailable(
                    f"the log of conversation {conversation_id} cannot be read: {fault}"
                ) from fault
        return events

    def attachment(self, conversation_id: str, digest: str, *, team: str = "") -> bytes:
        """Give an attachment's content."""
        from callboard.actors.attachments import NoAttachment, find, whole

        events = self.history(conversation_id, team=team)
        try:
            return whole(find(events, digest), lambda piece: self._piece(conversation_id, team, piece))
        except NoAttachment as fault:
            raise Refused(str(fault)) from fault

    def whole_history(self, conversation_id: str, *, team: str = "") -> list[Event]:
        """Give all events, with the contents of their attachments."""
        from callboard.actors.attachments import with_contents

        events = self.history(conversation_id, team=team)
        return with_contents(events, lambda piece: self._piece(conversation_id, team, piece))

    def _piece(self, conversation_id: str, team: str, digest: str) -> bytes:
        from callboard.actors.attachments import NoAttachment
        from callboard.storage.journal_terms import STORAGE_CORRUPT, UNKNOWN, JournalError

        with journal_errors():
            try:
                return self._journal.piece(conversation_id, team, digest)
            except JournalError as fault:
                if fault.kind in (STORAGE_CORRUPT, UNKNOWN):
                    raise NoAttachment(fault.message) from fault
                raise

    def delete_conversation(self, conversation_id: str, *, team: str = "") -> None:
        """Delete the log and all that only it needs."""
        with journal_errors():
            self._journal.delete(conversation_id, team)

    def import_conversation(
        self, events: Iterable[Event], *, conversation_id: str | None = None, team: str = "", user: str = ""
    ) -> str:
        """Write a new conversation's log."""
        from callboard.actors.attachments import without_contents
        from callboard.actors.events import event_to_json
        from callboard.actors.history_import import adopted, repaired

        new_id = conversation_id or uuid.uuid4().hex
        whole, _repairs = repaired(adopted(events, conversation_id=new_id, user=user, team=team))
        slim, pieces = without_contents(whole)
        with journal_errors():
            self._journal.insert(new_id, team, [event_to_json(event) for event in slim], pieces=pieces)
        return new_id


def config_of(name: str, config: Path | None) -> Config:
    """Give the configuration whose journal is meant: the file given, the running daemon's, else the one found here."""
    from callboard import daemon
    from callboard.config import default_config, discover_config, load_config
    from callboard.paths import runtime_dir

    if config is not None:
        return load_config(config)
    info = daemon.read_info(runtime_dir(name)) if daemon.runs(name) else None
    if info is None:
        return discover_config(Path.cwd())
    return default_config() if info.config is None else load_config(Path(info.config))


@contextmanager
def opened_journal(name: str, config: Path | None, *, read_only: bool) -> Iterator[Journal]:
    """Open the journal of the system ``name``; ``read_only`` works beside a running daemon. Raises CallboardError."""
    from callboard.storage.journal import open_journal
    from callboard.storage.journal_terms import url_of_folder

    found = config_of(name, config)
    with journal_errors():
        journal = open_journal(
            found.database_url or url_of_folder(found.storage_path(name)), read_only=read_only
        )
    try:
        yield journal
    finally:
        journal.close()


@contextmanager
def journal_errors() -> Iterator[None]:
    """Turn a JournalError into the error that a command ends with."""
    from callboard.storage.journal_terms import JournalError

    try:
        yield
    except JournalError as fault:
        raise _error(fault) from fault


def _error(fault: JournalError) -> CallboardError:
    match fault.kind:
        case "unknown":
            return ConversationNotFound(fault.message)
        case "conflict":
            return Refused(f"{fault.message}; --id imports it under another id")
        case "invalid":
            return Refused(fault.message)
    return Unavailable(f"{fault.kind}: {fault.message}")
