"""Looking after the store: finding damage, copying it, and moving logs out of it and in again as JSON lines.

It reads in pieces, one log a transaction, so a daemon may go on writing. It repairs nothing: what is damaged is cut
off when the log is opened next. Called by ``storage/journal.py``.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, exists, func, select, tuple_

from callboard.storage import journal_wal
from callboard.storage.journal_log import read_log
from callboard.storage.journal_pieces import get_piece, loose_pieces
from callboard.storage.journal_store import JournalStore
from callboard.storage.journal_streams import Key, Stream, stream_of
from callboard.storage.journal_terms import (
    CONVERSATION,
    INVALID,
    STORAGE_CORRUPT,
    STORAGE_IO,
    UNKNOWN,
    Complaint,
    Incomplete,
    JournalError,
    Record,
)
from callboard.storage.schema import attachments, quarantine, streams, uses

_COMPLAINTS = 100
_SHOWN = 5
_STREAMS_AT_A_TIME = 500
_CONTENTS_AT_A_TIME = 16


# ------------------------------------------------------------ check
def check(store: JournalStore) -> list[Complaint]:
    """Say all that is wrong with the store; where the database itself is, that is the last thing said."""
    complaints: list[Complaint] = []
    try:
        complaints += _of_the_database(store)
        for stream in _all_streams(store):
            complaints += _of_a_stream(store, stream)
        complaints += _of_attachments(store)
    except JournalError as fault:
        if fault.kind not in (STORAGE_CORRUPT, STORAGE_IO):
            raise
        complaints.append(Complaint(problem=fault.message))
    return [*(Complaint(problem=finding) for finding in store.findings), *complaints]


def _of_the_database(store: JournalStore) -> list[Complaint]:
    if store.path is None:
        return []
    found: list[Complaint] = []
    lost = journal_wal.complaint(store.path)
    if lost:
        found.append(Complaint(problem=f"the write-ahead log is damaged: {lost}"))
    with store.transaction(write=False) as connection:
        for (line,) in connection.exec_driver_sql(f"PRAGMA integrity_check({_COMPLAINTS})"):
            found += [] if line == "ok" else [Complaint(problem=str(line))]
        for table, _row, parent, _key in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            found.append(Complaint(problem=f"a row of {table} belongs to a row of {parent} that is gone"))
    return found[:_COMPLAINTS]


def _of_a_stream(store: JournalStore, stream: Stream) -> Iterator[Complaint]:
    team, _kind, name = stream.key
    with store.transaction(write=False) as connection:
        fresh = _again(connection, stream)
        if fresh is None:
            return
        found = read_log(connection, fresh)
        kept = select(func.count()).where(quarantine.c.stream == fresh.id)
        aside = connection.execute(kept).scalar_one()
    if found.problem:
        yield Complaint(problem=found.problem, conversation=name, team=team)
    elif len(found.records) != fresh.last_seq:
        problem = f"it has {len(found.records)} records, and had {fresh.last_seq}"
        yield Complaint(problem=problem, conversation=name, team=team)
    if aside:
        problem = f"{aside} records that were damaged, or lay behind one, are in the quarantine"
        yield Complaint(problem=problem, conversation=name, team=team)


def _of_attachments(store: JournalStore) -> Iterator[Complaint]:
    yield from _unused(store)
    lost = select(uses.c.team, uses.c.digest).where(
        ~exists().where(uses.c.team == attachments.c.team, uses.c.digest == attachments.c.digest)
    )
    with store.transaction(write=False) as connection:
        for team, digest in connection.execute(lost.distinct().limit(_COMPLAINTS)):
            yield Complaint(problem=f"the attachment {digest[:12]} is missing", team=team)
    yield from _damaged(store)


def _damaged(store: JournalStore) -> Iterator[Complaint]:
    after = ("", "")
    columns = (attachments.c.team, attachments.c.digest, attachments.c.content)
    while True:
        query = select(*columns).where(tuple_(*columns[:2]) > after).order_by(*columns[:2])
        with store.transaction(write=False) as connection:
            rows = list(connection.execute(query.limit(_CONTENTS_AT_A_TIME)))
        if not rows:
            return
        after = (rows[-1].team, rows[-1].digest)
        for team, digest, content in rows:
            if hashlib.sha256(content).hexdigest() != digest:
                yield Complaint(problem=f"the attachment {digest[:12]} is damaged", team=team)


def _unused(store: JournalStore) -> list[Complaint]:
    used = exists().where(uses.c.team == attachments.c.team, uses.c.digest == attachments.c.digest)
    query = select(attachments.c.team, attachments.c.digest).where(~used).limit(_COMPLAINTS)
    with store.transaction(write=False) as connection:
        return [
            Complaint(problem=f"the attachment {digest[:12]} belongs to no conversation", team=team)
            for team, digest in connection.execute(query)
        ]


# ------------------------------------------------------------ backup
def backup(store: JournalStore, path: Path) -> None:
    """Copy a SQLite store, as it is at one moment, into a new file of mode 0600; nothing is left of a failed copy."""
    if not store.is_sqlite:
        raise JournalError(INVALID, f"{store.name} is backed up by PostgreSQL's own pg_dump")
    if path.exists():
        raise JournalError(INVALID, f"{path} exists: name a new file for the backup")
    part = path.with_name(f"{path.name}.part")
    source = store.sqlite()
    try:
        with store.mapped(path.parent):
            part.unlink(missing_ok=True)
            os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(part)) as target:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE").fetchone()
            part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


# ------------------------------------------------------------ export and import
def export(store: JournalStore, team: str | None) -> Iterator[dict[str, Any]]:
    """Give each log's records up to its first damaged one; raises Incomplete at the end if something was damaged.

    No transaction is open while a row is given, so the store may be used between two.
    """
    damaged: list[str] = []
    lost: list[str] = []
    for stream in _all_streams(store, team):
        owner, kind, name = stream.key
        with store.transaction(write=False) as connection:
            fresh = _again(connection, stream)
            if fresh is None:
                continue
            found, digests = read_log(connection, fresh), loose_pieces(connection, fresh)
        if found.problem or len(found.records) != fresh.last_seq:
            damaged.append(name)
        place = {"team": owner, "kind": kind, "conversation": name}
        for record in found.records:
            yield {**place, "record": record}
        for digest in digests:
            piece = _piece_of(store, fresh, digest, lost)
            if piece is not None:
                yield {**place, "piece": base64.b64encode(piece).decode("ascii")}
    _say_damage(damaged, lost)


def _piece_of(store: JournalStore, stream: Stream, digest: str, lost: list[str]) -> bytes | None:
    """Read a piece in a transaction of its own; None when it is damaged, or gone with its log by now."""
    try:
        with store.transaction(write=False) as connection:
            return get_piece(connection, stream, digest)
    except JournalError as fault:
        if fault.kind == STORAGE_CORRUPT:
            lost.append(f"{digest[:12]} of {stream.key[2]}")
        elif fault.kind != UNKNOWN:
            raise
        return None


def _say_damage(damaged: list[str], lost: list[str]) -> None:
    said = []
    if damaged:
        shown = ", ".join(damaged[:_SHOWN])
        said.append(f"{len(damaged)} logs are damaged, and exported up to their last good record: {shown}")
    if lost:
        shown = ", ".join(lost[:_SHOWN])
        said.append(f"{len(lost)} pieces of attachments are damaged, and not exported: {shown}")
    if said:
        raise Incomplete("; ".join(said))


def logs_of(lines: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Key, list[Record], list[bytes]]]:
    """Put exported lines together, log by log; raises ``invalid`` for what is no such line."""
    for key, group in itertools.groupby(enumerate(lines, start=1), lambda line: _key_of(*line)):
        records: list[Record] = []
        pieces: list[bytes] = []
        for number, line in group:
            if "piece" in line:
                pieces.append(_piece(number, line["piece"]))
            else:
                records.append(line["record"])
        yield key, records, pieces


def _piece(number: int, text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError) as fault:
        raise JournalError(INVALID, f"line {number}: 'piece' is not base64: {fault}") from fault


def _key_of(number: int, line: Mapping[str, Any]) -> Key:
    if not isinstance(line, Mapping):
        raise JournalError(INVALID, f"line {number} is not an object")
    key = (line.get("team"), line.get("kind", CONVERSATION), line.get("conversation"))
    team, kind, name = key
    if not (isinstance(team, str) and isinstance(kind, str) and isinstance(name, str)):
        raise JournalError(INVALID, f"line {number} lacks a text 'team', 'kind' or 'conversation'")
    if "piece" not in line and not isinstance(line.get("record"), Mapping):
        raise JournalError(INVALID, f"line {number} has no object 'record'")
    return team, kind, name


# ------------------------------------------------------------ streams
def _all_streams(store: JournalStore, team: str | None = None) -> Iterator[Stream]:
    after = 0
    while True:
        query = select(streams).where(streams.c.id > after).order_by(streams.c.id).limit(_STREAMS_AT_A_TIME)
        if team is not None:
            query = query.where(streams.c.team == team)
        with store.transaction(write=False) as connection:
            rows: list[Row[*tuple[Any, ...]]] = list(connection.execute(query))
        if not rows:
            return
        after = rows[-1].id
        yield from (stream_of(row) for row in rows)


def _again(connection: Connection, stream: Stream) -> Stream | None:
    """The stream as it is now: it may have grown, or gone, since it was listed."""
    row = connection.execute(select(streams).where(streams.c.id == stream.id)).one_or_none()
    return stream_of(row) if row is not None else None
