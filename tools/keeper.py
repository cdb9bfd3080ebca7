"""The tool worker: a process that keeps one call's own process below it, and ends with everything that it started.

It is a sub-reaper, so nothing escapes it, whatever session it makes; it does as little as there is to do, for each page
that a fresh fork touches is copied. It says how the call's process ended, in memory that it shares with the client.
What the tool does to its parent happens to this process, and so to this one call. Called by ``tools/fork_server.py``,
in a fork; it decides nothing, and watches nothing but the end.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the public module costs a fresh fork 0.6 ms more
import contextlib
import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import setproctitle

from callboard.tools.removal import remove_folder
from callboard.tools.sandbox_plan import EXIT_NOT_SET_UP

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
LAST_WORD_BYTES = 16
_MOST_DESCRIPTORS = 1 << 20
_CATCHABLE = tuple(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_KEPT_IGNORED = (int(signal.SIGPIPE), int(signal.SIGXFSZ))


def keep(
    parent_pid: int,
    title: str,
    request_fd: int,
    folder: str,
    run: Callable[[int], NoReturn],
    *,
    signals_are_reset: bool = False,
) -> NoReturn:
    """Be the worker, in a process that was forked for it; ``ps`` shows the title.

    ``run`` is called in the call's own process, with the worker's pid. When all that it started has ended, its private
    folder is removed: nothing can write into it any more. How it ended is our last word: its exit code,
    negative for a signal, at the beginning of the shared memory of ``request_fd``.
    """
    try:
        die_with(parent_pid)
        os.setsid()
        if signals_are_reset:
            _signal.signal(signal.SIGCHLD, _signal.SIG_DFL)
        else:
            reset_signals()
        setproctitle.setproctitle(f"callboard: {title}")
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            run(own_pid)
        os.dup2(request_fd, 0)
        os.closerange(1, _MOST_DESCRIPTORS)
        code = _end_of(pid)
        _end_others()
        os.pwrite(0, str(code).encode("ascii"), 0)
        remove_folder(Path(folder))
    finally:  # a fork must not go back into its parent's frames, whatever happens
        os._exit(EXIT_NOT_SET_UP)


def last_word(request_fd: int) -> int | None:
    """Give the exit code that the worker of this shared memory left, negative for a signal; None when it left none."""
    word = os.pread(request_fd, LAST_WORD_BYTES, 0).rstrip(b"\0")
    return int(word) if word else None


def die_with(parent_pid: int) -> None:
    """Be killed when the parent dies, and end now if it is dead already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(EXIT_NOT_SET_UP)


def reset_signals() -> None:
    """Every signal is at its default, but for two that Python itself would ignore."""
    signal.set_wakeup_fd(-1)
    for number in _CATCHABLE:
        _signal.signal(number, _signal.SIG_DFL)
    for number in _KEPT_IGNORED:
        _signal.signal(number, _signal.SIG_IGN)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _end_of(pid: int) -> int:
    """Wait for this child, and for orphans on the way; give its exit code, negative for a signal."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return os.waitstatus_to_exitcode(status)


def _end_others() -> None:
    """End what the call left. Orphans of orphans come up while their parents die, so it looks until there are none."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
            _kill_children()
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill_children() -> None:
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as listed:  # noqa: PTH123 (the worker has none but this to read)
        for pid in listed.read().split():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(pid), signal.SIGKILL)
