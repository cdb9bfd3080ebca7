"""How ``callboard.run`` carries out one call: in a process of its own, or on a thread of the caller's.

Every way for a call to end comes out as one ToolResult, within the deadline. A worker process is started by
exec (the caller is never forked), and all that the call started is gone when it is over, cancelled calls included. A
thread cannot be killed or shut off: past its deadline it is left alone, and said so; a tool with a sandbox profile is
not run on one.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import os
import subprocess
import threading
from collections.abc import Mapping
from typing import Any

from callboard.actors.worker_endings import RESULT_BYTES, overdue, refused
from callboard.one_call import lost, read_line, start_worker
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decorator import Tool
from callboard.tools.execute import describe, execute

_CHUNK = 1 << 16
_LATE_S = 1.0
_REAP_S = 10.0


async def call_in_worker(spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Run the call in a new process; ``spec`` must name a module that it can import."""
    try:
        worker = _Worker(spec, arguments, context)
    except OSError as fault:
        return error_result(f"no process could be started for {spec.name}: {fault}", "unavailable")
    try:
        async with asyncio.timeout(spec.deadline_s + _LATE_S):  # the worker holds the deadline itself
            await worker.finished.wait()
    except TimeoutError:
        return overdue(spec.name, spec.deadline_s)
    finally:
        worker.close()
    return worker.result()


async def call_on_thread(
    tool: Tool, spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext
) -> ToolResult:
    """Run the call on a daemon thread of this process."""
    if spec.limits.sandbox != "none":
        return refused(spec.name, spec.limits.sandbox, 'a thread cannot be shut off; use isolation="worker"')
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ToolResult] = loop.create_future()

    def hand_over(result: ToolResult) -> None:
        if not done.done():
            done.set_result(result)

    def work() -> None:
        try:
            result = execute(tool, arguments, context)
        except BaseException as error:  # even KeyboardInterrupt, raised here, is the tool's own doing
            result = error_result(describe(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(hand_over, result)

    run = functools.partial(contextvars.copy_context().run, work)
    threading.Thread(target=run, name=f"tool-{spec.name}", daemon=True).start()
    try:
        async with asyncio.timeout(spec.deadline_s):
            return await done
    except TimeoutError:
        message = f"{spec.name} exceeded its deadline of {spec.deadline_s:g} s"
        return error_result(f"{message}; its thread cannot be killed and may still run", "deadline")


class _Worker:
    """One worker process. ``finished`` is set when its result is there, and at its end."""

    def __init__(self, spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext) -> None:
        self.finished = asyncio.Event()
        self._name = spec.name
        self._received = bytearray()
        self._result: ToolResult | None = None
        self._loop = asyncio.get_running_loop()
        self._pipe_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._pipe_fd, False)
        try:
            self._process = start_worker(spec, arguments, context, spec.deadline_s, write_fd)
        except BaseException:
            os.close(self._pipe_fd)
            raise
        finally:
            os.close(write_fd)
        self._loop.add_reader(self._pipe_fd, self._receive)

    def close(self) -> None:
        """Have the worker end all that the call started, and take its exit status."""
        self._loop.remove_reader(self._pipe_fd)
        self._process.terminate()
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:  # it was stopped, or is stuck: what it keeps dies with it
            self._process.kill()
            self._process.wait(_REAP_S)
        os.close(self._pipe_fd)

    def result(self) -> ToolResult:
        """Give the result that was sent, or say what became of the worker; only after ``close``."""
        return self._result if self._result is not None else lost(self._name, self._process)

    def _receive(self) -> None:
        try:
            chunk = os.read(self._pipe_fd, _CHUNK)
        except BlockingIOError:
            return
        self._received += chunk
        while self._result is None and (end := self._received.find(b"\n")) >= 0:
            told = read_line(self._name, bytes(self._received[:end]))
            del self._received[: end + 1]
            self._result = told if isinstance(told, ToolResult) else None
        if len(self._received) > RESULT_BYTES:
            self._result = error_result(f"{self._name} gave a result of more than {RESULT_BYTES} bytes")
        if not chunk or self._result is not None:
            self._loop.remove_reader(self._pipe_fd)
            self.finished.set()
