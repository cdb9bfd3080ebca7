"""An actor's watch over a child process of another program: its output line by line, its input, its end.

Wires a ``transports.child_process.ChildProcess`` into the actor's one poll loop. It does not know what the lines mean.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping, Sequence

from callboard.supervisor.child import Child
from callboard.transports.child_process import ChildProcess, default_environment
from callboard.transports.errors import LineTooLong
from callboard.transports.framing import LineFramer

_READS_PER_EVENT = 16
_END_GRACE_S = 0.2


class ChildIO:
    """One process of an external program. ``on_line(line)`` per line of its stdout, ``on_end(why)`` once."""

    def __init__(
        self,
        host: Child,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._host = host
        self._on_line = on_line
        self._on_end = on_end
        self._framer = LineFramer()
        self._ended = False
        self._child = ChildProcess(argv, env=default_environment(env, os.environ), cwd=cwd, hidden=env)
        self.pid = self._child.pid
        host.watch(self._child.stdout_fd, lambda _events: self._readable())
        host.watch(self._child.stderr_fd, lambda _events: self._stderr_readable())
        host.watch(self._child.pidfd, lambda _events: self._exited())

    def send(self, data: bytes) -> None:
        """Write a whole line, now or when the pipe takes it; raises OutboxFull or ChildClosed."""
        self._child.send(data)
        if not self._child.flush():
            self._await_room()

    def stop(self, then: Callable[[], None]) -> None:
        """End the process in order (stdin closed, SIGTERM, SIGKILL), and call ``then`` when it is gone."""
        self._ended = True
        self._unwatch_output()
        self._child.begin_stop(self._host.now())
        self._go_on_stopping(then)

    def close(self) -> None:
        """Kill what is left and close all descriptors."""
        self._ended = True
        self._unwatch_output()
        self._host.unwatch(self._child.pidfd)
        self._child.close()

    def _go_on_stopping(self, then: Callable[[], None]) -> None:
        if self._child.advance_stop(self._host.now()) is not None:
            self.close()
            then()
        else:
            self._host.after(0.02, lambda: self._go_on_stopping(then))

    def _await_room(self) -> None:
        fd = self._child.stdin_fd

        def writable(_events: int) -> None:
            if self._child.flush():
                self._host.unwatch(fd)

        if not self._host.is_watched(fd):
            self._host.watch(fd, writable, select.EPOLLOUT)

    def _readable(self) -> None:
        for _ in range(_READS_PER_EVENT):
            if self._ended:
                return
            chunk = self._child.read_stdout()
            if chunk is None:
                self._host.unwatch(self._child.stdout_fd)
                last = self._framer.finish()
                if last is not None:
                    self._on_line(last)
                self._host.after(_END_GRACE_S, lambda: self._end("closed its standard output"))
                return
            if not chunk:
                return
            self._take(chunk)

    def _take(self, chunk: bytes) -> None:
        try:
            lines, too_long = self._framer.feed(chunk), None
        except LineTooLong as fault:
            lines, too_long = list(fault.lines_before), str(fault)
        for line in lines:
            if not self._ended:
                self._on_line(line)
        if too_long is not None:
            self._end(too_long)

    def _stderr_readable(self) -> None:
        if self._child.read_stderr() is None:
            self._host.unwatch(self._child.stderr_fd)

    def _exited(self) -> None:
        """The process is gone; what it wrote last is read first."""
        self._host.unwatch(self._child.pidfd)
        if not self._ended and self._host.is_watched(self._child.stdout_fd):
            self._readable()
        self._end(self._child.describe_end())

    def _end(self, why: str) -> None:
        if self._ended:
            return
        self._ended = True
        reason = why if why.startswith(("exit", "killed")) else f"{why}; {self._child.describe_end()}"
        self.close()
        self._on_end(reason)

    def _unwatch_output(self) -> None:
        for fd in (self._child.stdout_fd, self._child.stderr_fd, self._child.stdin_fd):
            self._host.unwatch(fd)
