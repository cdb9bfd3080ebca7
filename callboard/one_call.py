"""One call of one tool in a real worker, without a daemon: for tests of tools, and for ``doctor``.

It starts ``callboard/run_worker.py`` by exec, which has the worker below it, and waits; the caller is never forked.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from callboard.actors.messages import Work
from callboard.actors.worker_folder import remove_stale
from callboard.run_worker import BOOT, work_to_json
from callboard.supervisor.process import describe_exit
from callboard.tools.content import ContentError, Progress, ToolResult, error_result, result_from_json
from callboard.tools.contract import ToolContext, ToolSpec

_LEAVE_S = 10.0


def start_worker(
    spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext, deadline_s: float, channel_fd: int
) -> subprocess.Popen[bytes]:
    """Start a worker that writes to ``channel_fd``; end it by SIGTERM, and it ends all that it started.

    Raises OSError, or TypeError for arguments that have no JSON form.
    """
    work = Work(spec=spec, arguments=dict(arguments), context=context, deadline_s=deadline_s)
    request = json.dumps({"work": work_to_json(work), "parent": os.getpid()}).encode("ascii")
    path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
    stdin_fd = os.memfd_create("callboard-request")  # holds any size, so nothing waits for the worker to read
    try:
        with os.fdopen(os.dup(stdin_fd), "wb") as file:
            file.write(request)
        os.lseek(stdin_fd, 0, os.SEEK_SET)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT, path, str(channel_fd)],
            stdin=stdin_fd,
            stdout=2,
            pass_fds=(channel_fd,),
            start_new_session=True,
        )
    finally:
        os.close(stdin_fd)


def run_one(
    spec: ToolSpec,
    arguments: Mapping[str, Any],
    context: ToolContext | None = None,
    *,
    progressed: Callable[[Progress], None] | None = None,
) -> ToolResult:
    """Run the call within ``spec.deadline_s`` seconds and give its result; every way to end is one."""
    channel_r, channel_w = os.pipe2(os.O_CLOEXEC)
    with os.fdopen(channel_r, "rb") as channel:
        try:
            worker = start_worker(spec, arguments, context or ToolContext(), spec.deadline_s, channel_w)
        finally:
            os.close(channel_w)
        try:
            for line in channel:
                told = read_line(spec.name, line)
                if isinstance(told, ToolResult):
                    return told
                if progressed is not None:
                    progressed(told)
        finally:
            worker.terminate()
            worker.wait(_LEAVE_S)
    return lost(spec.name, worker)


def read_line(name: str, line: bytes) -> Progress | ToolResult:
    """Read one line of a worker's; what cannot be read is an error result."""
    try:
        match json.loads(line):
            case {"progress": [str(text), fraction]}:
                return Progress(text, fraction)
            case {"result": {} as form}:
                return result_from_json(form)
            case _:
                raise ContentError("a line of no known form")
    except (ValueError, ContentError, KeyError, TypeError) as fault:
        return error_result(f"{name} gave a result that cannot be read: {fault}")


def lost(name: str, worker: subprocess.Popen[bytes]) -> ToolResult:
    """Give the result of a call whose worker has ended without one, and remove the folder that it left."""
    with contextlib.suppress(OSError):  # the next system that starts will remove it
        remove_stale(worker.pid)
    how = describe_exit(worker.returncode)
    verb = "" if how.startswith("exited") else "was "
    return error_result(f"{name} did not finish: its process {verb}{how}", "killed")
