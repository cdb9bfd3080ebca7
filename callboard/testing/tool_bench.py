"""A process that keeps one call of a tool after the other: each then costs a fork, not a start of Python.

For test suites with many calls; ``callboard.testing.tools`` is the plain way for a few. Calls are run one at a time,
each in a worker of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callboard.actors.messages import Work
from callboard.one_call import lost, read_line
from callboard.run_worker import keep, work_from_json, work_to_json
from callboard.supervisor.process import bind_to_parent
from callboard.tools.content import Progress, ToolResult, result_to_json
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.fork_server import ForkServer

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from callboard.testing.tool_bench import serve; serve()"
)
_LEAVE_S = 10.0


class ToolBench:
    """``folder`` takes the private folders of the calls; use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        channel_r, channel_w = os.pipe2(os.O_CLOEXEC)
        path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, path, str(os.getpid()), str(channel_w)],
            stdin=subprocess.PIPE,
            stdout=2,
            pass_fds=(channel_w,),
            env={**os.environ, "TMPDIR": str(self._folder)},
        )
        os.close(channel_w)
        self._channel = os.fdopen(channel_r, "rb")
        self._channel.readline()  # it is up, with all that it starts
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_LEAVE_S)
        self._channel.close()

    def call(
        self, spec: ToolSpec, arguments: Mapping[str, Any], context: ToolContext | None = None
    ) -> tuple[ToolResult, list[Progress]]:
        """Run the call to its end; give its result, and the progress that was told on the way."""
        work = Work(
            spec=spec, arguments=arguments, context=context or ToolContext(), deadline_s=spec.deadline_s
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(work_to_json(work)).encode("ascii") + b"\n")
        self._process.stdin.flush()
        told: list[Progress] = []
        for line in self._channel:
            match read_line(spec.name, line):
                case Progress() as progress:
                    told.append(progress)
                case ToolResult() as result:
                    return result, told
        self._process.wait(_LEAVE_S)
        return lost(spec.name, self._process), told

    def folders(self) -> list[Path]:
        """List the private folders that are there now; between two calls there should be none."""
        return list(self._folder.glob("callboard-call-*"))


def serve() -> None:
    """Keep the calls that standard input names, one a line; ``argv`` is the parent's pid and the channel."""
    bind_to_parent(int(sys.argv[1]))
    os.set_inheritable(int(sys.argv[2]), False)
    never_r, never_w = os.pipe2(os.O_CLOEXEC)
    forks = ForkServer("tool bench (fork server)")
    forks.start()
    with os.fdopen(int(sys.argv[2]), "w", encoding="ascii") as channel:

        def say(message: Mapping[str, Any]) -> None:
            channel.write(json.dumps(message) + "\n")
            channel.flush()

        say({"up": True})
        for line in sys.stdin.buffer:
            work = work_from_json(json.loads(line))
            result = keep(work, never_r, lambda p: say({"progress": [p.text, p.fraction]}), forks.fork)
            assert result is not None, "nobody stops a call of a bench"
            say({"result": result_to_json(result)})
    os.close(never_w)
    forks.close()
