"""Running a call: a worker or a server, the deadline, one result. The piece that the client actor uses.

It holds the processes of the calls under way. Every way for a call to end comes out as one ToolResult; what became of
a call whose process or server was lost is said honestly ("unknown"), and never tried again here.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.actors.messages import CallTool, CancelCall, Work, Worked
from callboard.actors.names import SERVERS
from callboard.supervisor import mends
from callboard.supervisor.child import Child, Spawned
from callboard.supervisor.envelope import Failure, Init
from callboard.supervisor.process import close_private, describe_exit, kill, kill_group, start_time
from callboard.supervisor.table import Row
from callboard.supervisor.timers import Timer
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec

WORKER = "callboard.actors.tool_worker.ToolWorkerActor"
Finished: TypeAlias = Callable[[str, ToolResult, float], None]
_RESULT_GRACE_S = 0.1
_SERVER_WAIT_S = 8.0
_LOOK_AGAIN_S = 0.05
_ANSWER_MARGIN_S = 2.0


@dataclass(slots=True)
class _Call:
    """One call under way."""

    call_id: str
    spec: ToolSpec
    arguments: Mapping[str, Any]
    context: ToolContext
    deadline_s: float
    began: float
    deadline: Timer | None = None
    worker: Spawned | None = None
    row: str = ""
    result: ToolResult | None = None
    server: Any = None
    request_id: str | None = None
    unwatch: Callable[[], None] | None = None


class Calls:
    """The calls of one client, at most ``limit`` at a time; the rest wait in order."""

    def __init__(self, host: Child, finished: Finished, limit: int) -> None:
        self._host = host
        self._finished = finished
        self._limit = limit
        self._running: dict[str, _Call] = {}
        self._waiting: deque[_Call] = deque()
        self._count = 0

    def start(
        self,
        call_id: str,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        context: ToolContext,
        deadline_s: float,
    ) -> None:
        """Run the call; ``finished(call_id, result, duration_s)`` follows once, unless it is killed."""
        call = _Call(call_id, spec, arguments, context, deadline_s, self._host.now())
        self._waiting.append(call)
        self._fill()

    def kill(self, call_id: str) -> None:
        """End the call by force; nothing more is heard of it."""
        self._waiting = deque(call for call in self._waiting if call.call_id != call_id)
        call = self._running.pop(call_id, None)
        if call is not None:
            self._release(call)
            self._fill()

    def take(self, message: Any) -> None:
        """Take a notice from a worker: its call's result."""
        if not isinstance(message, Worked):
            return
        for call in self._running.values():
            if call.row == message.worker:
                self._end(call, message.result)
                return

    # ------------------------------------------------------------ both kinds
    def _fill(self) -> None:
        while self._waiting and len(self._running) < self._limit:
            call = self._waiting.popleft()
            self._running[call.call_id] = call
            call.began = self._host.now()
            call.deadline = self._host.after(call.deadline_s, functools.partial(self._too_late, call))
            if call.spec.is_local:
                self._start_worker(call)
            else:
                self._find_server(call, self._host.now() + min(_SERVER_WAIT_S, call.deadline_s))

    def _too_late(self, call: _Call) -> None:
        message = f"{call.spec.name} exceeded its deadline of {call.deadline_s:g} s and was killed"
        self._end(call, error_result(message, "deadline"))

    def _end(self, call: _Call, result: ToolResult) -> None:
        if self._running.get(call.call_id) is not call:
            return
        del self._running[call.call_id]
        self._release(call)
        self._finished(call.call_id, result, self._host.now() - call.began)
        self._fill()

    def _release(self, call: _Call) -> None:
        if call.deadline is not None:
            call.deadline.cancel()
        if call.unwatch is not None:
            call.unwatch()
        if call.worker is not None:
            self._end_worker(call, call.worker)
        if call.request_id is not None:
            self._host.forget(call.request_id)
            self._host.tell(call.server, CancelCall(call.request_id))

    # ------------------------------------------------------------ workers
    def _start_worker(self, call: _Call) -> None:
        self._count += 1
        call.row = f"{self._host.init.id}.call-{self._count}"
        work = Work(spec=call.spec, arguments=call.arguments, context=call.context)
        init = Init(
            id=call.row,
            kind="tool_worker",
            incarnation=1,
            runtime_dir=self._host.init.runtime_dir,
            args={"work": work},
        )
        worker = self._host.spawn(WORKER, init)
        if worker is None:
            died = error_result(f"no process could be started for {call.spec.name}", "unavailable")
            self._host.then_continue(lambda: self._end(call, died))
            return
        call.worker = worker
        self._host.table.put(
            Row(
                id=call.row,
                kind="tool_worker",
                parent=self._host.init.id,
                state="running",
                incarnation=1,
                pid=worker.pid,
                started_at=start_time(worker.pid),
            )
        )
        self._host.watch(worker.pidfd, lambda _events: self._worker_gone(call, worker))

    def _worker_gone(self, call: _Call, worker: Spawned) -> None:
        """The process is gone; its result may still be in the mail."""
        self._host.unwatch(worker.pidfd)
        self._host.after(_RESULT_GRACE_S, lambda: self._worker_lost(call, worker))

    def _worker_lost(self, call: _Call, worker: Spawned) -> None:
        how = describe_exit(mends.exit_code_of(worker.pid))
        message = f"{call.spec.name} did not finish: its process was {how}"
        if how.startswith("exited"):
            message = f"{call.spec.name} did not finish: its process {how}"
        self._end(call, error_result(message, "killed"))

    def _end_worker(self, call: _Call, worker: Spawned) -> None:
        self._host.unwatch(worker.pidfd)
        kill_group(worker.pid)
        kill(worker.pid)
        close_private(worker.pidfd)
        self._host.forget_child(worker)
        self._host.table.remove(call.row)

    # ------------------------------------------------------------ external servers
    def _find_server(self, call: _Call, give_up_at: float) -> None:
        if self._running.get(call.call_id) is not call:
            return
        found = self._host.table.find(f"{SERVERS}.{call.spec.server}")
        if found is not None:
            self._send_to_server(call, *found)
        elif self._host.now() >= give_up_at:
            message = f"the server {call.spec.server} is not running; the call was not made"
            self._end(call, error_result(message, "unavailable"))
        else:
            self._host.after(_LOOK_AGAIN_S, lambda: self._find_server(call, give_up_at))

    def _send_to_server(self, call: _Call, address: Any, pid: int) -> None:
        """Ask this one life of the server: its successor knows nothing of the call, and must not repeat it."""
        call.server = address
        call.unwatch = self._host.monitor(pid, lambda: self._server_lost(call))
        remaining = max(0.05, call.deadline_s - (self._host.now() - call.began))
        command = CallTool(
            tool=call.spec.remote_name or call.spec.name, arguments=call.arguments, deadline_s=remaining
        )
        call.request_id = self._host.ask(
            address,
            command,
            lambda answer: self._answered(call, answer),
            deadline_s=remaining + _ANSWER_MARGIN_S,
            retry_s=1.0,
        )

    def _answered(self, call: _Call, answer: ToolResult | Failure) -> None:
        call.request_id = None
        if isinstance(answer, Failure):
            answer = error_result(answer.message, "unavailable")
        self._end(call, answer)

    def _server_lost(self, call: _Call) -> None:
        call.unwatch = None
        message = f"the server {call.spec.server} was lost while the call ran; its outcome is unknown"
        self._end(call, error_result(f"{message}, and it was not repeated", "unknown"))
