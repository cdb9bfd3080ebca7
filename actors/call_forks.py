"""The fork server of one actor's calls: there from the first call until half a minute after the last.

It costs some megabytes while it is there, so a conversation that calls nothing has none. Used by ``actors/call.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from callboard.supervisor.child import Child
from callboard.supervisor.process import start_time
from callboard.supervisor.table import Row
from callboard.supervisor.timers import Timer
from callboard.tools.fork_server import ForkServer, Order
from callboard.tools.runner import Ends

IDLE_S = 30.0


class CallForks:
    """``is_idle()`` says whether no worker is left that the server has forked: they end with it."""

    def __init__(self, host: Child, is_idle: Callable[[], bool]) -> None:
        self._host = host
        self._is_idle = is_idle
        self._row = f"{host.init.id}.forks"
        self._server = ForkServer(f"{host.init.id} (fork server)")
        self._timer: Timer | None = None

    def fork(self, order: Order, ends: Ends) -> tuple[int, int]:
        """Fork a worker; gives its pid and a pidfd. Raises OSError."""
        if not self._server.pid:
            self._start()
        self._look_later()
        forked = self._server.fork(order, ends)
        if self._server.fault:
            self._host.log.warning("fork_server_ended", reason=self._server.fault)
            self._server.fault = ""
        return forked

    def close(self) -> None:
        """End the server, if there is one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._server.close()
        self._host.table.remove_row(self._row)

    def _start(self) -> None:
        try:
            self._server.start()
        except OSError as fault:
            self._host.log.warning("no_fork_server", reason=str(fault))
            return
        row = Row(
            id=self._row,
            kind="fork_server",
            parent=self._host.init.id,
            state="running",
            incarnation=1,
            pid=self._server.pid,
            started_at=start_time(self._server.pid),
        )
        self._host.table.put(row)

    def _look_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._host.after(IDLE_S, self._look)

    def _look(self) -> None:
        if self._is_idle():
            self.close()
        else:
            self._look_later()
