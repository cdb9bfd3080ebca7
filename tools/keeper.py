"""The tool worker: a process that keeps one call's own process below it, and ends with everything that it started.

It is a sub-reaper, so nothing escapes it, whatever session it makes; it does as little as there is to do, for each page
that a fresh fork touches is copied. It says how the call's process ended, on a pipe that the tool never has. What the
tool does to its parent happens to this process, and so to this one call. Called by ``tools/fork_server.py``, in a fork;
it decides nothing, and watches nothing but the end.
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

from callboard.tools.processes import children_of, kill_all
from callboard.tools.removal import remove_folder
from callboard.tools.sandbox_plan import EXIT_NOT_SET_UP

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_DESCRIPTORS = 1 << 20
_CATCHABLE = tuple(int(number) for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_KEPT_IGNORED = (int(signal.SIGPIPE), int(signal.SIGXFSZ))


def keep(
    parent_pid: int,
    title: str,
    folder: str,
    word_fd: int,
    run: Callable[[int], NoReturn],
    *,
    signals_are_reset: bool = False,
) -> NoReturn:
    """Be the worker, in a process that was forked for it; ``ps`` shows the title.

    ``run`` is called in the call's own process, with the worker's pid. When all of the call has ended, how it did is
    said on ``word_fd``, which is nobody else's: its exit code, negative for a signal. Then its folder is removed.
    """
    code = EXIT_NOT_SET_UP
    try:
        die_with(parent_pid)
        os.setsid()
        if not signals_are_reset:
            reset_signals()
        _signal.signal(signal.SIGCHLD, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        setproctitle.setproctitle(f"callboard: {title}")
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        own_pid = os.getpid()
        pid = os.fork()
        if pid == 0:
            run(own_pid)
        os.dup2(word_fd, 0)
        word_fd = 0
        os.closerange(1, _MOST_DESCRIPTORS)
        code = _end_of(pid)
        _end_others()
    finally:  # a fork must not go back into its parent's frames, whatever happens
        with contextlib.suppress(BaseException):
            os.write(word_fd, str(code).encode("ascii"))
            remove_folder(Path(folder))
        os._exit(0)


def last_word(said: bytes) -> int | None:
    """Read what a worker said last; None when that is nothing that can be read."""
    try:
        return int(said)
    except ValueError:
        return None


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
            kill_all(children_of(os.getpid()))
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
