"""Performs a plan's steps on the process that it runs in. None can be taken back.

It decides nothing. Called by the process that is about to load a tool (``tools/runner.py``), and by nobody else.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterable

from callboard.tools import landlock, seccomp
from callboard.tools.sandbox_plan import Step

_PR_SET_NO_NEW_PRIVS = 38
_MIB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGESIZE")


def perform(steps: Iterable[Step]) -> None:
    """Take the steps in order; raises OSError or ValueError at the first that the kernel refuses."""
    readable: list[str] = []
    writable: list[str] = []
    for act, values in steps:
        match act, values:
            case "rlimit", (str(name), int(soft), int(hard)):
                _lower(getattr(resource, f"RLIMIT_{name}"), soft, hard)
            case "memory", (int(mib),):
                most = _address_space() + mib * _MIB
                _lower(resource.RLIMIT_AS, most, most)
            case "no_new_privileges", ():
                _refuse_privileges()
            case "landlock", ("read", str(path)):
                readable.append(path)
            case "landlock", ("write", str(path)):
                writable.append(path)
            case "landlock", ("enter",):
                landlock.restrict(readable, writable)
            case "no_sockets", ():
                seccomp.refuse_sockets()
            case _:
                raise ValueError(f"there is no step {act} {values}")


def _lower(kind: int, soft: int, hard: int) -> None:
    """A limit that is lower already stays: nothing is ever loosened here."""
    _, present = resource.getrlimit(kind)
    if present != resource.RLIM_INFINITY:
        soft, hard = min(soft, present), min(hard, present)
    resource.setrlimit(kind, (soft, hard))


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as figures:  # noqa: PTH123 (pathlib is not loaded here)
        return int(figures.read().split()[0]) * _PAGE


def _refuse_privileges() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"no_new_privs: {os.strerror(errno)}")
