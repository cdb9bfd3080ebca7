"""The process of one call: started, listened to, watched, and ended with everything that it started.

It knows no actor: it gives descriptors to wait for and takes what is to be done when they are ready, so that a client
(``actors/call_worker.py``), ``callboard.testing.tools`` and ``doctor`` drive the same thing. It has the tool worker
forked (``tools/keeper.py``), which has the call's own process (``tools/runner.py``) below it. That is made ready before
its call is there, or together with it. Nothing is decided here about what a call may use (``tools/sandbox_plan.py``) or
what the model is told (``actors/worker_endings.py``).
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from callboard.actors import worker_endings as endings
from callboard.actors import worker_tree as tree
from callboard.actors.captured import Captured
from callboard.actors.messages import Work
from callboard.actors.worker_channel import ChannelLines
from callboard.actors.worker_endings import RESULT_BYTES, Cause
from callboard.actors.worker_start import prepare
from callboard.tools.content import Progress, ToolResult
from callboard.tools.contract import ToolSpec
from callboard.tools.fork_server import Order, fork_worker
from callboard.tools.keeper import last_word
from callboard.tools.limits import Limits
from callboard.tools.processes import kill_all
from callboard.tools.runner import Ends
from callboard.tools.sandbox_plan import EXIT_NOT_SET_UP

Fork: TypeAlias = Callable[[Order, Ends], tuple[int, int]]

LOOK_EVERY_S = 0.1
_NICE_AFTER_S = 0.1
_NICE = 15
_FOLDER_EVERY = 3
_FOLDER_LOOK_S = 0.005
_CHUNK = 1 << 18
_CHUNKS_AT_ONCE = 16
_DYING_S = 0.001
_MIB = 1024 * 1024
_LOADING_MIB = 1024
_SIGNALLED = 128
_TOLD_AT_ONCE = 1000
_TOLD_PER_S = 400.0


class WorkProcess:
    """One call's process: ``start`` it, ``hand_over`` the call, wait for ``channel_fd``, ``output_fd`` and ``word_fd``
    (which is ready when the call's process has ended), ``end`` it, take its ``result``, and ``reap`` until nothing of
    it is left, which ``pidfd`` tells; at last ``close``.
    """

    def __init__(self, spec: ToolSpec, folder: Path, title: str = "", fork: Fork = fork_worker) -> None:
        self._title = title or spec.name
        self._fork = fork
        self._spec = spec
        self._folder = folder
        self._limits: Limits = spec.limits
        self._deadline_s = spec.deadline_s
        self._lines = ChannelLines(spec.name)
        self._printed = Captured()
        self._files = tree.FolderCount(folder)
        self._looks = 0
        self._polite: set[int] = set()
        self._cause: Cause | None = None
        self._code: int | None = None
        self._request = self._call_w = -1
        self._began = time.monotonic()
        self.pid = 0
        self.pidfd = self.channel_fd = self.output_fd = self.word_fd = -1
        self.channel_is_open = self.output_is_open = True

    def start(self) -> None:
        """Start the process: it loads the tool and waits for its call. Raises ProfileRefused or OSError."""
        order, self._request = prepare(self._spec, self._folder, self._title)
        theirs: list[int] = []
        try:
            self.channel_fd, self.output_fd, self.word_fd = (_way_out(theirs) for _ in range(3))
            call_r, self._call_w = os.pipe2(os.O_CLOEXEC)
            theirs.append(call_r)
            channel, output, word, calls = theirs
            ends = Ends(calls=calls, request=self._request, output=output, channel=channel, word=word)
            self.pid, self.pidfd = self._fork(order, ends)
        except BaseException:
            self.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)

    def hand_over(self, call: bytes, deadline_s: float) -> None:
        """Give the process its one call (``call_of``). It never waits: the call lies in memory that both share."""
        self._deadline_s = deadline_s
        self._began = time.monotonic()
        at = os.lseek(self._request, 0, os.SEEK_END)
        with os.fdopen(os.dup(self._request), "wb") as file:
            file.write(call)
        with contextlib.suppress(BrokenPipeError):  # it is gone already, which is heard elsewhere
            os.write(self._call_w, f"{at} {len(call)}\n".encode("ascii"))

    # ------------------------------------------------------------ while it runs
    @property
    def is_over(self) -> bool:
        """True when there is nothing more to wait for: it has a result, or a limit was hit."""
        return self._lines.result is not None or self._cause is not None

    @property
    def is_ready(self) -> bool:
        """True when the tool is loaded, and nothing has gone wrong so far."""
        return self._lines.is_loaded and not self.is_over and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """True when the worker has ended; its pid may be another's then."""
        return self.pidfd >= 0 and bool(select.select([self.pidfd], [], [], 0)[0])

    def read_channel(self) -> list[Progress]:
        """Take what the process says; gives the progress among it."""
        progress: list[Progress] = []
        for _ in range(_CHUNKS_AT_ONCE):
            chunk = _read(self.channel_fd)
            if not chunk:
                self.channel_is_open = chunk is None
                break
            progress += self._lines.take(chunk)
        if self._lines.pending_bytes > RESULT_BYTES:
            self.stop("result")
        elif self._lines.told > _TOLD_AT_ONCE + _TOLD_PER_S * (time.monotonic() - self._began):
            self.stop("progress")
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
        if self.has_ended:
            return
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
        elif self._looks % _FOLDER_EVERY == 0 and self._files.look(_FOLDER_LOOK_S) > limits.file_mb * _MIB:
            self.stop("folder")

    def stop(self, cause: Cause) -> None:
        """End the call for this cause, unless its result is there."""
        if not self.is_over:
            self._cause = cause

    def _takes_more_than(self, limit: int, used: tree.Used) -> bool:
        """What forks share is counted once: that costs more to find out, so only where the plain sum is over.

        What the tool's module takes is not the call's, but it has a bound, too.
        """
        if not self._lines.is_loaded:
            limit += _LOADING_MIB * _MIB
        at_start = self._lines.resident_bytes
        own = [max(0, size - at_start) for size in used.resident.values()]
        if sum(own) <= limit:
            return False
        if len([size for size in own if size]) == 1:
            return True
        return sum(tree.proportional(pid) for pid in used.resident) - at_start > limit

    # ------------------------------------------------------------ the end
    def end(self) -> None:
        """Kill the process and everything below it: from now on none of them takes another step of its own.

        A call that it has not taken yet is not there any more. What the call comes to is known then; ``reap`` says when
        they are gone.
        """
        if not self.pid:
            return
        os.ftruncate(self._request, 0)
        if not self.has_ended:
            kill_all(tree.below(self.pid))
        if not self.is_over:
            self.read_channel()
        self._hear_last_word()
        if self.output_is_open:
            self.read_output()

    def reap(self) -> bool:
        """See whether the worker has ended, which it does when all of the call has. Only after ``end``."""
        if not self.pid:
            return True
        if self.has_ended:
            tree.collect(self.pid)
            self.pid = 0
            return True
        self._hear_last_word()
        if self._code is None:  # once that is said, only the worker's own work is left, which is to go on
            kill_all(tree.below(self.pid))
        return False

    def give_up(self) -> None:
        """End the worker itself, where the call has not ended in time: what is left has another to end it."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

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
        for fd in (self.channel_fd, self.output_fd, self.word_fd, self.pidfd, self._request, self._call_w):
            if fd >= 0:
                os.close(fd)
        self.channel_fd = self.output_fd = self.word_fd = self.pidfd = self._request = self._call_w = -1

    def result(self) -> ToolResult:
        """Give the call's one result, with what it printed; only after ``end``."""
        return replace(self._outcome(), output=self._printed.text())

    def _outcome(self) -> ToolResult:
        name, limits = self._spec.name, self._limits
        if self._lines.result is not None:
            return self._lines.result
        if self._cause is not None:
            return endings.ended_for(name, self._cause, limits, self._deadline_s)
        code = self._code if self._code is not None else -9
        if not self._lines.is_up and (limits.sandbox != "none" or code == EXIT_NOT_SET_UP):
            return endings.not_set_up(name, limits.sandbox, code, self._printed.text())
        return endings.ended_by_itself(name, code, limits)

    def _hear_last_word(self) -> None:
        """Bubblewrap says a signal as a shell does."""
        if self._code is None and (said := last_word(_read(self.word_fd) or b"")) is not None:
            signalled = self._limits.sandbox == "isolated" and said > _SIGNALLED
            self._code = _SIGNALLED - said if signalled else said


def call_of(work: Work) -> bytes:
    """Give the form in which a worker takes its call; raises TypeError or ValueError for what has no JSON form."""
    form = {"arguments": work.arguments, "context": dataclasses.asdict(work.context)}
    return json.dumps(form).encode("ascii")


def _way_out(theirs: list[int]) -> int:
    """Make a pipe; gives our end, which never waits, and adds theirs to the list."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read_fd, False)
    theirs.append(write_fd)
    return read_fd


def _read(fd: int) -> bytes | None:
    """Give what is there, b"" at the end of the stream, None when nothing is there now."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None
