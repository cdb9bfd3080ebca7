"""How ``callboard.run`` carries out one call: in a process of its own, or on a thread of the caller's.

Every way for a call to end comes out as one ToolResult, within the deadline. A worker process is started by
exec (the caller is never forked), leads its own process group, and the whole group is gone when the call is
over, cancelled calls included. A thread cannot be killed: past its deadline it is left alone, and said so.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import dataclasses
import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from callboard.run_worker import result_from_json
from callboard.supervisor.process import describe_exit, kill_group
from callboard.tools.content import ContentError, ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decorator import Tool
from callboard.tools.execute import describe, execute

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from callboard.run_worker import main; main()"
)
_CHUNK = 1 << 16
_MAX_RESULT_BYTES = 64 * 1024 * 1024
_LEAVE_S = 2.0
_REAP_S = 10.0


async def call_in_worker(spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Run the call in a new process; ``spec`` must name a module that it can import."""
    try:
        worker = _Worker(spec, arguments, context)
    except OSError as fault:
        return error_result(f"no process could be started for {spec.name}: {fault}", "unavailable")
    try:
        async with asyncio.timeout(spec.deadline_s):
            await worker.finished.wait()
        with contextlib.suppress(TimeoutError):  # the result is there: what still runs is cut off
            async with asyncio.timeout(_LEAVE_S):
                await worker.gone.wait()
    except TimeoutError:
        message = f"{spec.name} exceeded its deadline of {spec.deadline_s:g} s and was killed"
        return error_result(message, "deadline")
    finally:
        worker.close()
    return worker.result()


async def call_on_thread(
    tool: Tool, spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext
) -> ToolResult:
    """Run the call on a daemon thread of this process."""
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
    """One worker process. ``finished`` is set when its result is complete, and with ``gone`` at its end."""

    def __init__(self, spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext) -> None:
        self.finished = asyncio.Event()
        self.gone = asyncio.Event()
        self._name = spec.name
        self._received = bytearray()
        self._loop = asyncio.get_running_loop()
        self._pipe_fd, write_fd = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._pipe_fd, False)
        try:
            self._process = _start(_request(spec, arguments, context), write_fd)
        except BaseException:
            os.close(self._pipe_fd)
            raise
        finally:
            os.close(write_fd)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError:
            kill_group(self._process.pid)
            self._process.wait(_REAP_S)
            os.close(self._pipe_fd)
            raise
        self._loop.add_reader(self._pipe_fd, self._receive)
        self._loop.add_reader(self._pidfd, self._leave)

    def close(self) -> None:
        """End the whole process group, and take the exit status; the group is killed before its leader is
        reaped, for until then its number cannot be anybody else's."""
        self._loop.remove_reader(self._pipe_fd)
        self._loop.remove_reader(self._pidfd)
        kill_group(self._process.pid)
        self._process.wait(_REAP_S)
        os.close(self._pidfd)
        os.close(self._pipe_fd)

    def result(self) -> ToolResult:
        """Give the result that was sent, or say what became of the process; only after ``close``."""
        line, end, _ = bytes(self._received).partition(b"\n")
        if len(line) > _MAX_RESULT_BYTES:
            return error_result(f"{self._name} gave a result of more than {_MAX_RESULT_BYTES} bytes")
        if end:
            try:
                return result_from_json(json.loads(line))
            except (ValueError, ContentError, KeyError, TypeError) as fault:
                return error_result(f"{self._name} gave a result that cannot be read: {fault}")
        how = describe_exit(self._process.returncode)
        verb = "" if how.startswith("exited") else "was "
        return error_result(f"{self._name} did not finish: its process {verb}{how}", "killed")

    def _receive(self) -> None:
        try:
            chunk = os.read(self._pipe_fd, _CHUNK)
        except BlockingIOError:
            return
        self._received += chunk
        if not chunk:
            self._loop.remove_reader(self._pipe_fd)
        if b"\n" in chunk or len(self._received) > _MAX_RESULT_BYTES:
            self._loop.remove_reader(self._pipe_fd)
            self.finished.set()

    def _leave(self) -> None:
        self._loop.remove_reader(self._pidfd)
        with contextlib.suppress(BlockingIOError):  # what is still in the pipe fits into a few reads
            while len(self._received) <= _MAX_RESULT_BYTES and (chunk := os.read(self._pipe_fd, _CHUNK)):
                self._received += chunk
        self.gone.set()
        self.finished.set()


def _request(spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext) -> bytes:
    named: dict[str, Any] = {
        "name": spec.name,
        "description": "",
        "parameters": {},
        "module": spec.module,
        "attribute": spec.attribute,
        "memory_mb": spec.memory_mb,
    }
    request = {
        "spec": named,
        "arguments": dict(arguments),
        "context": dataclasses.asdict(context),
        "parent": os.getpid(),
    }
    return json.dumps(request).encode("ascii")


def _start(request: bytes, result_fd: int) -> subprocess.Popen[bytes]:
    path = json.dumps([entry or str(os.getcwd()) for entry in sys.path])  # noqa: PTH109
    stdin_fd = os.memfd_create("callboard-request")  # holds any size, so nothing waits for the worker to read
    try:
        with os.fdopen(os.dup(stdin_fd), "wb") as file:
            file.write(request)
        os.lseek(stdin_fd, 0, os.SEEK_SET)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, path, str(result_fd)],
            stdin=stdin_fd,
            stdout=2,
            pass_fds=(result_fd,),
            start_new_session=True,
        )
    finally:
        os.close(stdin_fd)
