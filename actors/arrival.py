"""The messages that wait for their turn in one conversation: bounded, in order, each once. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from callboard.actors.messages import Ask
from callboard.supervisor.envelope import Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One message that is not accepted yet."""

    turn_id: str
    ask: Ask
    envelope: Envelope


class Arrivals:
    """The queue; at most ``limit`` wait."""

    def __init__(self, limit: int = 16) -> None:
        self.limit = limit
        self._waiting: OrderedDict[str, Arrival] = OrderedDict()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, arrival: Arrival) -> bool:
        """Queue the message, or renew it where it waits already; False when the queue is full."""
        if arrival.turn_id not in self._waiting and len(self._waiting) >= self.limit:
            return False
        self._waiting[arrival.turn_id] = arrival
        return True

    def take(self) -> Arrival | None:
        """Remove and give the oldest, None when nothing waits."""
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def clear(self) -> list[Arrival]:
        """Remove and give all."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        return waiting
