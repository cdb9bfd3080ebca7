"""A person's decisions on calls that wait for one, as the client takes them.

Whether a decision can stand is decided by ``actors/toolbox.py``, what follows from it by the turn machine. A decision
is acknowledged when it is durable, and the same one again is acknowledged again. What nobody decided in time expires,
which is a denial: by a timer while the client lives, else as soon as there is one again. Used by ``actors/client.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from callboard.actors.client_log import ConversationLog
from callboard.actors.client_turns import Turns
from callboard.actors.events import ApprovalDecided, ApprovalRequested, Event
from callboard.actors.messages import DecideCall, Registry
from callboard.actors.registry_view import RegistryView
from callboard.actors.turn import Decided
from callboard.actors.turn_approval import expired_after, expires_in_s
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.supervisor.timers import Timer

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
        policy = log.toolbox.rules.approval
        self._expires_s = None if policy is None else policy.expires_s
        self._expiry: Timer | None = None
        host.then_continue(lambda: turns.when_taken_up(self._let_expire))

    def tell(self, letter: Envelope) -> None:
        """Answer which calls wait, as the log has them."""
        self._turns.when_taken_up(lambda: self._host.reply(letter, self._waiting()))

    def decide(self, letter: Envelope, given: DecideCall) -> None:
        """Take a decision; it is answered once it is durable, or at once where it cannot stand."""
        self._turns.when_taken_up(
            lambda: self._registry.look(lambda registry: self._decide(letter, given, registry))
        )

    def durable(self, events: tuple[Event, ...]) -> None:
        """Acknowledge the decisions among these events, and set the time for the requests."""
        for event in events:
            if isinstance(event, ApprovalDecided):
                for letter in self._unanswered.pop(event.call_id, {}).values():
                    self._host.reply(letter, True)
        if any(isinstance(event, ApprovalRequested) for event in events):
            self._let_expire()

    def _decide(self, letter: Envelope, given: DecideCall, registry: Registry) -> None:
        self._let_expire()
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

    def _let_expire(self) -> None:
        """Deny what has waited for too long, and look again when the next one has."""
        expires_s, now = self._expires_s, datetime.now(UTC)
        if expires_s is None:
            return
        left = [(asked, expires_in_s(asked, expires_s, now)) for asked in self._waiting()]
        for asked, left_s in left:
            if left_s <= 0:
                reason = expired_after(expires_s)
                self._turns.feed(
                    Decided(
                        call_id=asked.call_id,
                        approved=False,
                        reason=reason,
                        digest=asked.digest,
                        expired=True,
                    )
                )
        if self._expiry is not None:
            self._expiry.cancel()
        next_s = min((left_s for _, left_s in left if left_s > 0), default=None)
        self._expiry = None if next_s is None else self._host.after(next_s, self._let_expire)

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
        if former is not None and former.expired:
            message = f"call {given.call_id}: it is too late to decide: it {former.reason}, and was denied"
            self._host.reply(letter, Failure(kind="expired", message=message))
            return
        told = "it was decided already" if former is not None else "no such call waits for a decision"
        self._host.reply(letter, Failure(kind="not_waiting", message=f"call {given.call_id}: {told}"))

    def _waiting(self) -> tuple[ApprovalRequested, ...]:
        wanted = {asked.call_id for asked in self._turns.awaiting}
        logged = (event for event in self._log.events if isinstance(event, ApprovalRequested))
        return tuple(event for event in logged if event.call_id in wanted)

    def _asked(self, call_id: str) -> ApprovalRequested | None:
        return next((asked for asked in self._turns.awaiting if asked.call_id == call_id), None)
