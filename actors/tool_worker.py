"""The tool worker: one process, one call of one local tool, and the end.

It loads the module of that one tool, runs it, sends the result to its parent and leaves. Whatever the tool does to
its process (exit, segfault, endless loop, memory) happens to this process alone; its parent holds the deadline.
"""

from __future__ import annotations

import os
import resource

import psutil

from callboard.actors.messages import Work, Worked
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.tools.content import ToolResult, error_result
from callboard.tools.errors import ToolsError
from callboard.tools.execute import describe, execute
from callboard.tools.loader import load_tool

_MIB = 1024 * 1024


class ToolWorkerActor(Child):
    """``args``: ``work`` (Work)."""

    def start(self) -> None:
        """Shut the process off from its surroundings, and run the call right after the handshake."""
        self._work: Work = self.init.args["work"]
        os.setsid()
        self._silence()
        self.then_continue(self._run)

    def handle(self, envelope: Envelope) -> None:
        """A worker takes no commands: it is asked nothing and killed at will."""

    def _run(self) -> None:
        self.send(self._parent, Worked(worker=self.init.id, result=self._call()))
        self.finish("normal")

    def _call(self) -> ToolResult:
        work = self._work
        try:
            tool = load_tool(work.spec)
        except ToolsError as fault:
            return error_result(f"the tool {work.spec.name} could not be loaded: {fault}")
        if work.spec.memory_mb is not None:
            self._limit_memory(work.spec.memory_mb)
        try:
            return execute(tool, work.arguments, work.context)
        except MemoryError:
            limit = f" of {work.spec.memory_mb} MiB" if work.spec.memory_mb else ""
            return error_result(f"{work.spec.name} exceeded its memory limit{limit}")
        except BaseException as error:  # a tool may raise KeyboardInterrupt: this process runs nothing else
            return error_result(f"{work.spec.name} failed: {describe(error)}")

    def _limit_memory(self, mib: int) -> None:
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + mib * _MIB, used + mib * _MIB))

    def _silence(self) -> None:
        """A tool's standard streams lead nowhere: it must not read the terminal or write into the protocol."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        os.close(nowhere)
