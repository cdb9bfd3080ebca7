"""A model actor's copy of what the limits actor knows: asked before each call, without mail while all is well.

It fails open: where the limits actor is dead, silent or was never there, calls go on by the last copy, and that is
logged once. Used by ``actors/model.py`` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callboard.actors import names
from callboard.actors.limits_core import CLEAN, UP, EndpointState, Outcome, Verdict, verdict
from callboard.actors.messages import JoinLimits, LimitsAre, ReportOutcome, TakeProbe
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure

PERMIT_S = 0.25
_JOIN_S = 5.0
_LOOK_AGAIN_S = 1.0


class LimitsCopy:
    """The states that matter to one model actor, for the one ``endpoint`` (a key of URL and model) that it asks."""

    def __init__(self, host: Child, endpoint: str) -> None:
        self._host = host
        self._endpoint = endpoint
        self._state = CLEAN
        self._was_silent = False

    def join(self) -> None:
        """Ask to be told; repeated until the limits actor answers, and again when it is replaced."""
        found = self._host.table.find(names.LIMITS)
        command = JoinLimits(self._host.init.id)

        def joined(answer: LimitsAre | Failure) -> None:
            if isinstance(answer, Failure):
                self._silent("join")
                self.join()
                return
            self._state = CLEAN
            self.take(answer)
            self._was_silent = False
            if found is not None:
                self._host.monitor(found[1], self.join)

        if found is None:
            self._host.after(_LOOK_AGAIN_S, self.join)
        else:
            self._host.ask(found[0], command, joined, deadline_s=_JOIN_S, retry_s=1.0)

    def take(self, news: LimitsAre) -> None:
        """Take over what the limits actor says; its instants are seconds from now."""
        if self._endpoint in news.states:
            self._state = news.states[self._endpoint].shifted(self._host.now())

    def verdict(self) -> Verdict:
        """Say whether the endpoint may be asked now."""
        return verdict(self._state, self._host.now())

    def take_probe(self, then: Callable[[bool], None]) -> None:
        """Ask whether the call at hand may be the one that tries; no answer within PERMIT_S is a yes."""

        def answered(answer: Any) -> None:
            if isinstance(answer, Failure):
                self._silent("probe")
            then(answer is not False)

        self._host.ask(names.LIMITS, TakeProbe(self._endpoint), answered, deadline_s=PERMIT_S, retry_s=1.0)

    def report(self, outcome: Outcome | None) -> None:
        """Tell what came of a call, unless all is well and known to be."""
        if outcome is None or (outcome == UP and self._is_clean()):
            return
        if not self._host.tell(names.LIMITS, ReportOutcome(self._endpoint, outcome)):
            self._silent("report")

    def _is_clean(self) -> bool:
        return self._state == CLEAN or self._state == EndpointState(held_until=self._state.held_until)

    def _silent(self, about: str) -> None:
        if not self._was_silent:
            self._was_silent = True
            self._host.log.warning("limits_silent", about=about, endpoint=self._endpoint)
