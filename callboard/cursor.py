"""How far a reader of a conversation has got, and what it is given of the news that come. Pure.

News may be lost, repeated or late. What comes out are the logged events in order, each once, with the live ones between
them; the next request says how far that is. Used by ``callboard/conversation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from callboard.actors.events import Event, StepFinished, TextDelta, TextDiscarded, TurnResumed
from callboard.actors.messages import News
from callboard.actors.subscribers import LIVE_WINDOW, WINDOW, State


class Cursor:
    """``seq`` is the number of the last logged event that was given, ``heard`` the number of the last news.

    ``begins_anywhere``: the first logged event may have any number (a turn's start).
    """

    def __init__(self, after: int = 0, *, begins_anywhere: bool = False) -> None:
        self.seq = after
        self.heard = 0
        self.state: State = "active"
        self.is_behind = False
        self._begins_anywhere = begins_anywhere
        self._told = (after, 0)
        self._has_text = False

    def take(self, news: News) -> Iterator[Event]:
        """Give the events that are new, and of the live ones those that make sense here."""
        self.heard = news.number
        for event in news.events:
            if event.seq is None:
                yield from self._live(event, news)
            elif event.seq == self.seq + 1 or (self._begins_anywhere and self.seq == 0):
                yield from self._logged(event)
        self.is_behind = news.upto > self.seq
        self.state = "active" if self.is_behind else news.state

    @property
    def has_to_tell(self) -> bool:
        """True when the other side waits, or will soon, to hear how far this one is, or that something was lost."""
        seq, heard = self._told
        return self.is_behind or self.seq - seq >= WINDOW // 2 or self.heard - heard >= LIVE_WINDOW // 2

    def told(self) -> None:
        """The other side has been told."""
        self._told = (self.seq, self.heard)
        self.is_behind = False

    def _logged(self, event: Event) -> Iterator[Event]:
        assert event.seq is not None
        self.seq = event.seq
        if isinstance(event, TurnResumed) and self._has_text:
            yield TextDiscarded(turn_id=event.turn_id, reason="resumed")
        if isinstance(event, StepFinished | TurnResumed) or event.terminal:
            self._has_text = False
        yield event

    def _live(self, event: Event, news: News) -> Iterator[Event]:
        """A live event belongs after the last logged one that was sent before it."""
        if news.upto > self.seq or (isinstance(event, TextDiscarded) and not self._has_text):
            return
        if isinstance(event, TextDelta | TextDiscarded):
            self._has_text = isinstance(event, TextDelta)
        yield event
