"""How a child's process ended: its exit code, read from the kernel before anybody has reaped it.

Thin wrappers over system calls; they decide nothing. Called by the supervisor actor when a pidfd turns readable.
"""

from __future__ import annotations

import os
import signal

from callboard.supervisor import mends


def exit_code(pidfd: int, pid: int) -> int | None:
    """Give the exit code of an ended child (negative: a signal), None when nobody knows it any more.

    The child is left to be reaped by Thespian, which may have done so already: then it kept the code for us.
    """
    kept = mends.exit_code_of(pid)
    if kept is not None:
        return kept
    try:
        status = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def kill_by(pidfd: int, number: int = signal.SIGKILL) -> None:
    """Signal the very process that the pidfd was opened for; one that is gone is none of our concern."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return
