"""What callers ask of a client: turns, which are taken one after the other, and news of them.

A message that was accepted once is the same turn whenever it comes again; one that cannot be accepted is refused with
why. Used by ``actors/client.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from callboard.actors.arrival import Arrival
from callboard.actors.client_turns import Turns
from callboard.actors.messages import Ask, Follow, News
from callboard.actors.subscribers import MAX_READERS, Reader, Subscribers
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure, Reply


class Asking:
    """``refusal()`` says why nothing can be accepted now, None when it can."""

    def __init__(
        self,
        host: Child,
        turns: Turns,
        subscribers: Subscribers,
        refusal: Callable[[], Failure | None],
    ) -> None:
        self._host = host
        self._turns = turns
        self._subscribers = subscribers
        self._refusal = refusal

    def ask(self, letter: Envelope, ask: Ask) -> None:
        """Take a message for a turn, or tell more of the turn that it became."""
        turn_id = letter.request_id
        if self._turns.knows(turn_id):
            self.read(letter, ask, turn_id)
            return
        failure = self._refusal()
        if failure is None:
            self.read(letter, ask, turn_id)
            if self._turns.add(Arrival(turn_id=turn_id, ask=ask, envelope=letter)):
                return
            message = f"{self._turns.arrivals.limit} messages wait in this conversation already"
            failure = Failure(kind="overloaded", message=message, retryable=True)
        self._subscribers.drop(turn_id)
        self._host.reply(letter, failure)

    def read(self, letter: Envelope, said: Ask | Follow, turn_id: str | None = None) -> None:
        """Let the caller read the conversation, or one turn of it, from where it says that it is."""
        is_taken = self._subscribers.join(
            letter.request_id,
            letter.reply_to,
            self._host.now(),
            after=said.after,
            heard=said.heard,
            turn_id=turn_id,
        )
        if not is_taken:
            message = f"{MAX_READERS} readers follow this conversation already"
            self._host.reply(letter, Failure(kind="overloaded", message=message, retryable=True))

    def cancel(self, reason: str) -> bool:
        """Cancel the turn under way and refuse the messages that wait; False when there was neither."""
        waiting = self._turns.arrivals.clear()
        for arrival in waiting:
            self.refuse(arrival.turn_id, Failure(kind="cancelled", message="cancelled before it began"))
        return self._turns.cancel(reason) or bool(waiting)

    def refuse(self, turn_id: str, failure: Failure) -> None:
        """Tell all who read a turn that it was not accepted."""
        for reader in self._subscribers.drop(turn_id):
            send_to(self._host, reader, failure)


def send_to(host: Child, reader: Reader, body: News | Failure) -> None:
    """Send a reader something."""
    host.send(reader.reply_to, Reply(request_id=reader.request_id, body=body, origin=host.init.id))


__all__ = ["Asking", "send_to"]
