"""The requests an actor waits for: matched by id, sent again until answered, given up at their deadline.

Mail is at most once: what was queued at an actor that died is gone, so whatever matters is asked again under the
same request id, and its receiver knows it by that. A late or repeated answer is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.supervisor.envelope import Failure
from callboard.supervisor.timers import Timer

Then: TypeAlias = Callable[[Any], None]
UNANSWERED = "unanswered"


@dataclass(slots=True)
class Pending:
    """One request on its way. ``target`` is a name in the process table or an address."""

    request_id: str
    target: Any
    body: Any
    then: Then
    deadline: float
    retry_s: float
    principal: Any = None
    expiry: Timer | None = None
    again: Timer | None = None


class Requests:
    """What is on its way, by request id; never more than ``limit``."""

    def __init__(self, limit: int = 10_000) -> None:
        self._pending: dict[str, Pending] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, pending: Pending) -> bool:
        """Remember a request; False when there are too many (the caller must fail it)."""
        if len(self._pending) >= self._limit:
            return False
        self._pending[pending.request_id] = pending
        return True

    def get(self, request_id: str) -> Pending | None:
        """Look a request up; None once it is answered or given up."""
        return self._pending.get(request_id)

    def settle(self, request_id: str, body: Any) -> bool:
        """Hand the answer to who waits for it; False when nobody does (late, repeated, foreign)."""
        pending = self._take(request_id)
        if pending is None:
            return False
        pending.then(body)
        return True

    def forget(self, request_id: str) -> None:
        """Wait no longer; the answer will be dropped."""
        self._take(request_id)

    def _take(self, request_id: str) -> Pending | None:
        pending = self._pending.pop(request_id, None)
        if pending is not None:
            for timer in (pending.expiry, pending.again):
                if timer is not None:
                    timer.cancel()
        return pending

    def expire(self, request_id: str) -> None:
        """Fail the request as unanswered."""
        pending = self._pending.get(request_id)
        if pending is not None:
            message = f"{pending.target} did not answer in time"
            self.settle(request_id, Failure(kind=UNANSWERED, message=message, retryable=True))
