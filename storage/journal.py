"""The journal: every conversation's log, in one database, with many conversations' appends in one transaction.

It decides what counts as written: epochs fence off former owners, numbers forbid gaps and make a repeated append
harmless, what is damaged is cut off and kept aside, another team's conversation is not there. It knows neither actors
nor turns. Every method blocks, raises JournalError, and may be called from one thread at a time: the journal actor's
writer, or a command that works on the store without a daemon.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from callboard.storage import journal_care, journal_lists, journal_removal
from callboard.storage.journal_batch import Batch, check_epoch, time_of, unknown
from callboard.storage.journal_log import Found, lock_contents, put_in_quarantine, read_log
from callboard.storage.journal_outline import Outline, advance
from callboard.storage.journal_pieces import get_piece, put_pieces
from callboard.storage.journal_store import JournalStore
from callboard.storage.journal_streams import Diverged, Key, Stream, Streams, mark_damaged
from callboard.storage.journal_terms import (
    CONFLICT,
    CONVERSATION,
    INVALID,
    STORAGE_CORRUPT,
    STORAGE_IO,
    Append,
    Complaint,
    JournalError,
    Opened,
    Record,
    Summary,
)

_T = TypeVar("_T")
_P = ParamSpec("_P")


def open_journal(
    url: str,
    *,
    read_only: bool = False,
    clock: Callable[[], float] = time.time,
) -> Journal:
    """Give the journal at a SQLAlchemy URL (``sqlite:////folder/file``, ``postgresql+psycopg://…``), not yet connected.

    It connects, and makes or migrates its tables, at its first use, and again after a fault: a database that cannot be
    had now is each operation's error. ``read_only`` takes no lock, so it may be used beside a daemon. ``clock``
    gives Unix seconds. Raises JournalError ``invalid`` for a URL that cannot be.
    """
    return Journal(JournalStore(url, read_only=read_only), clock)


class Journal:
    """See the module. ``kind`` is the kind of stream, a conversation if nothing else is said."""

    def __init__(self, store: JournalStore, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._streams = Streams(remembers=store.is_sqlite and not store.read_only)
        self._life = 0

    @property
    def name(self) -> str:
        """Where it is kept, for messages."""
        return self._store.name

    def take_findings(self) -> list[str]:
        """Give, once, what was found wrong with the store as a whole when it was opened."""
        findings, self._store.findings[:] = list(self._store.findings), []
        return findings

    def close(self) -> None:
        """Let another process have the store."""
        self._streams.forget()
        self._store.close()

    # ------------------------------------------------------------ an owner's
    def open(self, conversation: str, team: str, kind: str = CONVERSATION) -> Opened:
        """Issue the next epoch, durably, to a new owner, and give the whole log, new if there is none.

        Records behind the first bad one go to the quarantine; ``damaged`` holds until the owner's next append.
        """
        return self._steadily(lambda: self._open((team, kind, conversation)))

    def commit(self, appends: Sequence[Append]) -> list[int | JournalError]:
        """Write all appends in one transaction; give each one's last number, durable by now, or why it was refused.

        A refused append does not spoil the others; a fault of the storage is the answer to all, and nothing of them
        is written.
        """
        try:
            return self._steadily(lambda: self._commit(appends))
        except JournalError as fault:
            if fault.kind == INVALID and len(appends) > 1:  # by one of them: each is tried for itself
                return [answer for append in appends for answer in self.commit([append])]
            return [fault] * len(appends)

    def keep(
        self, conversation: str, team: str, epoch: int, pieces: Sequence[bytes], kind: str = CONVERSATION
    ) -> None:
        """Keep contents beside the owner's log, durably, each to be had by its SHA-256; again: harmless.

        They go with the log. A piece is at most 4 MiB; ``stale_epoch`` as for an append.
        """
        self._steadily(lambda: self._keep((team, kind, conversation), epoch, pieces))

    # ------------------------------------------------------------ readers'
    def piece(self, conversation: str, team: str, digest: str, kind: str = CONVERSATION) -> bytes:
        """Give a content that was kept beside the log; ``unknown`` when the log has none of this digest."""
        return self._steadily(lambda: self._piece((team, kind, conversation), digest))

    def _piece(self, key: Key, digest: str) -> bytes:
        with self._store.transaction(write=False) as connection:
            stream = self._streams.find(connection, [key], lock=False).get(key)
            if stream is None:
                raise unknown(key[2])
            return get_piece(connection, stream, digest)

    def read(
        self, conversation: str, team: str, after: int = 0, limit: int = 1000, kind: str = CONVERSATION
    ) -> tuple[tuple[Record, ...], bool]:
        """Give at most ``limit`` records after number ``after``, and whether there are more.

        What stands before a damaged record is given; who asks for more then is told ``storage_corrupt``.
        """
        return self._steadily(lambda: self._read((team, kind, conversation), after, limit))

    def _read(self, key: Key, after: int, limit: int) -> tuple[tuple[Record, ...], bool]:
        conversation = key[2]
        with self._store.transaction(write=False) as connection:
            stream = self._streams.find(connection, [key], lock=False).get(key)
            if stream is None or (stream.last_seq == 0 and not stream.damaged):
                raise unknown(conversation)
            found = read_log(connection, stream, after, limit)
        last = after + len(found.records)
        if not found.records and (last < stream.last_seq or (stream.damaged and not stream.last_seq)):
            problem = found.problem or f"record {last + 1}: it is missing"
            raise JournalError(STORAGE_CORRUPT, f"the log of {conversation!r} is damaged: {problem}")
        return tuple(found.records), last < stream.last_seq

    def listing(
        self,
        team: str,
        user: str | None = None,
        limit: int = 100,
        before: str | None = None,
        kind: str = CONVERSATION,
    ) -> list[Summary]:
        """Give the team's logs, the last changed first; ``before`` is a summary's ``cursor``: those behind it."""
        return self._steadily(lambda: self._look(journal_lists.page, team, kind, user, limit, before))

    def unfinished(self) -> list[tuple[str, str]]:
        """Give (conversation, team) of those whose last turn is open: neither ended nor suspended."""
        return self._steadily(lambda: self._look(journal_lists.unfinished))

    # ------------------------------------------------------------ whole logs
    def insert(
        self,
        conversation: str,
        team: str,
        records: Sequence[Record],
        kind: str = CONVERSATION,
        pieces: Sequence[bytes] = (),
    ) -> int:
        """Write a whole new log, numbered from 1 on, and what is kept beside it; gives its last number.

        ``conflict`` when it exists.
        """
        key = (team, kind, conversation)
        now = self._clock()
        self._streams.forget([key])
        with self._writing() as connection:
            there = self._streams.find(connection, [key]).get(key)
            if there is not None and (there.last_seq or there.damaged):
                raise JournalError(CONFLICT, f"there is a conversation {conversation!r} already")
            stream = there or self._streams.add(connection, key, time_of(records[0], now) if records else now)
            owned = dataclasses.replace(stream, epoch=self._streams.next_epoch(connection, stream.epoch))
            self._streams.update(connection, [(stream, owned)])
            batch = Batch(connection, {key: owned})
            append = Append(
                conversation=conversation, team=team, epoch=owned.epoch, records=records, kind=kind
            )
            last = batch.take(append, now)
            written = batch.write(self._streams)
            put_pieces(connection, owned, pieces)
        self._streams.remember(written)
        return last

    def delete(self, conversation: str, team: str, kind: str = CONVERSATION) -> None:
        """Delete a log: its records, what of it is in the quarantine, and attachments that no other log uses."""
        key = (team, kind, conversation)
        self._streams.forget([key])
        with self._writing() as connection:
            stream = self._streams.find(connection, [key]).get(key)
            if stream is None:
                raise unknown(conversation)
            lock_contents(connection, {team})
            journal_removal.remove(connection, stream.id)
        self._streams.forget([key])
        self._wipe()

    def expire(self, now: float, default_age_s: float | None, per_team: Mapping[str, float]) -> int:
        """Delete logs unchanged for longer than their team's age; ``now`` is in Unix seconds. Gives how many.

        ``default_age_s`` holds for teams that ``per_team`` does not name; None keeps theirs. A turn under way is never
        deleted. At most some hundred at a time: when the answer is not 0, there may be more.
        """
        with self._writing() as connection:
            found = journal_removal.expired(connection, now, default_age_s, per_team)
            lock_contents(connection, {row.team for row in found})
            for row in found:
                journal_removal.remove(connection, row.id)
        self._streams.forget((row.team, row.kind, row.name) for row in found)
        if found:
            self._wipe()
        return len(found)

    # ------------------------------------------------------------ care
    def check(self) -> list[Complaint]:
        """Read everything, and say what is wrong with it; an empty list when all is well. Repairs nothing."""
        return journal_care.check(self._store)

    def backup(self, path: str | Path) -> None:
        """Write a copy of the whole SQLite store to a new file, while others write; PostgreSQL has pg_dump."""
        journal_care.backup(self._store, Path(path))

    def export(self, team: str | None = None) -> Iterator[dict[str, Any]]:
        """Give all logs (of one team's), log by log: each record as ``{team, kind, conversation, record}``.

        Behind its records stands what is kept beside a log, base64 under ``piece`` instead. Raises Incomplete at the
        end when something was damaged, and so left out. Other operations may come between two rows.
        """
        return journal_care.export(self._store, team)

    def import_(self, lines: Iterable[Mapping[str, Any]]) -> int:
        """Write what ``export`` gave, each log in one transaction; gives how many. ``conflict`` when one exists."""
        count = 0
        for key, records, pieces in journal_care.logs_of(lines):
            team, kind, conversation = key
            self.insert(conversation, team, records, kind, pieces)
            count += 1
        return count

    # ------------------------------------------------------------ within
    def _steadily(self, action: Callable[[], _T]) -> _T:
        """Do what may be done twice; once more where a connection was lost, or a stream is not as it was remembered."""
        try:
            return action()
        except Diverged:
            self._streams.forget()
        except JournalError as fault:
            if self._store.is_sqlite or fault.kind != STORAGE_IO:
                raise
        try:
            return action()
        except Diverged as fault:
            self._streams.forget()
            message = f"the journal {self.name} is written by somebody else: its streams and its logs differ"
            raise JournalError(STORAGE_CORRUPT, message) from fault

    def _look(
        self, query: Callable[Concatenate[Connection, _P], _T], *given: _P.args, **named: _P.kwargs
    ) -> _T:
        with self._store.transaction(write=False) as connection:
            return query(connection, *given, **named)

    def _open(self, key: Key) -> Opened:
        now = self._clock()
        self._streams.forget([key])
        with self._writing() as connection:
            stream = self._streams.find(connection, [key]).get(key)
            stream = stream or self._streams.add(connection, key, now)
            found = read_log(connection, stream)
            if found.bad:
                put_in_quarantine(connection, stream, found, now)
            opened = self._owned(connection, stream, found)
            self._streams.update(connection, [(stream, opened)])
        self._streams.remember([opened])
        return Opened(epoch=opened.epoch, records=tuple(found.records), damaged=opened.damaged)

    def _commit(self, appends: Sequence[Append]) -> list[int | JournalError]:
        now = self._clock()
        keys = {(a.team, a.kind, a.conversation) for a in appends}
        answers: list[int | JournalError] = []
        with self._writing() as connection:
            batch = Batch(connection, self._streams.find(connection, keys))
            for append in appends:
                try:
                    answers.append(batch.take(append, now))
                except JournalError as refusal:
                    if refusal.is_fault:
                        raise
                    answers.append(refusal)
            written = batch.write(self._streams)
        self._streams.remember(written)
        return answers

    def _keep(self, key: Key, epoch: int, pieces: Sequence[bytes]) -> None:
        with self._writing() as connection:
            stream = self._streams.find(connection, [key]).get(key)
            if stream is None:
                raise unknown(key[2])
            check_epoch(stream, epoch)
            put_pieces(connection, stream, pieces)

    def _owned(self, connection: Connection, stream: Stream, found: Found) -> Stream:
        """The stream in its new owner's hands. What the row says is made anew from the log: it may be damaged, too."""
        epoch = self._streams.next_epoch(connection, max(stream.epoch, found.epoch))
        lost = bool(found.bad) or len(found.records) < stream.last_seq
        return dataclasses.replace(
            stream,
            epoch=epoch,
            last_seq=len(found.records),
            damaged=stream.damaged or lost,
            outline=advance(Outline(), found.records),
        )

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        try:
            with self._store.transaction() as connection:
                if self._life != self._store.life:
                    self._life = self._store.life
                    self._streams.forget()
                cut = self._store.cut
                if cut:
                    mark_damaged(connection)
                yield connection
        except JournalError as error:
            if error.is_fault:
                self._streams.forget()
            raise
        if cut:
            self._store.cut = False

    def _wipe(self) -> None:
        """The logs are deleted, whether or not their traces can be wiped now."""
        try:
            self._store.wipe()
        except JournalError as fault:
            self._store.findings.append(f"deleted records may still stand in the write-ahead log: {fault}")
