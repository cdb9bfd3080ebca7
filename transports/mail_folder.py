"""The folder of the actors' sockets: private to the user, checked before use, swept of what the dead left.

It decides where a socket's path leads (a path beyond what the kernel takes is reached through a descriptor of its
folder), who may own the folder, and which sockets are stale: those that nobody has open. It moves no mail.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
from pathlib import Path

from callboard.transports.mail_errors import MailError

SUN_PATH_BYTES = 107
YOUNG_S = 5.0


class MailFolder:
    """A checked folder of sockets. ``close`` gives its descriptor back, where one was needed.

    ``create`` makes it with mode 0700 where it is missing. Raises MailError when it is not a folder of this user,
    closed to everyone else: whoever could put a socket there would get the mail.
    """

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = str(Path(path).absolute())
        if create:
            _make(self.path)
        _check(self.path)
        self._fd = _open_if_long(self.path)

    @property
    def fds(self) -> list[int]:
        """The descriptors that it holds."""
        return [] if self._fd is None else [self._fd]

    def sun_path(self, name: str) -> str:
        """Give what the kernel takes for the socket ``name`` in this folder, in this process."""
        if self._fd is None:
            return f"{self.path}/{name}"
        return f"/proc/self/fd/{self._fd}/{name}"

    def is_open(self, name: str) -> bool:
        """True when a process has the socket open, however busy it is."""
        return probe(self.sun_path(name))

    def unlink(self, name: str) -> None:
        """Remove the socket's file, if it is there."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            Path(self.path, name).unlink()

    def unlink_if_dead(self, name: str) -> None:
        """Remove the socket's file unless a process has it open."""
        if not self.is_open(name):
            self.unlink(name)

    def sweep(self, *, older_than_s: float = YOUNG_S) -> int:
        """Remove the sockets that nobody has open; give how many they were.

        Younger ones stay: between the making of a socket's file and its binding nobody seems to have it open.
        """
        swept = 0
        with os.scandir(self.path) as entries:
            for entry in entries:
                if self._is_stale(entry, older_than_s):
                    self.unlink(entry.name)
                    swept += 1
        return swept

    def _is_stale(self, entry: os.DirEntry[str], older_than_s: float) -> bool:
        try:
            found = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return False
        old = time.time() - found.st_ctime >= older_than_s
        return stat.S_ISSOCK(found.st_mode) and old and not self.is_open(entry.name)

    def remove(self) -> None:
        """Sweep it, whatever the age, and remove the folder when nothing is left in it."""
        try:
            self.sweep(older_than_s=0.0)
            Path(self.path).rmdir()
        except FileNotFoundError:
            return
        except OSError as fault:
            if fault.errno != errno.ENOTEMPTY:
                raise MailError(f"cannot remove {self.path}: {fault.strerror}") from fault

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def probe(sun_path: str) -> bool:
    """True when a process has the socket at this path open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(sun_path)
        except OSError:
            return False
    return True


def _make(path: str) -> None:
    try:
        Path(path).mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        return
    except OSError as fault:
        raise MailError(f"cannot make the mail folder {path}: {fault.strerror}") from fault


def _check(path: str) -> None:
    try:
        found = Path(path).lstat()
    except OSError as fault:
        raise MailError(f"there is no mail folder {path}: {fault.strerror}") from fault
    if not stat.S_ISDIR(found.st_mode):
        raise MailError(f"{path} should be the mail folder, but is not a folder; remove it")
    if found.st_uid != os.geteuid():
        raise MailError(
            f"the mail folder {path} belongs to user id {found.st_uid}, not to you ({os.geteuid()}): "
            "it may be a trap; have it removed, or set XDG_RUNTIME_DIR to a folder of your own"
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise MailError(f"the mail folder {path} can be written to by others; remove it and start again")


def _open_if_long(path: str) -> int | None:
    longest_name = 32
    if len(os.fsencode(path)) + 1 + longest_name <= SUN_PATH_BYTES:
        return None
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
