"""Taking logs out of the journal: one, or those that have grown old, with everything that only they need.

An attachment goes with the last log that uses it. Called by ``storage/journal.py``, inside its transaction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, or_, select

from callboard.storage.schema import attachments, events, quarantine, streams, uses

AT_A_TIME = 200


def remove(connection: Connection, stream: int) -> None:
    """Delete a stream's rows, and the attachments that no other stream of its team uses.

    Both stream and team must be locked by this transaction.
    """
    used = connection.execute(select(uses.c.team, uses.c.digest).where(uses.c.stream == stream)).all()
    for table in (events, quarantine, uses):
        connection.execute(delete(table).where(table.c.stream == stream))
    for team, digest in used:
        elsewhere = exists().where(uses.c.team == team, uses.c.digest == digest)
        orphan = (attachments.c.team == team) & (attachments.c.digest == digest) & ~elsewhere
        connection.execute(delete(attachments).where(orphan))
    connection.execute(delete(streams).where(streams.c.id == stream))


def expired(
    connection: Connection, now: float, default_age_s: float | None, per_team: Mapping[str, float]
) -> list[Row[*tuple[Any, ...]]]:
    """Lock and give some of the streams that are older than their team's age, the oldest first.

    None with a turn under way, and none that another transaction has in hand.
    """
    ages = {team: age_s for team, age_s in per_team.items() if math.isfinite(age_s)}
    old = [(streams.c.team == team) & (streams.c.updated_at < now - age_s) for team, age_s in ages.items()]
    if default_age_s is not None:
        old.append(streams.c.team.not_in(list(per_team)) & (streams.c.updated_at < now - default_age_s))
    query = select(streams.c.id, streams.c.team, streams.c.kind, streams.c.name).where(
        or_(False, *old), streams.c.state != "unfinished"
    )
    query = query.order_by(streams.c.updated_at).limit(AT_A_TIME).with_for_update(skip_locked=True)
    return list(connection.execute(query))
