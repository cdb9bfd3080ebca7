"""Processes as Linux has them: parent-death signal, sub-reaper, pidfd, start time, and the ways to end one.

Thin wrappers over system calls; they decide nothing. Descriptors that a fork must not hand down are
registered in ``PRIVATE_FDS`` and closed in each forked child (``supervisor/mends.py``).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4
_STAT_BYTES = 1024

PRIVATE_FDS: set[int] = set()
FATAL_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)


class ProcessError(OSError):
    """A system call on a process was refused."""


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise ProcessError(errno, f"prctl({option}) failed: {os.strerror(errno)}")


def bind_to_parent(parent_pid: int) -> None:
    """Die by SIGKILL when the parent dies; exit at once if it is dead already (THESPIAN B7)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        sys.exit(1)


def close_to_others() -> None:
    """Let no process of the same user read this one's memory or environment: for those that hold secrets."""
    _prctl(_PR_SET_DUMPABLE, 0)


def become_subreaper() -> None:
    """Adopt every orphan among our descendants, so that none escapes to init."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def open_pidfd(pid: int) -> int | None:
    """Open a pidfd, readable when the process has ended; None when there is no such process."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    PRIVATE_FDS.add(fd)
    return fd


def close_private(fd: int) -> None:
    """Close a descriptor that ``PRIVATE_FDS`` holds."""
    PRIVATE_FDS.discard(fd)
    os.close(fd)


def start_time(pid: int) -> float | None:
    """Give the process's start in seconds since the epoch, or None when it is gone or a zombie."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def start_tick(pid: int) -> int | None:
    """Give the kernel's tick at which the process started, by which no pid is mistaken for another; None when ended."""
    fields = _stat(pid)
    return None if not fields or fields[0] in (b"Z", b"X") else int(fields[19])


def is_running(pid: int) -> bool:
    """True while a process has this pid and has not ended; a zombie has."""
    return _state(pid) not in ("", "Z", "X")


def is_stopped(pid: int) -> bool:
    """True while a signal (SIGSTOP) or a debugger holds the process."""
    return _state(pid) in ("T", "t")


def _state(pid: int) -> str:
    """The kernel's letter for what the process does; empty when there is none."""
    fields = _stat(pid)
    return fields[0].decode("ascii") if fields else ""


def _stat(pid: int) -> list[bytes]:
    """What the kernel says of a process behind its name; nothing when there is none."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # asked for with each request: no Path
    except FileNotFoundError:
        return []
    try:
        stat = os.read(fd, _STAT_BYTES)
    except ProcessLookupError:
        return []
    finally:
        os.close(fd)
    return stat[stat.rfind(b")") + 2 :].split()


def is_alive(pid: int, started_at: float | None) -> bool:
    """True when ``pid`` is still the process that started at ``started_at`` (seconds; 0.02 s of tolerance)."""
    actual = start_time(pid)
    return actual is not None and (started_at is None or abs(actual - started_at) < 0.02)


def boot_id() -> str:
    """Give the kernel's id of this boot: pids from another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_bytes().decode().strip()


def kill(pid: int, sig: int = signal.SIGKILL) -> None:
    """Signal the process; one that is gone is none of our concern."""
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return


def kill_group(pid: int, sig: int = signal.SIGKILL) -> None:
    """Signal the process group that ``pid`` leads, where there is one, never our own."""
    if pid <= 1 or pid == os.getpgrp():
        return
    try:
        os.killpg(pid, sig)
    except (ProcessLookupError, PermissionError):
        return


def describe_exit(exit_code: int | None) -> str:
    """Put an exit code as multiprocessing gives it (negative: a signal) in words."""
    if exit_code is None:
        return "killed"
    if exit_code < 0:
        try:
            return f"killed by {signal.Signals(-exit_code).name}"
        except ValueError:
            return f"killed by signal {-exit_code}"
    return f"exited with code {exit_code}"


def descendants(pid: int) -> list[psutil.Process]:
    """List all living processes below ``pid``, zombies included."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def raise_descriptor_limit() -> None:
    """Lift the soft limit on open files to the hard one: a supervisor holds a pidfd per child."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else 65536
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, 65536), hard))
