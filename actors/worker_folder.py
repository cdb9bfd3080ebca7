"""The private folders of calls: one each, in one place per user, gone with the call.

A worker that was killed leaves its folder; whoever makes the next one takes it out. Nothing else is decided here.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

_MODE = 0o700
_AT_ONCE = 20


def make_folder() -> Path:
    """Make this process's private folder; raises OSError where that cannot be had."""
    folder = _place() / f"{os.getpid()}-{_start(os.getpid())}"
    folder.mkdir(mode=_MODE)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove the folder with all that is in it, also where the tool made that hard."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        shutil.rmtree(folder, onerror=_open_and_retry)


def remove_stale() -> None:
    """Remove folders whose worker is gone; a few at a time."""
    for folder in list(_place().iterdir())[:_AT_ONCE]:
        pid, _, start = folder.name.partition("-")
        if not pid.isdigit() or _start(int(pid)) != start:
            remove_folder(folder)


def _place() -> Path:
    place = Path(tempfile.gettempdir()) / f"callboard-calls-{os.getuid()}"
    place.mkdir(mode=_MODE, exist_ok=True)
    seen = place.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        raise PermissionError(f"{place} is not a private folder of this user: remove it")
    return place


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
