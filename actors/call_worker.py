"""A call of a local tool, from its start to its burial: the worker is started, listened to, and ended in time.

What the worker may do and how its end is told is ``actors/worker_process.py``'s; this is its place in an actor's loop:
descriptors, timers, and the row in the process table. Called by ``actors/call.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callboard.actors import worker_tree as tree
from callboard.actors.messages import Work
from callboard.actors.worker_endings import refused
from callboard.actors.worker_folder import make_folder, start_removal
from callboard.actors.worker_process import LOOK_EVERY_S, Fork, WorkProcess, call_of
from callboard.supervisor.child import Child
from callboard.supervisor.process import start_time
from callboard.supervisor.table import Row
from callboard.supervisor.timers import Timer
from callboard.tools.content import Progress, ToolResult, error_result
from callboard.tools.contract import ToolSpec
from callboard.tools.errors import ToolsError

_TELL_EVERY_S = 0.05
_FIRST_LOOK_S = 0.01
_LAST_LOOK_S = 1.0
_STOP_S = 0.3
_GIVE_UP_S = 30.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """What the caller of a call wants to hear: its result, once; progress; and that its place is free, once."""

    ended: Callable[[ToolResult], None]
    progressed: Callable[[Progress], None]
    gone: Callable[[], None]


class WorkerCall:
    """One worker and its one call. ``row`` is its id in the process table.

    It is started for a spec, and given its call at once or later; until then it is ``is_free``. ``listener`` hears what
    becomes of the call; of a worker that ends without one, only that it is gone.
    """

    def __init__(self, host: Child, row: str, spec: ToolSpec, listener: Listener, fork: Fork) -> None:
        self.spec = spec
        self._host = host
        self._row = row
        self._listener = listener
        self._fork = fork
        self._work: Work | None = None
        self._process: WorkProcess | None = None
        self._folder: Path | None = None
        self._fault: ToolResult | None = None
        self._state = ""
        self._is_looked_at = False
        self._is_done = self._is_ending = self._is_given_up = False
        self._give_up_at = 0.0
        self._progress: Progress | None = None
        self._told_at = 0.0
        self._timers: list[Timer] = []

    @property
    def is_free(self) -> bool:
        """True while the worker can be given a call."""
        process = self._process
        return process is not None and self._work is None and not self._is_ending and not process.has_ended

    @property
    def is_buried(self) -> bool:
        """True when nothing of the worker is left, or it was never started."""
        return self._process is None

    @property
    def is_loaded(self) -> bool:
        """True while the worker is free and has loaded its tool."""
        return self.is_free and self._process is not None and self._process.is_ready

    def start(self, state: str = "running") -> None:
        """Start the worker, in this state until it has a call; where that fails, the call is told so."""
        process: WorkProcess | None = None
        try:
            self._folder = make_folder()
            process = WorkProcess(self.spec, self._folder, f"{self._row} ({self.spec.name})", self._fork)
            process.start()
        except ToolsError as fault:
            self._fault = refused(self.spec.name, self.spec.limits.sandbox, str(fault))
        except OSError as fault:
            message = f"no process could be started for {self.spec.name}: {fault}"
            self._fault = error_result(message, "unavailable")
        if self._fault is None and process is not None:
            self._keep(process, state)
        else:
            self._remove_folder()

    def call(self, work: Work, listener: Listener) -> None:
        """Give the worker its call, once; what comes of it is told later."""
        self._work, self._listener = work, listener
        try:
            call = call_of(work)
        except (TypeError, ValueError) as fault:
            message = f"the arguments of {self.spec.name} cannot be handed over: {fault}"
            self._fault = error_result(message, "unavailable")
        if self._process is None or self._fault is not None:
            self._host.then_continue(self._refuse)
            return
        self._process.hand_over(call, work.deadline_s)
        if self._state != "running":
            self._show("running", self._process)
        self._after(work.deadline_s, self._late)
        if not self._is_looked_at:
            self._look_again()

    def stop(self) -> None:
        """End the call by force; only ``gone`` is heard."""
        self._is_done = True
        self._over()

    def end_now(self) -> None:
        """End the call by force, and hear nothing more of it; ``leave_now`` is to follow."""
        self._is_done = self._is_ending = True
        if self._process is not None:
            self._unwatch(self._process)
            self._process.end()

    def leave_now(self) -> None:
        """Wait a moment for the call's processes to be gone, after ``end_now``."""
        process, self._process = self._process, None
        if process is not None:
            if not process.reap_within(_STOP_S):
                process.give_up()
                process.reap_within(_STOP_S)
            self._leave(process)

    # ------------------------------------------------------------ while it runs
    def _keep(self, process: WorkProcess, state: str) -> None:
        self._process = process
        self._host.watch(process.channel_fd, lambda _events: self._heard(process))
        self._host.watch(process.output_fd, lambda _events: self._printed(process))
        self._host.watch(process.word_fd, lambda _events: self._over())
        self._look_again()
        if state == "prepared":
            self._after(self.spec.deadline_s, self._not_loaded)
        self._show(state, process)

    def _show(self, state: str, process: WorkProcess) -> None:
        self._state = state
        row = Row(
            id=self._row,
            kind="tool_worker",
            parent=self._host.init.id,
            state=state,
            incarnation=1,
            pid=process.pid,
            started_at=start_time(process.pid),
        )
        self._host.table.put(row)

    def _heard(self, process: WorkProcess) -> None:
        for progress in process.read_channel():
            self._progress = progress
        if not process.channel_is_open:
            self._host.unwatch(process.channel_fd)
        if process.is_over:
            self._over()
        elif self._progress is not None and self._told_at + _TELL_EVERY_S <= self._host.now():
            self._tell()

    def _printed(self, process: WorkProcess) -> None:
        process.read_output()
        if not process.output_is_open:
            self._host.unwatch(process.output_fd)
        if process.is_over:
            self._over()

    def _look_again(self) -> None:
        self._is_looked_at = True
        self._after(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """A worker that stands ready does nothing, and is not looked at."""
        process, self._is_looked_at = self._process, False
        if process is None:
            return
        process.look()
        if process.is_over:
            self._over()
            return
        self._tell()
        if self._work is not None or not process.is_ready:
            self._look_again()

    def _not_loaded(self) -> None:
        if self._work is None and not self.is_loaded:
            self._over()

    def _late(self) -> None:
        if self._process is not None:
            self._process.stop("deadline")
            self._over()

    def _tell(self) -> None:
        """Progress is told at most every 50 ms, and the last of it at the next look."""
        if self._progress is not None and not self._is_done:
            told, self._progress = self._progress, None
            self._told_at = self._host.now()
            self._listener.progressed(told)

    # ------------------------------------------------------------ how it ends
    def _over(self) -> None:
        """The result goes first: nothing of the call takes a step any more, and clearing away takes milliseconds."""
        process = self._process
        if process is None or self._is_ending:
            return
        self._is_ending = True
        self._unwatch(process)
        process.end()
        if not self._is_done and self._work is not None:
            self._tell()
            self._is_done = True
            self._listener.ended(process.result())
        self._give_up_at = self._host.now() + _GIVE_UP_S
        self._host.watch(process.pidfd, lambda _events: self._bury(process, _FIRST_LOOK_S))
        self._bury(process, _FIRST_LOOK_S)

    def _bury(self, process: WorkProcess, look_again_s: float) -> None:
        """The place is free when all of the call's processes are down (OTP-46)."""
        if self._process is not process:
            return
        if not process.reap():
            if self._host.now() < self._give_up_at:
                self._after(look_again_s, lambda: self._bury(process, min(_LAST_LOOK_S, 2 * look_again_s)))
                return
            if not self._is_given_up:
                self._is_given_up = True
                self._host.log.error("worker_given_up", worker=self._row, pid=process.pid)
            process.give_up()
            self._after(_LAST_LOOK_S, lambda: self._bury(process, _LAST_LOOK_S))
            return
        self._process = None
        self._unwatch(process)
        self._leave(process)
        self._listener.gone()

    def _leave(self, process: WorkProcess) -> None:
        process.close()
        self._host.table.remove_row(self._row)
        self._remove_folder()

    def _remove_folder(self) -> None:
        """The worker has done it, unless it was killed itself."""
        pid = start_removal(self._folder) if self._folder is not None else None
        if pid is not None:
            self._host.monitor(pid, lambda: tree.collect(pid))

    def _refuse(self) -> None:
        """The call never ran; a worker that was started for it is ended."""
        if not self._is_done and self._fault is not None:
            self._is_done = True
            self._listener.ended(self._fault)
        if self._process is not None:
            self._over()
        else:
            self._listener.gone()

    def _unwatch(self, process: WorkProcess) -> None:
        for fd in (process.channel_fd, process.output_fd, process.word_fd, process.pidfd):
            self._host.unwatch(fd)
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def _after(self, delay_s: float, action: Callable[[], Any]) -> None:
        self._timers = [timer for timer in self._timers if timer.action is not None]
        self._timers.append(self._host.after(delay_s, action))
