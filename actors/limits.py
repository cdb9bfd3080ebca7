"""The limits actor: keeps what is known of each model endpoint, and tells all model actors when it changes.

A shell around ``actors/limits_core.py``. A model actor joins, holds a copy of the states, and reports what came of
its calls; so a call to a healthy endpoint costs no mail. Nothing is lost with this actor but what it knew: model
actors join its successor, and until then they go on with their copy.
"""

from __future__ import annotations

from typing import Any

from callboard.actors.limits_core import CLEAN, EndpointState, after_outcome, take_probe
from callboard.actors.messages import JoinLimits, LimitsAre, ReportOutcome, TakeProbe
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope

MAX_ENDPOINTS = 256
MAX_MEMBERS = 256


class LimitsActor(Child):
    """No arguments."""

    def start(self) -> None:
        """Everything is assumed healthy."""
        self._states: dict[str, EndpointState] = {}
        self._members: dict[str, Any] = {}

    def handle(self, envelope: Envelope) -> None:
        """Take a member, an outcome, or a wish to try."""
        match envelope.body:
            case JoinLimits(member):
                if member in self._members or len(self._members) < MAX_MEMBERS:
                    self._members[member] = envelope.reply_to
                self.reply(envelope, LimitsAre(self._remaining(self._states)))
            case ReportOutcome(endpoint, outcome):
                former = self._states.get(endpoint, CLEAN)
                self._set(endpoint, after_outcome(former, outcome, self.now()))
            case TakeProbe(endpoint):
                taken = take_probe(self._states.get(endpoint, CLEAN), self.now())
                if taken is not None:
                    self._set(endpoint, taken)
                self.reply(envelope, taken is not None)

    def _set(self, endpoint: str, state: EndpointState) -> None:
        former = self._states.pop(endpoint, CLEAN)
        if state == former:
            if state != CLEAN:
                self._states[endpoint] = state
            return
        self._say(endpoint, former, state)
        if state != CLEAN:
            self._states[endpoint] = state
            while len(self._states) > MAX_ENDPOINTS:
                del self._states[next(iter(self._states))]
        news = LimitsAre(self._remaining({endpoint: state}))
        for address in self._members.values():
            self.send(address, news)

    def _say(self, endpoint: str, former: EndpointState, state: EndpointState) -> None:
        if state.open_until is not None and state.open_until != former.open_until:
            open_s = state.open_until - self.now()
            self.log.warning(
                "breaker_opened", endpoint=endpoint, failures=state.failures, open_s=round(open_s, 3)
            )
        elif former.open_until is not None and state.open_until is None:
            self.log.info("breaker_closed", endpoint=endpoint)
        if state.held_until is not None and state.held_until != former.held_until:
            self.log.info("endpoint_held", endpoint=endpoint, held_s=round(state.held_until - self.now(), 3))

    def _remaining(self, states: dict[str, EndpointState]) -> dict[str, EndpointState]:
        now = self.now()
        return {endpoint: state.shifted(-now) for endpoint, state in states.items()}
