"""How a conversation ends for good: a caller closes it, or the process that it is linked to is gone.

A turn under way is cancelled first; who asked is answered when the closing is durable. Used by ``actors/client.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from callboard.actors.client_departure import Departure
from callboard.actors.client_log import ConversationLog
from callboard.actors.events import ConversationClosed, Event, TurnCancelled
from callboard.actors.owner import is_here
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope

LEAVE_AFTER_S = 0.5


class Closing:
    """``cancel(reason)`` cancels what is under way or waits; ``has_turn()`` says whether its end is still to come."""

    def __init__(
        self,
        host: Child,
        log: ConversationLog,
        append: Callable[[tuple[Event, ...], Callable[[], None]], None],
        cancel: Callable[[str], bool],
        has_turn: Callable[[], bool],
        departure: Departure,
    ) -> None:
        self._host = host
        self._log = log
        self._append = append
        self._cancel = cancel
        self._has_turn = has_turn
        self._departure = departure
        self._asked: dict[str, Envelope] = {}
        self.is_under_way = False

    def watch_owner(self) -> None:
        """Close the conversation when its owner is gone, now or later; a closed one's client has no reason to stay."""
        owner = self._log.opened.owner
        if self._log.is_closed:
            self._departure.hurry(LEAVE_AFTER_S)
        elif owner is not None and is_here(owner):
            self._host.monitor(owner.pid, self._owner_gone)
        elif owner is not None:
            self._host.then_continue(self._owner_gone)

    def ask(self, letter: Envelope) -> None:
        """Close it for a caller, who is answered when that is durable."""
        self._asked[letter.request_id] = letter
        self._close("closed")

    def turn_over(self, ending: Event) -> None:
        """The turn that was in the way has ended."""
        if self.is_under_way and not self._log.is_closed:
            self._write(ending.reason if isinstance(ending, TurnCancelled) else "closed")

    def _owner_gone(self) -> None:
        self._host.log.info("owner_gone", conversation=self._log.opened.conversation_id)
        self._close("owner_gone")

    def _close(self, reason: str) -> None:
        if self._log.is_closed:
            self._closed()
        elif not self.is_under_way:
            self.is_under_way = True
            self._cancel(reason)
            if not self._has_turn():
                self._write(reason)

    def _write(self, reason: str) -> None:
        self._departure.hurry(LEAVE_AFTER_S)
        self._append((ConversationClosed(reason=reason),), self._closed)

    def _closed(self) -> None:
        asked, self._asked = self._asked, {}
        for letter in asked.values():
            self._host.reply(letter, True)


__all__ = ["Closing"]
