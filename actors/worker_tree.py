"""The processes of calls, seen from the process that watches them: who they are, what they use, and their end.

It reads ``/proc`` only below the caller, whatever else runs on the machine, and decides nothing. Called by
``actors/worker_process.py``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from callboard.tools.processes import children_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True, slots=True)
class Used:
    """What processes use: resident bytes of each by pid, and seconds of CPU of all, ended children included."""

    resident: dict[int, int]
    cpu_s: float


def below(pid: int) -> list[int]:
    """Give the pids of all processes below ``pid``, zombies included, parents first."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = children_of(waiting.pop())
        found += children
        waiting += children
    return found


def used_by(pids: Iterable[int]) -> Used:
    """Read what these processes use; those that are gone count nothing."""
    resident: dict[int, int] = {}
    ticks = 0
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = stat[stat.rfind(b")") + 2 :].split()
        resident[pid] = int(fields[21]) * _PAGE
        ticks += sum(int(number) for number in fields[11:15])
    return Used(resident, ticks / _TICKS)


def proportional(pid: int) -> int:
    """Give the process's share of memory in bytes, what it shares divided by its sharers; 0 when it is gone."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")), 0)


class FolderCount:
    """What the files below a folder take on disk, counted a little at a time: a tool may make very many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pass: Iterator[int] | None = None
        self._counted = 0

    def look(self, within_s: float) -> int:
        """Count on for so long; gives the bytes that the present pass has found so far."""
        give_up_at = time.monotonic() + within_s
        if self._pass is None:
            self._pass, self._counted = _sizes_below(self._folder), 0
        for size in self._pass:
            self._counted += size
            if time.monotonic() >= give_up_at:
                return self._counted
        self._pass = None
        return self._counted


def _sizes_below(folder: Path) -> Iterator[int]:
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue


def make_polite(pids: Iterable[int], nice: int) -> None:
    """Lower the priority of these processes and of their sessions' groups, where the kernel shares by session."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, nice)
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice), encoding="ascii")


def collect(pid: int) -> None:
    """Take the exit status of a process that has ended, if it is the caller's child to reap."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
