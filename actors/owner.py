"""The process that a linked conversation belongs to: how it is named, and whether it is still there."""

from __future__ import annotations

import os

from callboard.actors.events import Owner
from callboard.supervisor.process import boot_id, is_alive, start_time


def this_process() -> Owner:
    """Name the calling process."""
    pid = os.getpid()
    return Owner(pid=pid, start_time=start_time(pid) or 0.0, boot_id=boot_id())


def is_here(owner: Owner) -> bool:
    """True while that very process lives, on this boot of this machine."""
    return owner.boot_id == boot_id() and is_alive(owner.pid, owner.start_time)
