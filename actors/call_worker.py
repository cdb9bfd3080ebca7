"""A call of a local tool, from its caller's side: the worker is started, its result taken, its end seen to.

It holds no limit but a late one of its own, for a worker that does not answer any more: the limits are the worker's.
Called by ``actors/call.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from callboard.actors.messages import Progressed, Work, Worked
from callboard.actors.worker_endings import overdue
from callboard.supervisor import mends
from callboard.supervisor.child import Child, Spawned
from callboard.supervisor.envelope import Init, Shutdown
from callboard.supervisor.process import close_private, describe_exit, kill, kill_group, start_time
from callboard.supervisor.table import Row
from callboard.supervisor.timers import Timer
from callboard.tools.content import Progress, ToolResult, error_result

WORKER = "callboard.actors.tool_worker.ToolWorkerActor"
_RESULT_GRACE_S = 0.1
_LATE_S = 0.7
_LEAVE_S = 1.0
_CLEAR_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What the caller of a call wants to hear: its result, once; progress; and that its place is free, once."""

    ended: Callable[[ToolResult], None]
    progressed: Callable[[Progress], None]
    gone: Callable[[], None]


class WorkerCall:
    """One worker, from its start to its burial. ``row`` is its id in the process table."""

    def __init__(self, host: Child, row: str, work: Work, listener: Listener) -> None:
        self.row = row
        self._host = host
        self._work = work
        self._listener = listener
        self._worker: Spawned | None = None
        self._is_done = False
        self._timers: list[Timer] = []

    def start(self) -> None:
        """Fork the worker and hand it the call."""
        init = Init(
            id=self.row,
            kind="tool_worker",
            incarnation=1,
            runtime_dir=self._host.init.runtime_dir,
            args={"work": self._work},
        )
        worker = self._worker = self._host.spawn(WORKER, init)
        if worker is None:
            message = f"no process could be started for {self._work.spec.name}"
            self._host.then_continue(lambda: self._not_started(error_result(message, "unavailable")))
            return
        self._host.table.put(
            Row(
                id=self.row,
                kind="tool_worker",
                parent=self._host.init.id,
                state="running",
                incarnation=1,
                pid=worker.pid,
                started_at=start_time(worker.pid),
            )
        )
        self._host.watch(worker.pidfd, lambda _events: self._down(worker))
        self._after(self._work.deadline_s + _LATE_S, self._too_late)

    def take(self, message: Worked | Progressed) -> None:
        """Take a notice of this worker's."""
        if self._is_done:
            return
        if isinstance(message, Progressed):
            self._listener.progressed(Progress(message.text, message.fraction))
            return
        self._settle(message.result)
        self._after(_CLEAR_S, self._kill)

    def stop(self) -> None:
        """End the call: the worker ends its processes, and is killed where it does not; only ``gone`` is heard."""
        self._is_done = True
        if self._worker is not None:
            self._host.send(self._worker.address, Shutdown())
            self._after(_LEAVE_S, self._kill)

    # ------------------------------------------------------------ how it ends
    def _too_late(self) -> None:
        self._settle(overdue(self._work.spec.name, self._work.deadline_s))
        self.stop()

    def _settle(self, result: ToolResult) -> None:
        if not self._is_done:
            self._is_done = True
            self._listener.ended(result)

    def _not_started(self, result: ToolResult) -> None:
        self._settle(result)
        self._listener.gone()

    def _down(self, worker: Spawned) -> None:
        """The process is gone; its result may still be in the mail. The place is free once it is settled (OTP-46)."""
        self._host.unwatch(worker.pidfd)
        if self._is_done:
            self._bury(worker)
        else:
            self._after(_RESULT_GRACE_S, lambda: self._lost(worker))

    def _lost(self, worker: Spawned) -> None:
        how = describe_exit(mends.exit_code_of(worker.pid))
        verb = "" if how.startswith("exited") else "was "
        message = f"{self._work.spec.name} did not finish: its process {verb}{how}"
        self._settle(error_result(message, "killed"))
        self._bury(worker)

    def _kill(self) -> None:
        if self._worker is not None:
            kill_group(self._worker.pid)
            kill(self._worker.pid)

    def _bury(self, worker: Spawned) -> None:
        if self._worker is None:
            return
        self._worker = None
        for timer in self._timers:
            timer.cancel()
        close_private(worker.pidfd)
        self._host.forget_child(worker)
        self._host.table.remove(self.row)
        self._listener.gone()

    def _after(self, delay_s: float, action: Callable[[], Any]) -> None:
        self._timers.append(self._host.after(delay_s, action))
