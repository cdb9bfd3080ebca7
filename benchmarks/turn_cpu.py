"""CPU time of a running system by kind of process, from /proc: of ``benchmarks/turns.py``.

Kinds are the process table's. What is below an actor and not in the table, and what an actor has reaped, is its
children's: a client's are tool workers. Times of living processes are the scheduler's, in nanoseconds; those of reaped
ones the kernel rounds down to 10 ms, once for each process that reaped: exact enough where one reaps many, and far too
low where many have reaped one each.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from callboard.api import System

OVERHEAD = "root, supervisors, mail's admin"
WORKER = "tool worker"
_CHILDREN_OF = {"client": WORKER, "caller": WORKER, "fork server": WORKER}
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_PARENT = 1
_REAPED = (13, 14)


@dataclass(frozen=True, slots=True)
class Use:
    """What one process has used: its own CPU, and that of the children that it has reaped, in milliseconds."""

    kind: str
    own_ms: float
    reaped_ms: float
    reaped_kind: str


Census: TypeAlias = dict[int, Use]
_NOTHING = Use("", 0.0, 0.0, "")


def census(system: System, top: int) -> Census:
    """Count every process of the system whose outermost process is ``top``."""
    kinds = {actor.pid: _shown(actor.kind) for actor in system.tree() if actor.pid is not None}
    stats = {int(folder.name): stat for folder in Path("/proc").glob("[0-9]*") if (stat := _stat(folder))}
    children: dict[int, list[int]] = {}
    for pid, fields in stats.items():
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found: Census = {}
    waiting = [(top, kinds.get(top, OVERHEAD))]
    while waiting:
        pid, kind = waiting.pop()
        below = _CHILDREN_OF.get(kind, kind)
        reaped = sum(int(stats[pid][field]) for field in _REAPED)
        try:
            found[pid] = Use(kind, own_ms(pid), reaped * _TICK_MS, below)
        except (FileNotFoundError, ProcessLookupError):
            continue
        waiting += [(child, kinds.get(child, below)) for child in children.get(pid, [])]
    return found


def spent(before: Census, after: Census) -> dict[str, float]:
    """Give the milliseconds that each kind has used in between."""
    total: dict[str, float] = {}
    for pid, use in after.items():
        former = before.get(pid, _NOTHING)
        total[use.kind] = total.get(use.kind, 0.0) + use.own_ms - former.own_ms
        total[use.reaped_kind] = total.get(use.reaped_kind, 0.0) + use.reaped_ms - former.reaped_ms
    return total


def own_ms(pid: int) -> float:
    """Give the CPU milliseconds of a living process's threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


def _stat(folder: Path) -> list[str] | None:
    """Give a process's figures after its name, None when it is gone."""
    try:
        return (folder / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _shown(kind: str) -> str:
    return OVERHEAD if kind in ("supervisor", "root") else kind.replace("_", " ")
