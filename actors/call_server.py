"""A call of an external server's tool, from its caller's side: the server is found, asked, and watched.

The call is made of one life of the server only, and never again: what became of a call whose server was lost is said
honestly ("unknown"). How far it is is heard on the way, and moves no deadline. Called by ``actors/call.py``.
"""

from __future__ import annotations

import functools
from typing import Any

from callboard.actors.call_worker import Listener
from callboard.actors.messages import AwaitCall, CallTool, CancelCall, Work
from callboard.actors.names import SERVERS
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure
from callboard.supervisor.timers import Timer
from callboard.tools.content import Progress, ToolResult, error_result

_SERVER_WAIT_S = 8.0
_LOOK_AGAIN_S = 0.05
_ANSWER_MARGIN_S = 2.0


class ServerCall:
    """One call that a server carries out."""

    def __init__(self, host: Child, work: Work, listener: Listener) -> None:
        self._host = host
        self._work = work
        self._listener = listener
        self._began = host.now()
        self._give_up_at = self._began + min(_SERVER_WAIT_S, work.deadline_s)
        self._deadline: Timer | None = None
        self._is_done = False
        self._server: Any = None
        self._request_id: str | None = None
        self._unwatch = _nothing

    def start(self) -> None:
        """Find the server and send it the call."""
        self._deadline = self._host.after(self._work.deadline_s, self._too_late)
        self._find()

    def stop(self) -> None:
        """Wait no longer; a server that has the call is told so. Nothing more is heard but ``gone``."""
        if not self._is_done:
            self._finish()

    # ------------------------------------------------------------ finding and asking
    def _find(self) -> None:
        if self._is_done:
            return
        server = self._work.spec.server
        found = self._host.table.find(f"{SERVERS}.{server}")
        if found is not None:
            self._send(*found)
        elif self._host.now() >= self._give_up_at:
            message = f"the server {server} is not running; the call was not made"
            self._settle(error_result(message, "unavailable"))
        else:
            self._host.after(_LOOK_AGAIN_S, self._find)

    def _send(self, address: Any, pid: int) -> None:
        """Ask this one life of the server: its successor knows nothing of the call, and must not repeat it."""
        spec = self._work.spec
        self._server = address
        self._unwatch = self._host.monitor(pid, self._lost)
        command = CallTool(
            tool=spec.remote_name or spec.name,
            arguments=self._work.arguments,
            deadline_s=self._remaining_s(),
            version=spec.digest if spec.pinned else "",
        )
        self._ask(command, None)

    def _ask(self, command: CallTool | AwaitCall, request_id: str | None) -> None:
        self._request_id = self._host.ask(
            self._server,
            command,
            self._answered,
            deadline_s=self._remaining_s() + _ANSWER_MARGIN_S,
            retry_s=1.0,
            request_id=request_id,
        )

    def _remaining_s(self) -> float:
        return max(0.05, self._work.deadline_s - (self._host.now() - self._began))

    # ------------------------------------------------------------ how it ends
    def _answered(self, answer: ToolResult | Progress | Failure) -> None:
        if isinstance(answer, Progress):
            self._ask(AwaitCall(), self._request_id)
            self._listener.progressed(answer)
            return
        self._request_id = None
        self._settle(error_result(answer.message, "unavailable") if isinstance(answer, Failure) else answer)

    def _lost(self) -> None:
        self._unwatch = _nothing
        message = f"the server {self._work.spec.server} was lost while the call ran; its outcome is unknown"
        self._settle(error_result(f"{message}, and it was not repeated", "unknown"))

    def _too_late(self) -> None:
        message = (
            f"{self._work.spec.name} exceeded its deadline of {self._work.deadline_s:g} s and was killed"
        )
        self._settle(error_result(message, "deadline"))

    def _settle(self, result: ToolResult) -> None:
        if not self._is_done:
            finish = functools.partial(self._listener.ended, result)
            self._finish()
            finish()

    def _finish(self) -> None:
        self._is_done = True
        if self._deadline is not None:
            self._deadline.cancel()
        self._unwatch()
        self._unwatch = _nothing
        if self._request_id is not None:
            self._host.forget(self._request_id)
            self._host.tell(self._server, CancelCall(self._request_id))
        self._listener.gone()


def _nothing() -> None:
    """Nothing is watched."""
