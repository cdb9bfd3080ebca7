"""A supervisor's vigil over its children: pings them, ends those that hang, and acts on those that use too much.

The decisions are ``heartbeat.py``'s and ``figures.py``'s; here they are timed, sent and written down. Called by the
supervisor actor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Busy, Ping, Pong, Shutdown
from callboard.supervisor.figures import Figures, Limits
from callboard.supervisor.heartbeat import Heartbeats


class Vigil:
    """``end(id, incarnation, reason)`` kills one incarnation for that reason."""

    def __init__(self, host: Child, end: Callable[[str, int, str], None]) -> None:
        self._host = host
        self._end = end
        self._book = Heartbeats()
        self._places: dict[str, tuple[Any, int, Limits | None]] = {}
        self._warned: dict[str, str] = {}
        self._beating = False

    def watch(self, id: str, incarnation: int, address: Any, limits: Limits | None) -> None:
        """Keep vigil over an incarnation that has started."""
        self._places[id] = (address, incarnation, limits)
        self._book.watch(id, incarnation, self._host.now())
        if not self._beating:
            self._beating = True
            self._host.after(self._book.interval_s, self._beat)

    def forget(self, id: str) -> None:
        """The child is stopping, or gone."""
        self._places.pop(id, None)
        self._warned.pop(id, None)
        self._book.forget(id)

    def heard(self, pong: Pong) -> None:
        """Take a child's answer, and the figures in it."""
        id = self._book.heard(pong.number, self._host.now())
        if id is not None and pong.figures is not None:
            self._weigh(id, pong.figures)

    def excuse(self, id: str, busy: Busy) -> None:
        """A child announced a long operation."""
        self._book.excuse(id, busy.incarnation, self._host.now() + busy.for_s)

    def _beat(self) -> None:
        pings, hung = self._book.beat(self._host.now())
        for id, number in pings:
            self._host.send(self._places[id][0], Ping(number))
        for id, incarnation in hung:
            self._end(id, incarnation, "hung: it answers no heartbeat")
        self._host.after(self._book.interval_s, self._beat)

    def _weigh(self, id: str, figures: Figures) -> None:
        address, incarnation, limits = self._places[id]
        problem = limits.exceeded(figures) if limits is not None else None
        if limits is None or problem is None:
            self._warned.pop(id, None)
            return
        if self._warned.get(id) != problem.split()[0]:
            self._warned[id] = problem.split()[0]
            self._host.log.warning("limit_exceeded", subject=id, reason=problem, action=limits.action)
        match limits.action:
            case "kill":
                self._end(id, incarnation, f"limit: {problem}")
            case "restart":
                self._host.send(address, Shutdown())
            case "warn":
                return
