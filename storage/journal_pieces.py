"""Contents that stand beside a log without being part of a record: an owner's to put there, piece by piece, and
readers' to get by digest.

They lie among the attachments, with the log as their user: they go with it, and a team has each once. A piece is got
through a log that uses it, so a digest that somebody made up, or saw elsewhere, gives nothing. Called by
``storage/journal*.py``, inside their transactions.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence

from sqlalchemy import Connection, select

from callboard.storage.journal_log import insert_contents
from callboard.storage.journal_rows import DamagedRow, digests_of
from callboard.storage.journal_streams import Stream
from callboard.storage.journal_terms import INVALID, STORAGE_CORRUPT, UNKNOWN, JournalError
from callboard.storage.schema import attachments, events, uses

MAX_PIECE = 4 * 1024 * 1024


def put_pieces(connection: Connection, stream: Stream, pieces: Sequence[bytes]) -> None:
    """Put pieces beside the stream; one that is there already stays, if whole. Raises JournalError ``invalid``."""
    for piece in pieces:
        if not isinstance(piece, bytes) or len(piece) > MAX_PIECE:
            raise JournalError(INVALID, f"a piece is at most {MAX_PIECE} bytes")
    team = stream.key[0]
    contents = {(team, hashlib.sha256(piece).hexdigest()): piece for piece in pieces}
    insert_contents(connection, contents, {(stream.id, team, digest) for team, digest in contents})


def get_piece(connection: Connection, stream: Stream, digest: str) -> bytes:
    """Give a piece that the stream uses; raises JournalError ``unknown``, or ``storage_corrupt`` for a damaged one."""
    kept = (uses.c.team == attachments.c.team) & (uses.c.digest == attachments.c.digest)
    query = (
        select(attachments.c.content)
        .select_from(uses.outerjoin(attachments, kept))
        .where(uses.c.stream == stream.id, uses.c.digest == digest)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise JournalError(UNKNOWN, f"conversation {stream.key[2]!r} has no content {digest[:12]}")
    if not isinstance(row.content, bytes) or hashlib.sha256(row.content).hexdigest() != digest:
        how = "missing" if row.content is None else "damaged"
        raise JournalError(STORAGE_CORRUPT, f"the content {digest[:12]} of {stream.key[2]!r} is {how}")
    return row.content


def loose_pieces(connection: Connection, stream: Stream) -> list[str]:
    """Give the digests of the pieces that the stream uses outside its records."""
    used = set(connection.execute(select(uses.c.digest).where(uses.c.stream == stream.id)).scalars())
    rows = select(events.c.attached).where(events.c.stream == stream.id, events.c.attached.is_not(None))
    for attached in connection.execute(rows).scalars():
        with contextlib.suppress(DamagedRow):  # it ends the log, which is said elsewhere
            used.difference_update(digests_of(attached))
    return sorted(used)
