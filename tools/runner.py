"""The process of one call: it takes the plan's steps, loads one tool, waits for its call, runs it, and ends.

It speaks to whoever started it through one descriptor, a JSON object a line: ``{"up": bytes}`` when the steps are
taken, ``{"loaded": bytes}`` (what is resident then), ``{"progress": [text, fraction]}``, and ``{"result": …}`` last.
The call comes in memory shared with whoever started it; a line on a descriptor of its own says where in it. What the
tool prints goes where standard output leads. ``run_forked`` is called in a fresh fork, ``main`` is a process started by
exec. It times, watches and kills nothing: that is ``actors/worker_process.py``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import io
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from callboard.tools.bounds import bounded
from callboard.tools.content import Progress, ToolResult, error_result, result_to_json
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decorator import taken_as_described
from callboard.tools.environment import keep_only
from callboard.tools.errors import ToolsError
from callboard.tools.execute import describe, execute
from callboard.tools.keeper import die_with
from callboard.tools.loader import load_tool
from callboard.tools.sandbox_plan import EXIT_CHANNEL_LOST, EXIT_NOT_SET_UP, Step
from callboard.tools.sandbox_steps import perform

BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from callboard.tools.runner import main; main()"
)
_CHANNEL_FD = 3
_REQUEST_FD = 4
_CALLS_FD = 5
_LINE_BYTES = 64
_MOMENT_S = 0.05
_TOLD_IN_A_MOMENT = 10
_MOST_DESCRIPTORS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a worker needs before its call is there. ``module`` and ``attribute`` say where the tool is.

    ``kept`` is what a catalogue keeps of the module at ``kept_source``, a character for each byte; None: not there.
    """

    name: str
    module: str | None
    attribute: str | None
    steps: tuple[Step, ...]
    environment: Mapping[str, str]
    cwd: str | None
    kept_source: str = ""
    kept: str | None = None

    @property
    def memory_mb(self) -> int | None:
        """The limit that the steps set, in MiB."""
        return next((int(values[0]) for act, values in self.steps if act == "memory"), None)

    def to_json(self) -> str:
        """Give the JSON form."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Setup:
        """Read ``to_json``'s form."""
        form = json.loads(text)
        steps = tuple((act, tuple(values)) for act, values in form["steps"])
        return cls(**{**form, "steps": steps})


@dataclass(frozen=True, slots=True)
class Ends:
    """The worker's descriptors: the lines that say where its call is and the memory that holds it, the two ways out of
    the call's process, and its own for its last word.
    """

    calls: int
    request: int
    output: int
    channel: int
    word: int


def run_forked(setup_bytes: int, worker_pid: int, ends: Ends) -> NoReturn:
    """Be the call's process, in a fork of the worker's; never returns, never raises.

    Every descriptor but those given is closed.
    """
    code = EXIT_NOT_SET_UP
    try:
        die_with(worker_pid)
        os.setsid()
        _take_descriptors(ends)
        setup = _read_setup(setup_bytes)
        keep_only(setup.environment)
        _forget_temporary_folder()
        _renew_streams()
        code = _serve(setup)
    except BaseException:  # the fork must not go back into its parent's frames, whatever happens
        with contextlib.suppress(BaseException):
            sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
        os._exit(code)


def run_executed(
    command: tuple[str, ...], environment: Mapping[str, str], worker_pid: int, ends: Ends
) -> NoReturn:
    """Become the command, which leads to ``main``, in a fork of the worker's; never returns, never raises."""
    try:
        die_with(worker_pid)
        os.setsid()
        _take_descriptors(ends)
        for fd in (_CHANNEL_FD, _REQUEST_FD, _CALLS_FD):
            os.set_inheritable(fd, True)
        os.execvpe(command[0], command, environment)
    except BaseException as fault:  # as above
        os.write(2, f"{command[0]} cannot be started: {fault}\n".encode(errors="replace"))
    finally:
        os._exit(EXIT_NOT_SET_UP)


def main() -> NoReturn:
    """Be the call's process, where ``run_executed`` led to; ``argv[1]`` bytes of the shared memory are the setup."""
    for fd in (_CHANNEL_FD, _REQUEST_FD, _CALLS_FD):
        os.set_inheritable(fd, False)
    setup = _read_setup(int(sys.argv[1]))
    _renew_streams()
    code = _serve(setup)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def _serve(setup: Setup) -> int:
    faulthandler.enable(file=2)
    if setup.cwd is not None:
        os.chdir(setup.cwd)
    os.umask(0o077)
    perform(step for step in setup.steps if step[0] != "memory")
    channel = _Channel()
    channel.say({"up": _resident()})
    try:
        result = _call(setup, channel)
        with contextlib.suppress(OSError, ValueError):  # the tool may have closed it
            sys.stdout.flush()
        if result is not None:
            channel.say({"result": result_to_json(result)})
    except (OSError, _ChannelLost):
        return EXIT_CHANNEL_LOST
    return 0


def _call(setup: Setup, channel: _Channel) -> ToolResult | None:
    """Load, wait, run; None when nobody wants the worker any more."""
    spec = ToolSpec(
        name=setup.name,
        description="",
        parameters={},
        module=setup.module,
        attribute=setup.attribute,
        kept_source=setup.kept_source,
    )
    kept = None if setup.kept is None else setup.kept.encode("latin-1")

    throttle = _Throttle()

    def report(progress: Progress) -> None:
        if throttle.lets_through():
            channel.say({"progress": [progress.text, progress.fraction]})

    try:
        with taken_as_described():
            tool = load_tool(spec, kept)
    except ToolsError as fault:
        return error_result(f"the tool {spec.name} could not be loaded: {fault}", "unavailable")
    try:
        # What the tool's own module needs is not the call's: a library may reserve very much and use little.
        perform(step for step in setup.steps if step[0] == "memory")
        channel.say({"loaded": _resident()})
        given = _take_call()
        if given is None:
            return None
        arguments, context = given
        return bounded(execute(tool, arguments, context, report))
    except MemoryError:
        limit = f" of {setup.memory_mb} MiB" if setup.memory_mb is not None else ""
        return error_result(f"{spec.name} exceeded its memory limit{limit}")
    except _ChannelLost:
        raise
    except BaseException as error:  # a tool may raise KeyboardInterrupt: this process runs nothing else
        return error_result(f"{spec.name} failed: {describe(error)}")


def _take_call() -> tuple[Mapping[str, Any], ToolContext] | None:
    """Wait for the call; from then on no memory is shared."""
    line = os.read(_CALLS_FD, _LINE_BYTES)
    if not line:
        return None
    at, length = (int(number) for number in line.split())
    form = json.loads(_read_at(_REQUEST_FD, at, length))
    os.close(_CALLS_FD)
    os.close(_REQUEST_FD)
    context = form["context"]
    return form["arguments"], ToolContext(**{**context, "roles": tuple(context["roles"])})


def _read_setup(length: int) -> Setup:
    return Setup.from_json(_read_at(_REQUEST_FD, 0, length))


def _read_at(fd: int, at: int, length: int) -> bytes:
    parts = []
    while length and (part := os.pread(fd, length, at)):
        parts.append(part)
        at, length = at + len(part), length - len(part)
    return b"".join(parts)


class _Throttle:
    """Of progress that comes faster than anybody reads, the rest of each moment is dropped."""

    def __init__(self) -> None:
        self._until = 0.0
        self._left = 0

    def lets_through(self) -> bool:
        now = time.monotonic()
        if now >= self._until:
            self._until, self._left = now + _MOMENT_S, _TOLD_IN_A_MOMENT
        self._left -= 1
        return self._left >= 0


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


def _take_descriptors(ends: Ends) -> None:
    """Nothing to read, output and channel at their places, the two for the call, and no other descriptor."""
    given = (ends.output, ends.channel, ends.request, ends.calls)
    output, channel, request, calls = (fcntl.fcntl(fd, fcntl.F_DUPFD, _CALLS_FD + 1) for fd in given)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for fd, place in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(fd, place)
    for fd, place in ((channel, _CHANNEL_FD), (request, _REQUEST_FD), (calls, _CALLS_FD)):
        os.dup2(fd, place, inheritable=False)
    os.closerange(_CALLS_FD + 1, _MOST_DESCRIPTORS)


def _renew_streams() -> None:
    for name, fd in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        mode = "r" if fd == 0 else "w"
        stream = open(fd, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)
        setattr(sys, name, stream)


def _forget_temporary_folder() -> None:
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        tempfile.tempdir = None  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
