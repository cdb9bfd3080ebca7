"""A person's decisions on calls that wait for one, as the client takes them.

Whether a decision can stand is decided by ``actors/toolbox.py``, what follows from it by the turn machine. A decision
is acknowledged when it is durable, and the same one again is acknowledged again. Used by ``actors/client.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from callboard.actors.client_log import ConversationLog
from callboard.actors.client_turns import Turns
from callboard.actors.events import ApprovalDecided, ApprovalRequested, Event
from callboard.actors.messages import DecideCall, Registry
from callboard.actors.registry_view import RegistryView
from callboard.actors.turn import Decided
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure

Append = Callable[[tuple[Event, ...], Callable[[], None]], None]


class ClientApprovals:
    """Decisions on the calls of the turn under way."""

    def __init__(
        self, host: Child, log: ConversationLog, registry: RegistryView, turns: Turns, append: Append
    ) -> None:
        self._host = host
        self._log = log
        self._registry = registry
        self._turns = turns
        self._append = append
        self._unanswered: dict[str, dict[str, Envelope]] = {}

    def tell(self, letter: Envelope) -> None:
        """Answer which calls wait, as the log has them."""
        self._turns.when_taken_up(lambda: self._host.reply(letter, self._waiting()))

    def decide(self, letter: Envelope, given: DecideCall) -> None:
        """Take a decision; it is answered once it is durable, or at once where it cannot stand."""
        self._turns.when_taken_up(
            lambda: self._registry.look(lambda registry: self._decide(letter, given, registry))
        )

    def durable(self, events: tuple[Event, ...]) -> None:
        """Acknowledge the decisions among these events."""
        for event in events:
            if isinstance(event, ApprovalDecided):
                for letter in self._unanswered.pop(event.call_id, {}).values():
                    self._host.reply(letter, True)

    def _decide(self, letter: Envelope, given: DecideCall, registry: Registry) -> None:
        asked = self._asked(given.call_id)
        if asked is None:
            self._again(letter, given)
            return
        meant = self._log.toolbox.answer(registry, asked, given)
        if isinstance(meant, Failure):
            self._host.reply(letter, meant)
            return
        self._unanswered.setdefault(given.call_id, {})[letter.request_id] = letter
        if meant is not None:
            self._append((meant,), lambda: None)
        self._feed(asked, given)
        if given.scope == "conversation" and given.approved:
            for other in self._turns.awaiting:
                if other.tool == asked.tool:
                    self._feed(other, DecideCall(call_id=other.call_id, approved=True))

    def _feed(self, asked: ApprovalRequested, given: DecideCall) -> None:
        decided = Decided(
            call_id=asked.call_id,
            approved=given.approved,
            arguments=given.arguments,
            by=self._log.opened.user,
            reason=given.reason,
            digest=asked.digest,
        )
        self._turns.feed(decided)

    def _again(self, letter: Envelope, given: DecideCall) -> None:
        """It does not wait any more: fine, when it was decided just so; the answer may have been lost."""
        if letter.request_id in self._unanswered.get(given.call_id, {}):
            return
        former = next(
            (
                e
                for e in reversed(self._log.events)
                if isinstance(e, ApprovalDecided) and e.call_id == given.call_id
            ),
            None,
        )
        meant = (given.approved, given.arguments, given.reason)
        if former is not None and (former.approved, former.arguments, former.reason) == meant:
            self._host.reply(letter, True)
            return
        told = "it was decided already" if former is not None else "no such call waits for a decision"
        self._host.reply(letter, Failure(kind="not_waiting", message=f"call {given.call_id}: {told}"))

    def _waiting(self) -> tuple[ApprovalRequested, ...]:
        wanted = {asked.call_id for asked in self._turns.awaiting}
        logged = (event for event in self._log.events if isinstance(event, ApprovalRequested))
        return tuple(event for event in logged if event.call_id in wanted)

    def _asked(self, call_id: str) -> ApprovalRequested | None:
        return next((asked for asked in self._turns.awaiting if asked.call_id == call_id), None)
