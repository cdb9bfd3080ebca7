"""A client's view of the registry: looked at for each step and call, asked of the catalogue whenever its mark changed.

What was seen last is kept for when the catalogue is away.

It waits, bounded, for servers that are still at their first start when the conversation wants their tools.
"""

from __future__ import annotations

from collections.abc import Callable

from callboard.actors.messages import GetRegistry, Registry, RegistryUnchanged
from callboard.actors.names import CATALOGUE
from callboard.actors.registry_mark import RegistryMark
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure

_ANSWER_S = 5.0
_AT_START_S = 1.0
_FIRST_START_S = 15.0
_LOOK_AGAIN_S = 0.05


class RegistryView:
    """``latest`` is what was seen last; empty before the first answer."""

    def __init__(self, host: Child) -> None:
        self._host = host
        self.latest = Registry()
        self._mark = RegistryMark(host.init.runtime_dir)

    def refresh(self, wants: Callable[[str], bool], then: Callable[[Registry], None]) -> None:
        """See what exists now and call ``then`` with it; ``wants(server)`` says whose first start is worth a wait."""
        give_up_at = self._host.now() + _FIRST_START_S

        def seen(registry: Registry) -> None:
            starting = any(r.state == "starting" and wants(r.server) for r in registry.servers.values())
            if starting and self._host.now() < give_up_at:
                self._host.after(_LOOK_AGAIN_S, lambda: self._look(seen, then, _ANSWER_S))
            else:
                then(registry)

        self._look(seen, then, _ANSWER_S)

    def look(self, then: Callable[[Registry], None]) -> None:
        """See what exists right now, and wait for nothing but the catalogue, and that for a second at most."""
        self._look(then, then, _AT_START_S)

    def _look(
        self, then: Callable[[Registry], None], otherwise: Callable[[Registry], None], deadline_s: float
    ) -> None:
        if self.latest.version and self.latest.version == self._mark.version():
            self._host.then_continue(lambda: then(self.latest))
            return

        def answered(answer: Registry | RegistryUnchanged | Failure) -> None:
            if isinstance(answer, Failure):
                self._host.log.warning("catalogue_away", reason=answer.message)
                otherwise(self.latest)
                return
            if isinstance(answer, Registry):
                self.latest = answer
            then(self.latest)

        self._host.ask(CATALOGUE, GetRegistry(known=self.latest.version), answered, deadline_s=deadline_s)
