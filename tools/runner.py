"""What the process of one call does: takes the plan's steps, loads the one tool, runs it, writes the result, ends.

It speaks to whoever started it through one descriptor, a JSON object a line: ``{"up": bytes}`` when the steps are
taken, ``{"loaded": bytes}`` (what is resident then), ``{"progress": [text, fraction]}``, and ``{"result": …}`` last.
What the tool prints goes where standard output leads. ``run_forked`` is called in a fresh fork, ``main`` is a process
started by exec. It times, watches and kills nothing: that is ``actors/worker_process.py``.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import fcntl
import io
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from callboard.tools.bounds import bounded
from callboard.tools.content import Progress, ToolResult, error_result, result_to_json
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decorator import taken_as_described
from callboard.tools.errors import ToolsError
from callboard.tools.execute import describe, execute
from callboard.tools.loader import load_tool
from callboard.tools.sandbox_plan import EXIT_CHANNEL_LOST, EXIT_NOT_SET_UP, Step
from callboard.tools.sandbox_steps import perform

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from callboard.tools.runner import main; main()"
)
_PR_SET_PDEATHSIG = 1
_CHANNEL_FD = 3
_MOST_DESCRIPTORS = 1 << 20
_UNCATCHABLE = (signal.SIGKILL, signal.SIGSTOP)
_KEPT_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call as its process needs it. ``module`` and ``attribute`` say where the tool is."""

    name: str
    module: str | None
    attribute: str | None
    arguments: Mapping[str, Any]
    context: ToolContext
    steps: tuple[Step, ...]
    environment: Mapping[str, str]
    cwd: str | None

    @property
    def memory_mb(self) -> int | None:
        """The limit that the steps set, in MiB."""
        return next((int(values[0]) for act, values in self.steps if act == "memory"), None)

    def to_json(self) -> str:
        """Give the request's JSON form; raises TypeError or ValueError for arguments that have none."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Request:
        """Read ``to_json``'s form."""
        form = json.loads(text)
        context = ToolContext(**{**form["context"], "roles": tuple(form["context"]["roles"])})
        steps = tuple((act, tuple(values)) for act, values in form["steps"])
        return cls(**{**form, "context": context, "steps": steps})


def run_forked(request: Request, parent_pid: int, output_fd: int, channel_fd: int) -> NoReturn:
    """Run the request in this process, which was forked for it, and end it; never returns, never raises.

    Every descriptor but the two given is closed, and every signal is at its default.
    """
    code = EXIT_NOT_SET_UP
    try:
        _die_with(parent_pid)
        os.setsid()
        _reset_signals()
        _take_descriptors(output_fd, channel_fd)
        for name in list(os.environ):
            if name not in request.environment:
                del os.environ[name]
        os.environ.update(request.environment)
        _wipe_first_environment()
        _forget_temporary_folder()
        code = _serve(request)
    except BaseException:  # the fork must not go back into its parent's frames, whatever happens
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)


def main() -> NoReturn:
    """Read the request from standard input and run it; ``argv`` is the parent's pid (0: do not ask) and the channel."""
    parent_pid, channel_fd = int(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(os.dup(0), "rb") as given:
        request = Request.from_json(given.read())
    if parent_pid:
        _die_with(parent_pid)
    _take_descriptors(1, channel_fd)
    code = _serve(request)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def _serve(request: Request) -> int:
    faulthandler.enable(file=2)
    if request.cwd is not None:
        os.chdir(request.cwd)
    os.umask(0o077)
    perform(step for step in request.steps if step[0] != "memory")
    channel = _Channel()
    channel.say({"up": _resident()})
    try:
        result = _call(request, channel)
        with contextlib.suppress(OSError, ValueError):  # the tool may have closed it
            sys.stdout.flush()
        channel.say({"result": result_to_json(result)})
    except (OSError, _ChannelLost):
        return EXIT_CHANNEL_LOST
    return 0


def _call(request: Request, channel: _Channel) -> ToolResult:
    spec = ToolSpec(
        name=request.name, description="", parameters={}, module=request.module, attribute=request.attribute
    )

    def report(progress: Progress) -> None:
        channel.say({"progress": [progress.text, progress.fraction]})

    try:
        with taken_as_described():
            tool = load_tool(spec)
    except ToolsError as fault:
        return error_result(f"the tool {spec.name} could not be loaded: {fault}", "unavailable")
    try:
        # What the tool's own module needs is not the call's: a library may reserve very much and use little.
        perform(step for step in request.steps if step[0] == "memory")
        channel.say({"loaded": _resident()})
        return bounded(execute(tool, request.arguments, request.context, report))
    except MemoryError:
        limit = f" of {request.memory_mb} MiB" if request.memory_mb is not None else ""
        return error_result(f"{spec.name} exceeded its memory limit{limit}")
    except _ChannelLost:
        raise
    except BaseException as error:  # a tool may raise KeyboardInterrupt: this process runs nothing else
        return error_result(f"{spec.name} failed: {describe(error)}")


class _ChannelLost(BaseException):
    """The tool closed the descriptor to its parent, or put another in its place."""


class _Channel:
    """The way to the parent. What is written is checked to go there: the tool may have closed or replaced it."""

    def __init__(self) -> None:
        self._identity = self._look()

    def say(self, message: Mapping[str, Any]) -> None:
        line = json.dumps(message).encode("ascii") + b"\n"
        if self._look() != self._identity:
            raise _ChannelLost
        view = memoryview(line)
        while view:
            view = view[os.write(_CHANNEL_FD, view) :]

    def _look(self) -> tuple[int, int] | None:
        try:
            seen = os.fstat(_CHANNEL_FD)
        except OSError:
            return None
        return seen.st_dev, seen.st_ino


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as figures:  # noqa: PTH123
        return int(figures.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _die_with(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(EXIT_NOT_SET_UP)


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in range(1, signal.NSIG):
        if signal.getsignal(number) not in (signal.SIG_DFL, None) and number not in _UNCATCHABLE:
            signal.signal(number, signal.SIG_DFL)
    for number in _KEPT_IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _take_descriptors(output_fd: int, channel_fd: int) -> None:
    """Nothing to read, output to the parent, the channel at its place, and no other descriptor."""
    channel_fd = fcntl.fcntl(channel_fd, fcntl.F_DUPFD, _CHANNEL_FD + 1)
    output_fd = fcntl.fcntl(output_fd, fcntl.F_DUPFD, _CHANNEL_FD + 1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.dup2(channel_fd, _CHANNEL_FD, inheritable=False)
    os.closerange(_CHANNEL_FD + 1, _MOST_DESCRIPTORS)
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        mode = "r" if fd == 0 else "w"
        stream = open(fd, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)


def _wipe_first_environment() -> None:
    """The kernel shows, as the process's environment, the memory where that lay when its ancestor was started."""
    with open("/proc/self/stat", "rb") as stat:  # noqa: PTH123
        fields = stat.read().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    if 0 < start < end:
        ctypes.memset(start, 0, end - start)


def _forget_temporary_folder() -> None:
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
