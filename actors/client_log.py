"""What a client knows of its conversation: the events as far as they are durable, and what follows from them.

A fold over the log. It writes nothing and decides nothing; the client actor feeds it, its readers and turns look into
it. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from callboard.actors.events import ConversationClosed, ConversationOpened, Event, TurnStarted
from callboard.actors.toolbox import Toolbox
from callboard.tools.decision import Rules


@dataclass(slots=True)
class Span:
    """Where a turn stands in the log: the number of its start, and of its ending once it has one."""

    first: int
    last: int | None = None


class ConversationLog:
    """``events`` are in order, numbered without gaps."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.events: list[Event] = []
        self.toolbox = Toolbox(rules or Rules())
        self.is_closed = False
        self._opened: ConversationOpened | None = None
        self._turns: dict[str, Span] = {}

    def remember(self, events: tuple[Event, ...]) -> None:
        """Take further durable events into account."""
        for event in events:
            self.events.append(event)
            self.toolbox.apply(event)
            match event:
                case ConversationOpened():
                    self._opened = self._opened or event
                case ConversationClosed():
                    self.is_closed = True
                case TurnStarted(turn_id=turn_id):
                    self._turns.setdefault(turn_id, Span(event.seq or 0))
                case _ if event.terminal:
                    span = self._turns.get(getattr(event, "turn_id", ""))
                    if span is not None:
                        span.last = span.last or event.seq

    @property
    def opened(self) -> ConversationOpened:
        """The opening, with which every log begins."""
        assert self._opened is not None, "a log begins with its opening"
        return self._opened

    @property
    def is_empty(self) -> bool:
        """True before the conversation's opening is durable."""
        return self._opened is None

    @property
    def last_seq(self) -> int:
        """The number of the last event, 0 when there is none."""
        return self.events[-1].seq or 0 if self.events else 0

    def span(self, turn_id: str) -> Span | None:
        """Say where the turn stands; None when it was never accepted."""
        return self._turns.get(turn_id)

    def after(self, seq: int, upto: int) -> tuple[Event, ...]:
        """Give the events after number ``seq`` up to number ``upto``."""
        if not self.events:
            return ()
        first = self.events[0].seq or 1
        return tuple(self.events[max(0, seq + 1 - first) : max(0, upto + 1 - first)])


__all__ = ["ConversationLog", "Span"]
