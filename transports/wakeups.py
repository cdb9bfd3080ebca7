"""The wakeups that an actor asked for, in the order in which they are due. Pure; instants are monotonic seconds."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any


@dataclass(order=True, frozen=True, slots=True)
class Wakeup:
    """One wakeup: due at ``at``; ``number`` keeps the order of those due at the same instant."""

    at: float
    number: int
    period: Any = field(compare=False)
    payload: Any = field(compare=False)


class Wakeups:
    """Those that wait."""

    def __init__(self) -> None:
        self._heap: list[Wakeup] = []
        self._added = 0

    def __len__(self) -> int:
        """Give how many wait."""
        return len(self._heap)

    def add(self, at: float, period: Any, payload: Any) -> None:
        """Add one that is due at ``at``; ``period`` and ``payload`` are given back with it."""
        self._added += 1
        heapq.heappush(self._heap, Wakeup(at, self._added, period, payload))

    def next_at(self) -> float | None:
        """Give when the first is due; None when none waits."""
        return self._heap[0].at if self._heap else None

    def is_due(self, now: float) -> bool:
        """True when one is due."""
        return bool(self._heap) and self._heap[0].at <= now

    def take_due(self, now: float) -> Wakeup | None:
        """Remove and give the first that is due, if there is one."""
        return heapq.heappop(self._heap) if self.is_due(now) else None

    def waiting(self) -> list[Wakeup]:
        """List those that wait, first due first."""
        return sorted(self._heap)
