"""The tool worker: the actor of one call of one local tool, and the end.

It starts the call's process below itself, listens to it, and ends it with everything that it started: it is a
sub-reaper, so nothing escapes it, whatever session it makes. It holds the deadline and the limits. Whatever the tool
does to its process happens to that process alone; whatever it does to this one happens to this one call.
"""

from __future__ import annotations

import os
from pathlib import Path

from callboard.actors.messages import Progressed, Work, Worked
from callboard.actors.worker_endings import refused
from callboard.actors.worker_folder import make_folder, remove_folder, remove_stale
from callboard.actors.worker_process import LOOK_EVERY_S, WorkProcess
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.supervisor.process import become_subreaper
from callboard.tools.content import Progress, ToolResult, error_result
from callboard.tools.errors import ToolsError

_TELL_EVERY_S = 0.05


class ToolWorkerActor(Child):
    """``args``: ``work`` (Work)."""

    def start(self) -> bool:
        """Shut the process off from its surroundings, and start the call; nobody waits to hear that it is up."""
        self._work: Work = self.init.args["work"]
        self._process: WorkProcess | None = None
        self._folder: Path | None = None
        self._progress: Progress | None = None
        self._told_at = 0.0
        os.setsid()
        become_subreaper()
        self.then_continue(self._start_call)
        return False

    def handle(self, envelope: Envelope) -> None:
        """A worker takes no commands: it is asked nothing."""

    def stopping(self) -> None:
        """Nobody wants the result any more: end the call's processes and go."""
        self._clean_up()

    # ------------------------------------------------------------ the call
    def _start_call(self) -> None:
        try:
            self._folder = make_folder()
            process = WorkProcess(self._work, self._folder)
            process.start()
        except ToolsError as fault:
            self._report(refused(self._work.spec.name, self._work.spec.limits.sandbox, str(fault)))
            return
        except (OSError, TypeError, ValueError) as fault:
            message = f"no process could be started for {self._work.spec.name}: {fault}"
            self._report(error_result(message, "unavailable"))
            return
        self._process = process
        self.watch(process.channel_fd, lambda _: self._heard(process))
        self.watch(process.output_fd, lambda _: self._printed(process))
        self.watch(process.pidfd, lambda _: self._end(process))
        self.after(self._work.deadline_s, lambda: self._stop_late(process))
        self.after(LOOK_EVERY_S, lambda: self._look(process))
        remove_stale()

    def _heard(self, process: WorkProcess) -> None:
        for progress in process.read_channel():
            self._progress = progress
        if not process.channel_is_open:
            self.unwatch(process.channel_fd)
        if process.is_over:
            self._end(process)
        elif self._progress is not None and self._told_at + _TELL_EVERY_S <= self.now():
            self._tell()

    def _printed(self, process: WorkProcess) -> None:
        process.read_output()
        if not process.output_is_open:
            self.unwatch(process.output_fd)
        if process.is_over:
            self._end(process)

    def _look(self, process: WorkProcess) -> None:
        if self._process is not process:
            return
        process.look()
        if process.is_over:
            self._end(process)
            return
        self._tell()
        self.after(LOOK_EVERY_S, lambda: self._look(process))

    def _stop_late(self, process: WorkProcess) -> None:
        if self._process is process:
            process.stop("deadline")
            self._end(process)

    def _tell(self) -> None:
        """Progress is told at most every 50 ms, and the last of it at the next look."""
        if self._progress is not None:
            told, self._progress = self._progress, None
            self._told_at = self.now()
            self.send(self._parent, Progressed(worker=self.init.id, text=told.text, fraction=told.fraction))

    # ------------------------------------------------------------ the end
    def _end(self, process: WorkProcess) -> None:
        self._tell()
        process.end()
        self._report(process.result())

    def _report(self, result: ToolResult) -> None:
        """The result goes first: nothing of the call takes a step any more, and clearing away takes milliseconds."""
        self.send(self._parent, Worked(worker=self.init.id, result=result))
        self._clean_up()
        self.finish("normal")

    def _clean_up(self) -> None:
        """Processes first, then their folder: nothing can write into it any more."""
        process, self._process = self._process, None
        if process is not None:
            for fd in (process.channel_fd, process.output_fd, process.pidfd):
                self.unwatch(fd)
            process.end()
            process.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            remove_folder(folder)
