"""Logs in lists: a team's, page by page, and those that wait to be revived. Called by ``storage/journal.py``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, select, tuple_

from callboard.storage.journal_outline import line_of
from callboard.storage.journal_streams import stream_of
from callboard.storage.journal_terms import CONVERSATION, INVALID, JournalError, Summary
from callboard.storage.schema import streams


def page(
    connection: Connection, team: str, kind: str, user: str | None, limit: int, before: str | None
) -> list[Summary]:
    """Give a team's logs that have records, the last changed first, from behind the cursor ``before``."""
    query = select(streams).where(streams.c.team == team, streams.c.kind == kind, streams.c.last_seq > 0)
    if user is not None:
        query = query.where(streams.c.owner == line_of(user, len(user)))
    if before is not None:
        query = query.where(tuple_(streams.c.updated_at, streams.c.id) < tuple_(*_position(before)))
    query = query.order_by(streams.c.updated_at.desc(), streams.c.id.desc()).limit(limit)
    return [_summary(row) for row in connection.execute(query)]


def unfinished(connection: Connection) -> list[tuple[str, str]]:
    """Give (conversation, team) of the conversations whose turn is open, in the order of the teams' names."""
    query = select(streams.c.name, streams.c.team).where(
        streams.c.kind == CONVERSATION, streams.c.state == "unfinished"
    )
    found = connection.execute(query.order_by(streams.c.team, streams.c.name))
    return [(row.name, row.team) for row in found]


def _position(cursor: str) -> tuple[float, int]:
    at, _, id = cursor.partition("/")
    try:
        return float(at), int(id)
    except ValueError as fault:
        raise JournalError(
            INVALID, f"{cursor!r} is no cursor of a list: give the last entry's own"
        ) from fault


def _summary(row: Row[*tuple[Any, ...]]) -> Summary:
    stream = stream_of(row)
    team, _kind, name = stream.key
    outline = stream.outline
    return Summary(
        conversation=name,
        team=team,
        user=outline.owner,
        template=outline.template,
        created_at=_iso(stream.created_at),
        updated_at=_iso(stream.updated_at),
        events=stream.last_seq,
        turns=outline.turns,
        title=outline.title,
        state=outline.state,
        cursor=f"{row.updated_at!r}/{row.id}",
    )


def _iso(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")
