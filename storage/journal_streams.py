"""The streams' own rows: who owns a log now, how far it goes, and what a list says of it.

The one process that has a SQLite journal remembers them, bounded; on PostgreSQL another process may have been there,
so they are read, and locked, in each transaction. Epochs come from one counter: none is ever issued twice, not even to
a conversation that was deleted and made again. Called by ``storage/journal*.py``, inside their transactions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, bindparam, case, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from callboard.storage.journal_outline import Outline
from callboard.storage.journal_sql import ManyRows
from callboard.storage.journal_terms import INVALID, JournalError, State
from callboard.storage.schema import epochs, streams

Key: TypeAlias = tuple[str, str, str]
"""A stream's team, kind and name."""

_REMEMBERED = 10_000
_MAX_NAME = 200
_NO_TIME_S = 1e11

_FIND = select(streams).where(
    tuple_(streams.c.team, streams.c.kind, streams.c.name).in_(bindparam("keys", expanding=True))
)
_FIND_AND_LOCK = _FIND.with_for_update().order_by(streams.c.id)
_INSERT_ONCE = {
    "sqlite": sqlite.insert(streams).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(streams).on_conflict_do_nothing(),
}
_UPDATE = ManyRows(
    update(streams)
    .where(streams.c.id == bindparam("of"), streams.c.last_seq == bindparam("was"))
    .values({name: bindparam(f"new_{name}") for name in ("epoch", "last_seq", "damaged", "updated_at")})
    .values({name: bindparam(f"new_{name}") for name in ("state", "owner", "template", "title", "turns")})
)
_SEEN: Any = bindparam("seen")
_NEXT_EPOCH = (
    update(epochs)
    .where(epochs.c.id == 1)
    .values(last=case((epochs.c.last < _SEEN, _SEEN), else_=epochs.c.last) + 1)
    .returning(epochs.c.last)
)


class Diverged(Exception):
    """What was remembered of a stream is not what its row says: somebody else wrote it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream's row."""

    id: int
    key: Key
    epoch: int
    last_seq: int
    damaged: bool
    created_at: float
    updated_at: float
    outline: Outline


class Streams:
    """All streams. ``remembers``: nobody else writes, so what was read once still holds."""

    def __init__(self, *, remembers: bool) -> None:
        self._remembers = remembers
        self._known: OrderedDict[Key, Stream] = OrderedDict()

    def find(self, connection: Connection, keys: Collection[Key], *, lock: bool = True) -> dict[Key, Stream]:
        """Give those of the streams that exist; ``lock`` keeps others from writing them until the commit."""
        found = {key: self._known[key] for key in keys if key in self._known} if self._remembers else {}
        missing = sorted(key for key in keys if key not in found)
        for key in missing:
            _check_key(key)
        if missing:
            for row in connection.execute(_FIND_AND_LOCK if lock else _FIND, {"keys": missing}):
                stream = stream_of(row)
                found[stream.key] = stream
        return found

    def add(self, connection: Connection, key: Key, now: float) -> Stream:
        """Make a stream without records and owner, which was looked for and not found."""
        team, kind, name = key
        row = {
            "team": team, "kind": kind, "name": name, "epoch": 0, "last_seq": 0, "damaged": False, "state": "open",
            "owner": "", "template": "", "title": "", "turns": 0, "created_at": now, "updated_at": now,
        }  # fmt: skip
        insert_once = _INSERT_ONCE[connection.dialect.name].returning(streams.c.id)
        id = connection.execute(insert_once, row).scalar()
        if id is None:  # another process made it in this moment
            return self.find(connection, [key])[key]
        return Stream(id, key, 0, 0, False, now, now, Outline())

    def next_epoch(self, connection: Connection, seen: int) -> int:
        """Issue an epoch above all that were issued, and above ``seen``, which a log speaks of."""
        issued = connection.execute(_NEXT_EPOCH, {"seen": seen}).scalar()
        if issued is None:  # the counter's row was lost to damage
            issued = seen + 1
            connection.execute(insert(epochs), {"id": 1, "last": issued})
        return int(issued)

    def update(self, connection: Connection, changes: Iterable[tuple[Stream, Stream]]) -> None:
        """Write changed streams, given as (before, after); raises Diverged."""
        rows = [_change(before, after) for before, after in changes]
        if rows and _UPDATE.execute(connection, rows) != len(rows):
            raise Diverged

    def remember(self, changed: Iterable[Stream]) -> None:
        """Keep what has been committed."""
        if not self._remembers:
            return
        for stream in changed:
            self._known[stream.key] = stream
            self._known.move_to_end(stream.key)
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def forget(self, keys: Iterable[Key] | None = None) -> None:
        """Drop what is remembered, of these streams or of all."""
        if keys is None:
            self._known.clear()
            return
        for key in keys:
            self._known.pop(key, None)


def mark_damaged(connection: Connection) -> None:
    """Note that the end of each log with a turn under way may be lost; its next owner is told."""
    under_way = streams.c.state.in_(("unfinished", "suspended"))
    connection.execute(update(streams).where(under_way).values(damaged=True))


def stream_of(row: Row[*tuple[Any, ...]]) -> Stream:
    """Give the stream that a row of ``streams`` says. A damaged row may say anything: what cannot be, is not said."""
    outline = Outline(
        _state(row.state), _text(row.owner), _text(row.template), _text(row.title), _number(row.turns)
    )
    return Stream(
        row.id,
        (_text(row.team), _text(row.kind), _text(row.name)),
        _number(row.epoch),
        _number(row.last_seq),
        bool(row.damaged) or not isinstance(row.last_seq, int),
        _instant(row.created_at),
        _instant(row.updated_at),
        outline,
    )


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _state(value: object) -> State:
    return value if value in ("closed", "unfinished", "suspended") else "open"


def _instant(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < _NO_TIME_S else 0.0


def _change(before: Stream, after: Stream) -> dict[str, Any]:
    outline = after.outline
    return {
        "of": before.id,
        "was": before.last_seq,
        "new_epoch": after.epoch,
        "new_last_seq": after.last_seq,
        "new_damaged": after.damaged,
        "new_updated_at": after.updated_at,
        "new_state": outline.state,
        "new_owner": outline.owner,
        "new_template": outline.template,
        "new_title": outline.title,
        "new_turns": outline.turns,
    }


def _check_key(key: Key) -> None:
    team, _kind, name = key
    for what, value in (("conversation id", name), ("team", team)):
        is_text = "\0" not in value and value.encode("utf-8", "replace").decode() == value
        if not is_text or len(value) > _MAX_NAME:
            message = f"a {what} is text of up to {_MAX_NAME} characters, got {value[:80]!r}"
            raise JournalError(INVALID, message)
    if not name:
        raise JournalError(INVALID, "a conversation id must not be empty")
