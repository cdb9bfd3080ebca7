"""The requests a session has in flight: ids, deadlines and whom each one is for.

It hands out ids and matches answers to them, leniently (``jsonrpc.own_id``). It decides nothing about what an
answer means; the session machine does.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from callboard.transports import jsonrpc
from callboard.transports.jsonrpc import JsonId, own_id


class Kind(Enum):
    """What a request is; the value is its method."""

    DISCOVER = "server/discover"
    INITIALIZE = "initialize"
    LIST = "tools/list"
    CALL = "tools/call"
    LISTEN = "subscriptions/listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """One request without an answer. ``deadline`` None: it may stay open; ``ref`` is the call's name."""

    id: int
    kind: Kind
    deadline: float | None
    ref: Hashable = None
    cursor: str | None = None
    progress: float | None = None
    wants_progress: bool = False


class RequestsInFlight:
    """The table of pending requests of one process. Ids count from 1 and are never used again."""

    def __init__(self) -> None:
        self._last_id = 0
        self._pending: dict[int, Pending] = {}
        self._ids: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_id(self) -> int:
        """Give the id that the next request will have."""
        return self._last_id + 1

    def open(self, pending: Pending, params: dict[str, Any]) -> bytes:
        """Register a request, whose id must be ``next_id``, and write its line; raises NotSerialisable."""
        data = jsonrpc.encode_request(pending.id, pending.kind.value, params)
        self._last_id = pending.id
        self._pending[pending.id] = pending
        if pending.kind is Kind.CALL:
            self._ids[pending.ref] = pending.id
        return data

    def find(self, ref: Hashable) -> int | None:
        """Give the id of the call that its caller named ``ref``."""
        return self._ids.get(ref)

    def get(self, message_id: JsonId | None) -> Pending | None:
        """Give the request that an id from the peer means."""
        key = own_id(message_id)
        return None if key is None else self._pending.get(key)

    def take(self, message_id: JsonId | None) -> Pending | None:
        """Close the request that an id from the peer means and give it; None when it is not open."""
        pending = self.get(message_id)
        if pending is not None:
            del self._pending[pending.id]
            if pending.kind is Kind.CALL:
                del self._ids[pending.ref]
        return pending

    def take_only(self) -> Pending | None:
        """Close the one request in flight and give it; None unless there is exactly one."""
        return self.take(next(iter(self._pending))) if len(self._pending) == 1 else None

    def take_overdue(self, now: float) -> list[Pending]:
        """Close the requests whose deadline has come and give them, oldest first."""
        overdue = [key for key, p in self._pending.items() if p.deadline is not None and p.deadline <= now]
        return [pending for key in overdue if (pending := self.take(key)) is not None]

    def keep_without_deadline(self, pending: Pending) -> None:
        """Put a request back that may still be answered late."""
        self._pending[pending.id] = replace(pending, deadline=None)

    def progressed(self, pending: Pending, progress: float) -> None:
        """Remember how far a request is."""
        self._pending[pending.id] = replace(pending, progress=progress)

    def clear(self) -> list[Pending]:
        """Close all requests and give them."""
        closed = list(self._pending.values())
        self._pending.clear()
        self._ids.clear()
        return closed

    def next_deadline(self) -> float | None:
        """Give the earliest deadline."""
        return min((p.deadline for p in self._pending.values() if p.deadline is not None), default=None)
