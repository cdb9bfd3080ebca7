"""What this machine offers for sandboxing, found by asking the kernel and by trying.

``host`` is quick and is asked before each sandboxed call; ``try_isolated`` starts a process and is for ``doctor``.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from callboard.tools import landlock, seccomp
from callboard.tools.sandbox_plan import Host

_TRY_S = 5.0


def host() -> Host:
    """Look what there is. That bubblewrap is installed does not say that it may make namespaces."""
    return Host(
        landlock=landlock.abi_version(),
        seccomp=seccomp.is_known(),
        bubblewrap=shutil.which("bwrap"),
        is_root=os.geteuid() == 0,
    )


def try_isolated(bubblewrap: str) -> str | None:
    """Make the namespaces once; None when it works, else what bubblewrap said."""
    command = [bubblewrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--", "true"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TRY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        return str(fault)
    return None if done.returncode == 0 else done.stderr.strip()[:300] or f"exit code {done.returncode}"
