"""The private folders of calls: one each, among the machine's temporary files, gone with the call.

The worker removes it at its end, or else its maker. What a maker that was killed left is known by the maker's pid and
start in its name, and removed by who comes after: the daemon at its start, at its end and when it has ended orphans, or
who started the maker.
A container that shares the place has pids of its own: the name says whose they are (the inode of the pid namespace),
and who sees others cannot tell which makers live, and leaves their folders alone. They lie in no folder of the
system's, for a tool that fills its own would fill that one's disk. Nothing else is decided here.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from callboard.supervisor.process import start_tick
from callboard.tools.removal import remove_folder

_PREFIX = "callboard-call-"
_LOOKED_AT = 50_000
_AT_ONCE = 100


def make_folder() -> Path:
    """Make a private folder of this process's, under a name that nobody foresees; raises OSError."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{_prefix()}{pid}-{start_tick(pid)}-"))


def start_removal(folder: Path) -> int | None:
    """Remove what a killed worker left of its folder, without waiting for it: gives the pid of who does, to be reaped.

    Mostly there is nothing left: None.
    """
    try:
        folder.rmdir()
    except FileNotFoundError:
        return None
    except OSError:
        return os.posix_spawnp("rm", ["rm", "-rf", "--", str(folder)], os.environ)
    return None


def remove_stale(maker: int | None = None) -> None:
    """Remove folders of this user's whose maker is gone, or those of one that is; a hundred at a time.

    It is as slow as the place of temporary files is full, so not to be called for each call. Raises OSError where
    that cannot be listed.
    """
    own = _prefix()
    prefix = own if maker is None else f"{own}{maker}-"
    found = []
    with os.scandir(tempfile.gettempdir()) as entries:
        for _, entry in zip(range(_LOOKED_AT), entries, strict=False):
            if entry.name.startswith(prefix) and _is_stale(entry, entry.name.removeprefix(own)):
                found.append(Path(entry.path))
    for folder in found[:_AT_ONCE]:
        remove_folder(folder)


def _prefix() -> str:
    """How the names begin of all whose maker this process could see."""
    return f"{_PREFIX}{Path('/proc/self/ns/pid').stat().st_ino}-"


def _is_stale(entry: os.DirEntry[str], name: str) -> bool:
    pid, _, rest = name.partition("-")
    try:
        mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except FileNotFoundError:
        return False
    return (
        mine
        and entry.is_dir(follow_symlinks=False)
        and pid.isdigit()
        and str(start_tick(int(pid))) != rest.partition("-")[0]
    )
