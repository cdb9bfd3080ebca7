"""Many appends as one transaction: each is taken or refused for itself, and all that are taken are written together.

It decides what an append may do: only the present owner's epoch, numbers without a gap, and a record that is there
already only with the same content (then it is passed over). Called by ``storage/journal.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from callboard.storage.journal_log import NewRow, insert_rows, read_log
from callboard.storage.journal_outline import advance
from callboard.storage.journal_rows import EncodedRecord, encode_record, same_record
from callboard.storage.journal_streams import Key, Stream, Streams
from callboard.storage.journal_terms import (
    CONFLICT,
    STALE_EPOCH,
    UNKNOWN,
    Append,
    JournalError,
    Record,
)


class Batch:
    """The appends of one transaction; ``found`` are the streams that they speak of."""

    def __init__(self, connection: Connection, found: dict[Key, Stream]) -> None:
        self._connection = connection
        self._before = found
        self._after: dict[Key, Stream] = {}
        self._rows: list[NewRow] = []
        self._written: dict[tuple[int, int], Record] = {}

    def take(self, append: Append, now: float) -> int:
        """Plan one append; gives the log's last number, or raises JournalError and leaves the others as they are."""
        key = (append.team, append.kind, append.conversation)
        stream = self._after.get(key) or self._before.get(key)
        if stream is None:
            raise unknown(append.conversation)
        check_epoch(stream, append.epoch)
        fresh = self._fresh(append.conversation, stream, append.records)
        if not fresh:
            return stream.last_seq
        encoded = [encode_record(record) for record in fresh]
        last = self._plan(stream, fresh, encoded)
        self._after[key] = Stream(
            id=stream.id,
            key=key,
            epoch=stream.epoch,
            last_seq=last,
            damaged=False,  # the owner has seen the damage, and says how it goes on
            created_at=stream.created_at,
            updated_at=time_of(fresh[-1], now),
            outline=advance(stream.outline, fresh),
        )
        return last

    def write(self, streams: Streams) -> list[Stream]:
        """Write all that was taken; gives the streams as they are once it is committed."""
        insert_rows(self._connection, self._rows)
        streams.update(self._connection, [(self._before[key], stream) for key, stream in self._after.items()])
        return [*self._before.values(), *self._after.values()]

    def _plan(self, stream: Stream, fresh: Sequence[Record], encoded: Sequence[EncodedRecord]) -> int:
        last = stream.last_seq
        for record, form in zip(fresh, encoded, strict=True):
            last += 1
            self._rows.append(NewRow(stream, last, stream.epoch, form))
            self._written[stream.id, last] = record
        return last

    def _fresh(self, conversation: str, stream: Stream, records: Sequence[Record]) -> Sequence[Record]:
        """Give the records that are not in the log yet."""
        first = records[0].get("seq") if records else 1
        for place, record in enumerate(records):
            seq = record.get("seq")
            if type(seq) is not int or type(first) is not int or first < 1 or seq != first + place:
                raise JournalError(
                    CONFLICT, f"{conversation!r}: seq {seq!r} at place {place} is out of order"
                )
        assert isinstance(first, int)
        if first > stream.last_seq + 1:
            message = f"{conversation!r}: seq {first} leaves a gap, the log ends at {stream.last_seq}"
            raise JournalError(CONFLICT, message)
        known = stream.last_seq + 1 - first if records else 0
        if known > 0:
            self._compare(conversation, stream, records[:known])
        return records[known:]

    def _compare(self, conversation: str, stream: Stream, records: Sequence[Record]) -> None:
        first: int = records[0]["seq"]
        found = read_log(self._connection, stream, first - 1, len(records)).records
        old = {first + place: record for place, record in enumerate(found)}
        for record in records:
            seq = record["seq"]
            there: Any = self._written.get((stream.id, seq)) or old.get(seq)
            if there is None or not same_record(there, record):
                raise JournalError(CONFLICT, f"{conversation!r}: seq {seq} is written with other content")


def check_epoch(stream: Stream, epoch: int) -> None:
    """Raise JournalError ``stale_epoch`` for another epoch than the present owner's."""
    if epoch != stream.epoch or epoch < 1:
        message = f"{stream.key[2]!r} is at epoch {stream.epoch}, not {epoch}: open it again"
        raise JournalError(STALE_EPOCH, message)


def unknown(conversation: str) -> JournalError:
    """The error for a conversation that the team does not have."""
    return JournalError(UNKNOWN, f"there is no conversation {conversation!r}")


def time_of(record: Record, now: float) -> float:
    """Give a record's own time (``at``, ISO 8601) as Unix seconds, never later than ``now``; else ``now``."""
    at = record.get("at")
    if not isinstance(at, str):
        return now
    try:
        return min(now, datetime.fromisoformat(at).timestamp())
    except (ValueError, OverflowError, OSError):
        return now
