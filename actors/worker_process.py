"""The process of one call: started, listened to, watched, and ended with everything that it started.

It knows no actor: it gives descriptors to wait for and takes what is to be done when they are ready, so that a client
(``actors/call_worker.py``), ``callboard.testing.tools`` and ``doctor`` drive the same thing. It forks the tool worker
(``tools/keeper.py``), which has the call's own process (``tools/runner.py``) below it. That is made ready before its
call is there, or together with it. Nothing is decided here about what a call may use (``tools/sandbox_plan.py``) or
what the model is told (``actors/worker_endings.py``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from callboard.actors import worker_endings as endings
from callboard.actors import worker_tree as tree
from callboard.actors.captured import Captured
from callboard.actors.messages import Work
from callboard.actors.worker_endings import RESULT_BYTES, Cause
from callboard.tools.content import ContentError, Progress, ToolResult, error_result, result_from_json
from callboard.tools.contract import ToolSpec
from callboard.tools.fork_server import Order, fork_worker
from callboard.tools.keeper import LAST_WORD_BYTES, last_word
from callboard.tools.kept_source import read_kept
from callboard.tools.limits import Limits
from callboard.tools.runner import BOOT, Ends, Setup
from callboard.tools.sandbox_host import host
from callboard.tools.sandbox_plan import EXIT_NOT_SET_UP, Host, Place, Plan, make_plan

Fork: TypeAlias = Callable[[Order, Ends], int]

LOOK_EVERY_S = 0.1
_NICE_AFTER_S = 0.1
_NICE = 15
_FOLDER_EVERY = 3
_CHUNK = 1 << 18
_CHUNKS_AT_ONCE = 16
_DYING_S = 0.001
_MIB = 1024 * 1024
_SIGNALLED = 128


class WorkProcess:
    """One call's process: ``start`` it, ``hand_over`` the call, wait for ``channel_fd``, ``output_fd`` and ``pidfd``,
    ``end`` it, take its ``result``, and ``reap`` until nothing of it is left; at last ``close``.
    """

    def __init__(self, spec: ToolSpec, folder: Path, title: str = "", fork: Fork = fork_worker) -> None:
        self._title = title or spec.name
        self._fork = fork
        self._spec = spec
        self._folder = folder
        self._limits: Limits = spec.limits
        self._deadline_s = spec.deadline_s
        self._received = bytearray()
        self._printed = Captured()
        self._is_up = self._is_loaded = False
        self._resident_at_start = 0
        self._looks = 0
        self._polite: set[int] = set()
        self._cause: Cause | None = None
        self._code: int | None = None
        self._result: ToolResult | None = None
        self._request = self._call_w = -1
        self.pid = 0
        self.pidfd = self.channel_fd = self.output_fd = -1
        self.channel_is_open = self.output_is_open = True

    def start(self) -> None:
        """Start the process: it loads the tool and waits for its call. Raises ProfileRefused or OSError."""
        by_fork = self._limits.sandbox == "none"
        code = () if by_fork else _code_paths(self._spec.module)
        place = Place(folder=str(self._folder), code=code)
        plan = make_plan(self._limits, Host() if by_fork else host(), place, os.environ)
        setup = _setup(self._spec, plan).to_json().encode("ascii")
        self.channel_fd, channel_w = os.pipe2(os.O_CLOEXEC)
        self.output_fd, output_w = os.pipe2(os.O_CLOEXEC)
        call_r, self._call_w = os.pipe2(os.O_CLOEXEC)
        self._request = _shared_memory(setup)
        ends = Ends(calls=call_r, request=self._request, output=output_w, channel=channel_w)
        try:
            self.pid = self._fork(self._order(plan, setup), ends)
            self.pidfd = os.pidfd_open(self.pid)
        except BaseException:
            self.close()
            raise
        finally:
            for fd in (channel_w, output_w, call_r):
                os.close(fd)
        for fd in (self.channel_fd, self.output_fd):
            os.set_blocking(fd, False)

    def _order(self, plan: Plan, setup: bytes) -> Order:
        command: tuple[str, ...] = ()
        if plan.by_exec:
            path = json.dumps([entry or str(Path.cwd()) for entry in sys.path])
            command = (*plan.exec_prefix, sys.executable, "-I", "-c", BOOT, path, str(len(setup)))
        return Order(
            title=self._title,
            folder=str(self._folder),
            command=command,
            environment=plan.environment,
            setup_bytes=len(setup),
        )

    def hand_over(self, call: bytes, deadline_s: float) -> None:
        """Give the process its one call (``call_of``). It never waits: the call lies in memory that both share."""
        self._deadline_s = deadline_s
        at = os.lseek(self._request, 0, os.SEEK_END)
        with os.fdopen(os.dup(self._request), "wb") as file:
            file.write(call)
        with contextlib.suppress(BrokenPipeError):  # it is gone already, which is heard elsewhere
            os.write(self._call_w, f"{at} {len(call)}\n".encode("ascii"))

    # ------------------------------------------------------------ while it runs
    @property
    def is_over(self) -> bool:
        """True when there is nothing more to wait for: it has a result, or a limit was hit."""
        return self._result is not None or self._cause is not None

    def read_channel(self) -> list[Progress]:
        """Take what the process says; gives the progress among it."""
        progress: list[Progress] = []
        for _ in range(_CHUNKS_AT_ONCE):
            chunk = _read(self.channel_fd)
            if not chunk:
                self.channel_is_open = chunk is None
                break
            searched = len(self._received)
            self._received += chunk
            if b"\n" in chunk:
                progress += self._take_lines(searched)
        if len(self._received) > RESULT_BYTES:
            self.stop("result")
        return progress

    def read_output(self) -> None:
        """Take what the tool printed."""
        for _ in range(_CHUNKS_AT_ONCE):
            chunk = _read(self.output_fd)
            if not chunk:
                self.output_is_open = chunk is None
                break
            self._printed.add(chunk)
        if self._printed.total_bytes > self._limits.output_mb * _MIB:
            self.stop("output")

    def look(self) -> None:
        """See what the call uses, and end it where that is too much; to be called every ``LOOK_EVERY_S``."""
        pids = tree.below(self.pid)
        used = tree.used_by((self.pid, *pids))
        self._looks += 1
        if used.cpu_s > _NICE_AFTER_S and (new := set(pids) - self._polite):
            tree.make_polite(new, _NICE)
            self._polite = set(pids)
        limits = self._limits
        if limits.cpu_s is not None and used.cpu_s > limits.cpu_s:
            self.stop("cpu")
        elif len(pids) > limits.processes:
            self.stop("processes")
        elif limits.memory_mb is not None and self._takes_more_than(limits.memory_mb * _MIB, used):
            self.stop("memory")
        elif self._looks % _FOLDER_EVERY == 0 and tree.folder_bytes(self._folder) > limits.file_mb * _MIB:
            self.stop("folder")

    @property
    def is_ready(self) -> bool:
        """True when the tool is loaded, and nothing has gone wrong so far."""
        return self._is_loaded and not self.is_over

    def stop(self, cause: Cause) -> None:
        """End the call for this cause, unless its result is there."""
        if not self.is_over:
            self._cause = cause

    def _takes_more_than(self, limit: int, used: tree.Used) -> bool:
        """What forks share is counted once: that costs more to find out, so only where the plain sum is over."""
        own = [max(0, size - self._resident_at_start) for size in used.resident.values()]
        if sum(own) <= limit:
            return False
        if len(own) == 1:
            return True
        return sum(tree.proportional(pid) for pid in used.resident) - self._resident_at_start > limit

    def _take_lines(self, searched: int) -> list[Progress]:
        progress = []
        while (end := self._received.find(b"\n", searched)) >= 0:
            line, self._received = self._received, self._received[end + 1 :]
            del line[end:]
            searched = 0
            if self._result is None:
                progress += self._take(line)
        return progress

    def _take(self, line: bytearray) -> list[Progress]:
        try:
            match _parsed(line):
                case {"up": int(resident)} if not self._is_up:
                    self._is_up = True
                    self._resident_at_start = resident
                case {"loaded": int(resident)} if not self._is_loaded:
                    self._is_loaded = True
                    self._resident_at_start = resident
                case {"progress": [str(text), float() | int() | None as fraction]}:
                    return [Progress(text, fraction)]
                case {"result": {} as form}:
                    self._result = result_from_json(form)
                case _:
                    raise ContentError("a line of no known form")
        except (ValueError, KeyError, TypeError, RecursionError) as fault:
            self._result = error_result(f"{self._spec.name} gave a result that cannot be read: {fault}")
        return []

    # ------------------------------------------------------------ the end
    def end(self) -> None:
        """Kill the process and everything below it: from now on none of them takes another step of its own.

        What the call comes to is known then; ``reap`` says when they are gone.
        """
        if not self.pid:
            return
        if self.pidfd >= 0 and not self.is_over:
            self._collect()
            self._code = _exit_code(last_word(self._request), self._limits.sandbox)
        tree.kill_all(tree.below(self.pid))
        if self.output_fd >= 0 and self.output_is_open:
            self.read_output()

    def reap(self) -> bool:
        """See whether the worker has ended, which it does when all of the call has. Only after ``end``."""
        if not self.pid:
            return True
        if not select.select([self.pidfd], [], [], 0)[0]:
            return False
        tree.collect(self.pid)
        self.pid = 0
        return True

    def give_up(self) -> None:
        """End the worker itself, where the call has not ended in time: what is left has another to end it."""
        if self.pid:
            tree.kill_all((self.pid,))

    def reap_within(self, seconds: float) -> bool:
        """Wait at most so long for ``reap``; for whoever has nothing else to do."""
        give_up_at = time.monotonic() + seconds
        while not self.reap():
            if time.monotonic() >= give_up_at:
                return False
            select.select([], [], [], _DYING_S)
        return True

    def close(self) -> None:
        """Close what there is to wait for."""
        for fd in (self.channel_fd, self.output_fd, self.pidfd, self._request, self._call_w):
            if fd >= 0:
                os.close(fd)
        self.channel_fd = self.output_fd = self.pidfd = self._request = self._call_w = -1

    def result(self) -> ToolResult:
        """Give the call's one result, with what it printed; only after ``end``."""
        return replace(self._outcome(), output=self._printed.text())

    def _outcome(self) -> ToolResult:
        name, limits = self._spec.name, self._limits
        if self._result is not None:
            return self._result
        if self._cause is not None:
            return endings.ended_for(name, self._cause, limits, self._deadline_s)
        code = self._code if self._code is not None else -9
        if not self._is_up and (limits.sandbox != "none" or code == EXIT_NOT_SET_UP):
            return endings.not_set_up(name, limits.sandbox, code, self._printed.text())
        return endings.ended_by_itself(name, code, limits)

    def _collect(self) -> None:
        """The process has ended, or is about to be ended from outside: what it said last counts."""
        before = -1
        while before != len(self._received) and self._result is None:
            before = len(self._received)
            self.read_channel()


def call_of(work: Work) -> bytes:
    """Give the form in which a worker takes its call; raises TypeError or ValueError for what has no JSON form."""
    form = {"arguments": work.arguments, "context": dataclasses.asdict(work.context)}
    return json.dumps(form).encode("ascii")


def _parsed(line: bytearray) -> Any:
    """A line may have 90 MB: it is let go of as soon as it is text."""
    text = line.decode("utf-8")
    line.clear()
    return json.loads(text)


def _exit_code(said: int | None, profile: str) -> int | None:
    """Bubblewrap says a signal as a shell does."""
    isolated = profile == "isolated" and said is not None and said > _SIGNALLED
    return _SIGNALLED - said if isolated and said is not None else said


def _read(fd: int) -> bytes | None:
    """Give what is there, b"" at the end of the stream, None when nothing is there now."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


def _setup(spec: ToolSpec, plan: Plan) -> Setup:
    kept = read_kept(spec.kept_source)
    return Setup(
        name=spec.name,
        module=spec.module,
        attribute=spec.attribute,
        steps=plan.steps,
        environment=plan.environment,
        cwd=plan.cwd,
        kept_source=spec.kept_source,
        kept=None if kept is None else kept.decode("latin-1"),
    )


def _shared_memory(setup: bytes) -> int:
    """Give memory that begins with room for the worker's last word, and the setup behind that."""
    fd = os.memfd_create("callboard-call")
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(bytes(LAST_WORD_BYTES) + setup)
    return fd


def _code_paths(module: str | None) -> tuple[str, ...]:
    """Give the paths that Python, Callboard and the tool's module are loaded from; what is not there is left out."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, *(path for path in sys.path if path)}
    found.add(os.path.realpath(sys.executable))
    callboard = Path(sys.modules["callboard"].__file__ or __file__).parent
    found |= {
        str(callboard),
        *(str(folder.resolve()) for folder in callboard.iterdir() if folder.is_symlink()),
    }
    if module is not None and module.endswith(".py"):
        found.add(str(Path(module).resolve()))
    elif module is not None:
        found |= _locations(module.partition(".")[0])
    return tuple(sorted(path for path in found if path != "/" and Path(path).exists()))


def _locations(package: str) -> set[str]:
    """An editable install lies elsewhere than the path says: its finder knows."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return set()
    places: list[Any] = list(spec.submodule_search_locations or ())
    return {os.path.realpath(place) for place in (*places, spec.origin) if place and Path(place).exists()}
