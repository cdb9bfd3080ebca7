"""Forked processes without the two pipes that multiprocessing keeps open in the parent for each child.

Whether a child lives is asked of the kernel by its pid, and Thespian hears of its end by SIGCHLD; the pipes served
only ``sentinel`` and the child's view of its parent's life, which the parent-death signal covers.
"""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.popen_fork
import os
import select
from collections.abc import Callable
from typing import Any


def _with_room(run: Callable[[], int]) -> int:
    """Run it on a frame so large that the interpreter puts what is called on a memory chunk of its own.

    CPython (3.11 and later) keeps frames in chunks of 16 KiB. An actor's loop begins some 60 frames deep in its
    parent's; where that happens to lie at the end of a chunk, each call that it makes would map and unmap memory.
    """
    return run()


_with_room.__code__ = _with_room.__code__.replace(co_stacksize=9000)


class _Popen(multiprocessing.popen_fork.Popen):
    def _launch(self, process_obj: Any) -> None:
        code, self.sentinel = 1, -1
        self.pid = os.fork()
        if self.pid == 0:
            try:
                code = _with_room(lambda: int(process_obj._bootstrap(parent_sentinel=None)))
            finally:
                os._exit(code)

    def wait(self, timeout: float | None = None) -> int | None:
        if self.returncode is None and timeout:
            try:
                pidfd = os.pidfd_open(self.pid)
            except ProcessLookupError:
                return self.poll()
            try:
                select.select([pidfd], [], [], timeout)
            finally:
                os.close(pidfd)
        return self.poll(0 if timeout is None else os.WNOHANG)


class _Process(multiprocessing.context.ForkProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> _Popen:  # noqa: N802
        return _Popen(process_obj)


class LeanForkContext(multiprocessing.context.ForkContext):
    """A multiprocessing context whose processes cost their parent no descriptor."""

    Process = _Process
