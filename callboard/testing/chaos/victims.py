"""Who can be killed: one process of each kind that a system has, found by its table or among its processes.

It finds and kills; it chooses nothing. A kill goes through a pidfd whose start time was checked after it was opened,
so that a recycled pid is never hit. Called by the nemesis and by the kills by position.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import psutil

from callboard.supervisor.process import is_alive
from callboard.supervisor.table import ROOT, ProcessTable, Row

Kind: TypeAlias = Literal[
    "client",
    "tool_worker",
    "fork_server",
    "journal",
    "directory",
    "catalogue",
    "limits",
    "model",
    "conversations",
    "models",
    "servers",
    "root",
    "admin",
    "logger",
    "outermost",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
_OF_A_CONVERSATION = ("client", "tool_worker", "fork_server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A process, by its pid and its start in seconds since the epoch."""

    kind: str
    pid: int
    started_at: float


def find_victim(kind: Kind, folder: Path, outermost: psutil.Process, conversation: str) -> Victim | None:
    """Give the process of this kind in the system of ``folder``; a client or worker is the conversation's."""
    try:
        process = _process(kind, folder, outermost, conversation)
        if process is None:
            return None
        return Victim(kind=kind, pid=process.pid, started_at=process.create_time())
    except psutil.NoSuchProcess:
        return None


def kill_exactly(pid: int, started_at: float | None, sig: signal.Signals = signal.SIGKILL) -> bool:
    """Signal the process if it is still the one that started then; False when it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(pid, started_at):
            return False
        signal.pidfd_send_signal(fd, sig)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


def _process(kind: Kind, folder: Path, outermost: psutil.Process, conversation: str) -> psutil.Process | None:
    if kind == "outermost":
        return outermost
    if kind in ("admin", "logger"):
        return _of_thespian(kind, folder)
    rows = [row for row in ProcessTable(folder).rows() if _is_of(row, kind, conversation)]
    pid = next((row.pid for row in rows if row.pid is not None and row.state != "dead"), None)
    return None if pid is None else psutil.Process(pid)


def _is_of(row: Row, kind: Kind, conversation: str) -> bool:
    if kind in _OF_A_CONVERSATION:
        return row.kind == kind and conversation in row.id
    return row.id == kind or (row.kind == kind == "model")


def _of_thespian(kind: Kind, folder: Path) -> psutil.Process | None:
    """Thespian's admin is root's parent, and its logger root's sibling."""
    root = ProcessTable(folder).get(ROOT)
    admin = psutil.Process(root.pid).parent() if root is not None and root.pid is not None else None
    if admin is None or kind == "admin":
        return admin
    return next((p for p in admin.children() if root is not None and p.pid != root.pid), None)
