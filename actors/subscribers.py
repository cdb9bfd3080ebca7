"""Who reads a conversation, and how far each has got: cursors into the log, with live news at its end.

A reader follows the conversation, or one turn of it (who asked). It repeats its request as a sign of life, saying how
far it got, and is sent at most a window ahead of that; older events come from the log. One that is silent for
``SILENT_S`` is forgotten. So a slow or dead reader costs the turn nothing, and a bounded amount. Pure but for ``send``.

The text of the present step is kept until the step is in the log: who comes in the middle of it, or falls behind, is
given in one piece what it has not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from callboard.actors.client_log import ConversationLog
from callboard.actors.events import Event, StepFinished, TextDelta, TextDiscarded
from callboard.actors.messages import News

WINDOW = 64
LIVE_WINDOW = 128
MAX_READERS = 256
SILENT_S = 5.0
MAX_STREAMED = 1024 * 1024

State: TypeAlias = Literal["active", "idle", "resting"]


@dataclass(slots=True)
class Reader:
    """One reader. ``turn_id`` is set when it reads one turn only; ``acked`` and ``sent`` are sequence numbers.

    ``number`` counts the news sent to it, ``heard`` those that it is known to have; ``shown`` the pieces of the
    present step's text that it was sent, and ``discard`` says why earlier text does not count, until it was told.
    """

    request_id: str
    reply_to: Any
    turn_id: str | None
    acked: int
    sent: int
    heard_at: float
    number: int = 0
    heard: int = 0
    shown: int = 0
    discard: str = ""


class Subscribers:
    """The readers of one conversation.

    ``send(reader, news)`` puts the news in the mail; ``is_idle`` says whether no turn is under way or waits.
    """

    def __init__(
        self, log: ConversationLog, send: Callable[[Reader, News], None], is_idle: Callable[[], bool]
    ) -> None:
        self._log = log
        self._send = send
        self._is_idle = is_idle
        self._readers: dict[tuple[str, str], Reader] = {}
        self._published = 0
        self._turn_id = ""
        self._text: list[str] = []
        self._size = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._readers)

    # ------------------------------------------------------------ readers
    def join(
        self,
        request_id: str,
        reply_to: Any,
        now: float,
        *,
        after: int = 0,
        heard: int = 0,
        turn_id: str | None = None,
    ) -> bool:
        """Take the reader up, or hear how far it got, and send what it may have next (at least a sign of life).

        Who says the same number twice has lost what was sent after it, and is sent it again. False: there are too many.
        """
        key = (request_id, str(reply_to))
        reader = self._readers.get(key)
        if reader is None and len(self._living(now)) >= MAX_READERS:
            return False
        if reader is None:
            reader = self._readers[key] = Reader(request_id, reply_to, turn_id, after, after, now)
        elif after <= reader.acked:
            reader.sent = after
        reader.sent = max(reader.sent, after)
        reader.acked, reader.heard_at, reader.heard = after, now, min(heard, reader.number)
        if not self._pump(reader):
            self._give(reader, ())
        self._show(reader)
        return True

    def drop(self, turn_id: str) -> list[Reader]:
        """Forget the readers of that turn and give them back."""
        dropped = [reader for reader in self._readers.values() if reader.turn_id == turn_id]
        for reader in dropped:
            self._forget(reader)
        return dropped

    def are_behind(self, now: float) -> bool:
        """True while a living reader has not confirmed all that it is to have."""
        last = self._log.last_seq
        return any(reader.acked < last for reader in self._living(now))

    def is_awaited(self, now: float) -> bool:
        """True while a living reader waits for the end of its turn."""
        return any(reader.turn_id is not None for reader in self._living(now))

    # ------------------------------------------------------------ news
    def publish(self, events: tuple[Event, ...], now: float) -> None:
        """Send on what was just added to the log. What is streamed of a step's text ends with the step."""
        readers = self._living(now)
        ends = any(isinstance(event, StepFinished) or event.terminal for event in events)
        if ends and self._text:
            for reader in readers:
                self._show(reader)
            self._forget_text()
        self._published = self._log.last_seq
        for reader in readers:
            self._pump(reader)

    def live(self, turn_id: str, event: Event, now: float) -> None:
        """Send a live event of that turn to each reader that keeps up; text is caught up on later."""
        readers = [r for r in self._living(now) if r.turn_id in (None, turn_id)]
        match event:
            case TextDelta(text=text):
                self._turn_id = turn_id
                self._size += len(text)
                if self._size <= MAX_STREAMED:
                    self._text.append(text)
            case TextDiscarded(reason=reason):
                self._turn_id = turn_id
                self._forget_text()
                for reader in readers:
                    reader.discard = reason
            case _:
                for reader in readers:
                    if self._keeps_up(reader):
                        self._give(reader, (event,))
                return
        for reader in readers:
            self._show(reader)

    def tell_state(self, state: State, now: float) -> None:
        """Tell each reader that has everything how things stand: nothing more is to come for now."""
        for reader in self._living(now):
            if reader.turn_id is None and reader.sent >= self._log.last_seq:
                self._give(reader, (), state)

    # ------------------------------------------------------------ one reader
    def _pump(self, reader: Reader) -> bool:
        """Send the logged events that it may have; False when there is nothing to send."""
        upto = self._log.last_seq
        if reader.turn_id is not None:
            span = self._log.span(reader.turn_id)
            if span is None:
                return False
            reader.sent = max(reader.sent, span.first - 1)
            reader.acked = max(reader.acked, span.first - 1)
            upto = span.last or upto
        events = self._log.after(reader.sent, min(upto, reader.acked + WINDOW))
        if not events:
            return False
        reader.sent = events[-1].seq or reader.sent
        self._give(reader, events)
        if events[-1].terminal and getattr(events[-1], "turn_id", None) == reader.turn_id:
            self._forget(reader)
        return True

    def _show(self, reader: Reader) -> None:
        """Send what it has not seen of the present step's text."""
        if reader.turn_id not in (None, self._turn_id) or not self._keeps_up(reader):
            return
        if reader.discard:
            self._give(reader, (TextDiscarded(turn_id=self._turn_id, reason=reader.discard),))
            reader.discard = ""
        unseen = "".join(self._text[reader.shown :])
        reader.shown = len(self._text)
        if unseen:
            self._give(reader, (TextDelta(turn_id=self._turn_id, text=unseen),))

    def _keeps_up(self, reader: Reader) -> bool:
        begun = reader.turn_id is None or self._log.span(reader.turn_id) is not None
        return begun and reader.sent >= self._published and reader.number - reader.heard < LIVE_WINDOW

    def _give(self, reader: Reader, events: Iterable[Event], state: State | None = None) -> None:
        reader.number += 1
        if state is None:
            has_all = reader.sent >= self._log.last_seq
            state = "idle" if has_all and self._is_idle() else "active"
        self._send(reader, News(tuple(events), reader.number, reader.sent, state))

    def _forget_text(self) -> None:
        self._text, self._size = [], 0
        for reader in self._readers.values():
            reader.shown, reader.discard = 0, ""

    def _living(self, now: float) -> list[Reader]:
        """The readers that gave a sign of life; the others are forgotten."""
        for reader in [r for r in self._readers.values() if now - r.heard_at > SILENT_S]:
            self._forget(reader)
        return list(self._readers.values())

    def _forget(self, reader: Reader) -> None:
        self._readers.pop((reader.request_id, str(reader.reply_to)), None)
