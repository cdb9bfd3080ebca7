"""One stream's records as they lie in the database: read with every check, cut at the last good one, written anew.

It decides what of a log is believed: records whose checksums hold, numbered without a gap; what comes behind the
first bad one is moved to the quarantine. Called by ``storage/journal*.py``, inside their transactions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from callboard.storage.journal_rows import (
    DamagedRow,
    EncodedRecord,
    checksum,
    decode_record,
    digests_of,
)
from callboard.storage.journal_sql import ManyRows
from callboard.storage.journal_streams import Stream
from callboard.storage.schema import attachments, events, quarantine, uses

_DIGESTS_AT_A_TIME = 200
_RECORDS = select(events.c.seq, events.c.epoch, events.c.crc, events.c.body, events.c.attached)
_INSERT_EVENTS = ManyRows(insert(events), [column.name for column in events.columns])
_Insert: TypeAlias = sqlite.Insert | postgresql.Insert


def _or_mend(once: _Insert) -> _Insert:
    """What has the same digest is the same content; where it is not, it was damaged."""
    return once.on_conflict_do_update(
        index_elements=[attachments.c.team, attachments.c.digest],
        set_={"content": once.excluded.content},
        where=attachments.c.content != once.excluded.content,
    )


_INSERT_ONCE = {
    name: (_or_mend(dialect.insert(attachments)), dialect.insert(uses).on_conflict_do_nothing())
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql))
}


@dataclass(frozen=True, slots=True)
class Found:
    """Records in order up to the first bad row, the rows from there on, what is wrong, and the last epoch seen."""

    records: list[dict[str, Any]]
    bad: list[Row[*tuple[Any, ...]]]
    problem: str = ""
    epoch: int = 0


def read_log(connection: Connection, stream: Stream, after: int = 0, limit: int | None = None) -> Found:
    """Read at most ``limit`` records after number ``after``, and check each."""
    query = _RECORDS.where(events.c.stream == stream.id, events.c.seq > after).order_by(events.c.seq)
    rows = connection.execute(query.limit(limit) if limit is not None else query).all()
    contents = _contents(connection, stream.key[0], rows)
    records: list[dict[str, Any]] = []
    epoch = 0
    for place, row in enumerate(rows):
        try:
            records.append(_checked(stream.id, after + place + 1, row, contents))
        except DamagedRow as damage:
            problem = f"record {after + place + 1}: {damage}"
            return Found(records, list(rows[place:]), problem, epoch)
        epoch = max(epoch, row.epoch)
    return Found(records, [], "", epoch)


def put_in_quarantine(connection: Connection, stream: Stream, found: Found, now: float) -> None:
    """Take everything behind the good records out of the log, and keep it aside."""
    kept = [
        {
            "stream": stream.id,
            "seq": _number(row.seq),
            "epoch": _number(row.epoch),
            "crc": _number(row.crc),
            "body": _text(row.body),
            "attached": _text(row.attached),
            "cut_at": now,
        }
        for row in found.bad
    ]
    connection.execute(insert(quarantine), kept)
    behind = (events.c.stream == stream.id) & (events.c.seq > len(found.records))
    connection.execute(delete(events).where(behind))


@dataclass(frozen=True, slots=True)
class NewRow:
    """A record that is about to be written."""

    stream: Stream
    seq: int
    epoch: int
    encoded: EncodedRecord


def insert_rows(connection: Connection, rows: Sequence[NewRow]) -> None:
    """Write records, with what they attach: an attachment that the team has already is not written again."""
    if not rows:
        return
    _INSERT_EVENTS.execute(connection, [_values(row) for row in rows])
    contents: dict[tuple[str, str], bytes] = {}
    users: set[tuple[int, str, str]] = set()
    for row in rows:
        team = row.stream.key[0]
        for digest, content in row.encoded.attachments.items():
            contents[team, digest] = content
            users.add((row.stream.id, team, digest))
    insert_contents(connection, contents, users)


def insert_contents(
    connection: Connection, contents: Mapping[tuple[str, str], bytes], users: Collection[tuple[int, str, str]]
) -> None:
    """Write ``contents`` by team and digest, and who uses them (stream, team, digest).

    What is there already stays, and is mended where it is damaged.
    """
    if not contents:
        return
    lock_contents(connection, {team for team, _ in contents})
    once, use_once = _INSERT_ONCE[connection.dialect.name]
    connection.execute(once, [{"team": team, "digest": d, "content": c} for (team, d), c in contents.items()])
    connection.execute(use_once, [{"stream": s, "team": team, "digest": d} for s, team, d in users])


def lock_contents(connection: Connection, teams: Collection[str]) -> None:
    """Be the only one, until the commit, who adds to the teams' contents or takes away from them.

    Else one transaction could delete a content as nobody's that another, not committed yet, has found there and uses.
    A transaction calls it once, after it has locked its streams, so that no two wait for each other. SQLite has one
    writer anyway.
    """
    if connection.dialect.name == "sqlite":
        return
    for team in sorted(teams):
        number = int.from_bytes(hashlib.sha256(team.encode()).digest()[:8], "big", signed=True)
        connection.execute(select(func.pg_advisory_xact_lock(number)))


def _values(row: NewRow) -> dict[str, Any]:
    id, encoded = row.stream.id, row.encoded
    return {
        "stream": id,
        "seq": row.seq,
        "epoch": row.epoch,
        "crc": checksum(id, row.seq, row.epoch, encoded.body, encoded.attached),
        "body": encoded.body,
        "attached": encoded.attached,
    }


def _checked(
    stream: int, expected: int, row: Row[*tuple[Any, ...]], contents: Mapping[str, bytes]
) -> dict[str, Any]:
    seq, epoch, crc, body, attached = row
    if seq != expected:
        raise DamagedRow("it is missing")
    if not isinstance(body, str) or not isinstance(epoch, int) or not isinstance(attached, str | None):
        raise DamagedRow("its row is damaged")
    if crc != checksum(stream, seq, epoch, body, attached):
        raise DamagedRow("its checksum does not hold")
    record = decode_record(body, attached, contents)
    if record.get("seq") != seq:
        raise DamagedRow(f"it says that it is number {record.get('seq')!r}")
    return record


def _contents(connection: Connection, team: str, rows: Iterable[Row[*tuple[Any, ...]]]) -> dict[str, bytes]:
    wanted: set[str] = set()
    for row in rows:
        if isinstance(row.attached, str):
            try:
                wanted.update(digests_of(row.attached))
            except DamagedRow:
                continue  # its checksum will say so
    digests = sorted(wanted)
    contents: dict[str, bytes] = {}
    for start in range(0, len(digests), _DIGESTS_AT_A_TIME):
        part = digests[start : start + _DIGESTS_AT_A_TIME]
        query = select(attachments.c.digest, attachments.c.content).where(
            attachments.c.team == team, attachments.c.digest.in_(part)
        )
        contents.update((digest, bytes(content)) for digest, content in connection.execute(query))
    return contents


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any) -> str | None:
    """What a damaged row holds may be of any type; it is kept as text that every database can store."""
    if value is None or isinstance(value, str):
        return None if value is None else value.replace("\0", "�")
    return repr(value)
