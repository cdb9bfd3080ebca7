"""The mail that waits for one target, first in first out, bounded in number and bytes. Pure bookkeeping.

The sender puts in what the target's socket did not take, asks for the next batch that fits one datagram, and drops
it when it is gone. Nothing is ever dropped here: what does not fit is refused, and its sender is told.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from callboard.transports.datagrams import LENGTH_BYTES, MAX_INLINE
from callboard.transports.mail_errors import TargetFull

MAX_MESSAGES = 65_536
MAX_BYTES = 256 * 1024 * 1024
RESERVE = 4096


@dataclass(frozen=True, slots=True)
class Parcel:
    """One pickled message under way: its chunks, their size in bytes, and what its sender knows it by."""

    chunks: tuple[bytes, ...]
    size: int
    intent: Any

    @property
    def is_large(self) -> bool:
        """True when it does not travel in a datagram but in a memory file."""
        return self.size > MAX_INLINE


class Outbox:
    """What waits for one target."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._parcels: deque[Parcel] = deque()
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self.bytes = 0

    def __len__(self) -> int:
        """Give the number of messages that wait."""
        return len(self._parcels)

    def add(self, parcel: Parcel, *, urgent: bool = False) -> None:
        """Put a parcel at the end. ``urgent`` ones (of the actor system itself) may use the reserve.

        Raises TargetFull, and then it was not taken. An empty outbox takes any single parcel.
        """
        limit = self._max_messages + (RESERVE if urgent else 0)
        over = len(self._parcels) >= limit or (not urgent and self.bytes + parcel.size > self._max_bytes)
        if self._parcels and over:
            raise TargetFull(
                f"{len(self._parcels)} messages ({self.bytes} bytes) wait for it already; it does not take its mail"
            )
        self._parcels.append(parcel)
        self.bytes += parcel.size

    def batch(self) -> list[Parcel]:
        """Give the first parcels that go in one datagram: some small ones, or one large one; empty when none wait."""
        chosen: list[Parcel] = []
        room = MAX_INLINE
        for parcel in self._parcels:
            if parcel.is_large:
                return chosen or [parcel]
            room -= parcel.size + LENGTH_BYTES
            if chosen and room < 0:
                break
            chosen.append(parcel)
        return chosen

    def drop(self, count: int) -> None:
        """Remove the first ``count`` parcels: they were sent."""
        for _ in range(count):
            self.bytes -= self._parcels.popleft().size

    def empty(self) -> list[Parcel]:
        """Remove all parcels and give them: their target is gone."""
        left = list(self._parcels)
        self._parcels.clear()
        self.bytes = 0
        return left

    def parcels(self) -> list[Parcel]:
        """List what waits."""
        return list(self._parcels)
