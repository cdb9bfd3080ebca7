"""The processes below one: found, and killed. Called by the worker itself, and by who keeps it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Give the pids of the children of ``pid``, zombies included; of a process that is gone, none."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except (FileNotFoundError, ProcessLookupError):
        return found
    for thread in threads:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            listed = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
            found += [int(child) for child in listed.split()]
    return found


def kill_all(pids: Iterable[int]) -> None:
    """Kill these; who is killed takes no further step, but may not be gone yet."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
