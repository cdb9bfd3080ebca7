"""An actor's timers: many instants, one Thespian wakeup.

Thespian delivers overdue wakeups in reverse order and cannot cancel one (THESPIAN B8). So the actor keeps its own
heap, asks for a wakeup at the earliest instant, and lets whatever wakeup comes run all that is due, in order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(order=True, slots=True)
class Timer:
    """One instant and what to do then. ``cancel`` makes it forgotten."""

    at: float
    number: int
    action: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        """Do not run the action."""
        self.action = None


class Timers:
    """The heap. Pure but for the actions that it runs."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._numbers = itertools.count()

    def add(self, at: float, action: Callable[[], None]) -> Timer:
        """Remember to run ``action`` at the instant ``at``."""
        timer = Timer(at, next(self._numbers), action)
        heapq.heappush(self._heap, timer)
        return timer

    def next_at(self) -> float | None:
        """Give the earliest instant that still matters, None when there is none."""
        while self._heap and self._heap[0].action is None:
            heapq.heappop(self._heap)
        return self._heap[0].at if self._heap else None

    def take_due(self, now: float) -> list[Callable[[], None]]:
        """Remove and give the actions that are due, earliest first."""
        due: list[Callable[[], None]] = []
        while self._heap and self._heap[0].at <= now:
            timer = heapq.heappop(self._heap)
            if timer.action is not None:
                due.append(timer.action)
        return due
