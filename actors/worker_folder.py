"""The private folders of calls: one each, among the machine's temporary files, gone with the call.

A worker that was killed leaves its folder; whoever makes the next one takes it out. They lie in no folder of the
system's, for a tool that fills its own would fill that one's disk. Nothing else is decided here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_MODE = 0o700
_PREFIX = "callboard-call-"
_LOOKED_AT = 5000
_AT_ONCE = 20


def make_folder() -> Path:
    """Make this process's private folder, under a name that nobody foresees; raises OSError."""
    pid = os.getpid()
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{pid}-{_start(pid)}-"))


def remove_folder(folder: Path) -> None:
    """Remove the folder with all that is in it, also where the tool made that hard."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(folder, onerror=_open_and_retry)


def remove_stale() -> None:
    """Remove folders of this user's whose worker is gone; a few at a time, and as far as the place is not too full."""
    found = []
    with os.scandir(tempfile.gettempdir()) as entries:
        for _, entry in zip(range(_LOOKED_AT), entries, strict=False):
            if entry.name.startswith(_PREFIX) and _is_stale(entry):
                found.append(Path(entry.path))
    for folder in found[:_AT_ONCE]:
        remove_folder(folder)


def _is_stale(entry: os.DirEntry[str]) -> bool:
    pid, _, rest = entry.name.removeprefix(_PREFIX).partition("-")
    try:
        mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
    except FileNotFoundError:
        return False
    return (
        mine
        and entry.is_dir(follow_symlinks=False)
        and pid.isdigit()
        and _start(int(pid)) != rest.partition("-")[0]
    )


def _start(pid: int) -> str:
    """The kernel's tick at which the process started; empty when there is none, so no pid is mistaken for another."""
    try:
        data = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return data[data.rfind(b")") + 2 :].split()[19].decode("ascii")


def _open_and_retry(_function: object, path: str, _fault: object) -> None:
    """A folder without rights is given them; what then still stays is left for the next to try."""
    parent = Path(path).parent
    try:
        parent.chmod(_MODE)
        target = Path(path)
        if target.is_dir() and not target.is_symlink():
            target.chmod(_MODE)
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink()
    except OSError:
        return
