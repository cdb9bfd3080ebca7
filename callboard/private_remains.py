"""What is left of private systems that were killed with everything around them: their runtime folders.

A private system's folder goes with it, and else with its owner's ``close``; where owner and system were all killed,
the next system of the same user takes it away. The folder's name says whose it is: the owner's pid, and when that
process started, so that a pid given anew is not taken for the owner. It never touches a folder whose owner lives,
whose lock is held, or in which an actor still has its socket open. Called by the daemon at its start, at its end and
when it has ended orphans.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import stat
from pathlib import Path

from callboard.supervisor.process import start_tick
from callboard.tools.removal import remove_folder
from callboard.transports.mail import FOLDER
from callboard.transports.mail_errors import MailError
from callboard.transports.mail_folder import MailFolder

LOCK = "lock"
_NAME = re.compile(r"private-([0-9]+)-([0-9a-z]+)-[0-9a-f]{6}")
_AT_ONCE = 100
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def private_name() -> str:
    """Give a new name for a private system of this process, within the 32 characters of a name."""
    pid = os.getpid()
    return f"private-{pid}-{_start(pid)}-{secrets.token_hex(3)}"


def remove_remains(root: Path) -> list[str]:
    """Remove what dead private systems left in the runtime folder ``root``, a hundred at most; gives their names."""
    found = sorted(path for path in root.iterdir() if _is_left(path))[:_AT_ONCE]
    return [path.name for path in found if _remove(path)]


def _is_left(path: Path) -> bool:
    named = _NAME.fullmatch(path.name)
    if named is None or _start(int(named[1])) == named[2]:
        return False
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove(path: Path) -> bool:
    """Under the system's own lock: one that is still starting there, or another who removes it, has that."""
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _has_actors(path):
            return False
        remove_folder(path)
    except (BlockingIOError, MailError):
        return False
    finally:
        os.close(fd)
    return not path.exists()


def _has_actors(path: Path) -> bool:
    """Every actor has its socket open as long as it lives, the lock's holder gone or not."""
    if not (path / FOLDER).is_dir():
        return False
    folder = MailFolder(str(path / FOLDER))
    try:
        return any(folder.is_open(entry.name) for entry in (path / FOLDER).iterdir())
    finally:
        folder.close()


def _start(pid: int) -> str:
    """The tick of the process's start in base 36; empty when there is none, or it has ended."""
    number = start_tick(pid)
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = _DIGITS[digit] + text
    return text
