"""Who listens to a conversation's turns, and how far each has heard.

A subscriber is a cursor into the log plus live news. It repeats its request as a sign of life; one that is silent for
``SILENT_S`` is forgotten, so that a dead or slow reader costs a bounded amount. Pure but for ``send``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from callboard.actors.events import Event
from callboard.actors.messages import News

SILENT_S = 5.0


@dataclass(slots=True)
class Subscriber:
    """One reader of one turn. ``turn_id`` is its request id; ``seq`` the last number it was sent."""

    turn_id: str
    reply_to: Any
    seq: int
    heard_at: float


class Subscribers:
    """The readers, by request id. ``send(subscriber, news)`` puts the news in the mail."""

    def __init__(self, send: Callable[[Subscriber, News], None]) -> None:
        self._send = send
        self._readers: dict[str, Subscriber] = {}

    def join(self, turn_id: str, reply_to: Any, after: int, log: Iterable[Event], now: float) -> None:
        """Take the reader up (again), and send what it has not seen of the turn on from its start."""
        self._readers[turn_id] = reader = Subscriber(turn_id, reply_to, after, now)
        self._give(reader, of_turn_on(turn_id, log), sign_of_life=True)

    def publish(self, events: tuple[Event, ...], now: float) -> None:
        """Send logged events to each reader whose turn has begun with or before them."""
        for reader in list(self._readers.values()):
            if now - reader.heard_at > SILENT_S:
                del self._readers[reader.turn_id]
            elif reader.seq > 0:
                self._give(reader, events)
            else:
                self._give(reader, of_turn_on(reader.turn_id, events))

    def live(self, turn_id: str, event: Event) -> None:
        """Send a live event to the reader of that turn, once it has the turn's start."""
        reader = self._readers.get(turn_id)
        if reader is not None and reader.seq > 0:
            self._send(reader, News((event,)))

    def drop(self, turn_id: str) -> Subscriber | None:
        """Forget the reader and give it back."""
        return self._readers.pop(turn_id, None)

    def _give(self, reader: Subscriber, events: Iterable[Event], sign_of_life: bool = False) -> None:
        fresh = tuple(e for e in events if e.seq is not None and e.seq > reader.seq)
        if fresh:
            reader.seq = fresh[-1].seq or reader.seq
        if fresh or sign_of_life:
            self._send(reader, News(fresh))
        if any(e.terminal and getattr(e, "turn_id", None) == reader.turn_id for e in fresh):
            self._readers.pop(reader.turn_id, None)


def of_turn_on(turn_id: str, events: Iterable[Event]) -> list[Event]:
    """Give the events from the turn's start up to its ending."""
    found: list[Event] = []
    for event in events:
        if found or (event.type == "turn_started" and getattr(event, "turn_id", None) == turn_id):
            found.append(event)
            if event.terminal and getattr(event, "turn_id", None) == turn_id:
                break
    return found
