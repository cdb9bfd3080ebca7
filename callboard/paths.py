"""Where Callboard keeps its things: sockets, journals, weights, configuration; each folder private to the
user.

It decides folders only; it never reads or writes what is in them. The daemon, the API and the command line
ask it. The runtime folder holds sockets and is checked at each use: whoever could put a socket there first
would receive another user's mail.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from platformdirs import PlatformDirs

from callboard.errors import ConfigError, Unavailable

_SYSTEM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def runtime_root(environ: Mapping[str, str] = os.environ) -> Path:
    """Give ``$XDG_RUNTIME_DIR/callboard``, else ``/tmp/callboard-<uid>``, made with mode 0700 where it was
    missing.

    Raises Unavailable when that path belongs to someone else, is a symbolic link or is open to others.
    """
    return private_dir(_root_path(environ))


def runtime_dir(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Give the runtime folder of the system ``name``, made where it was missing, or raise Unavailable."""
    return private_dir(runtime_root(environ) / checked_name(name))


def runtime_path(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Give where the runtime folder of ``name`` would be, without making or checking it: only to look."""
    return _root_path(environ) / checked_name(name)


def checked_name(name: str) -> str:
    """Give ``name`` back when it may name a system; raises ConfigError otherwise."""
    if not _SYSTEM_NAME.fullmatch(name):
        raise ConfigError(
            f"--name: expected 1 to 32 letters, digits, '.', '_' or '-', beginning with a letter or digit, "
            f"got {name[:40]!r}"
        )
    return name


def state_dir() -> Path:
    """Give the folder of what must last (journals, the chat's line history); it may not exist yet."""
    return Path(_dirs().user_state_dir)


def cache_dir() -> Path:
    """Give the folder of what can be fetched again (the embedded model's weights); it may not exist yet."""
    return Path(_dirs().user_cache_dir)


def config_dir() -> Path:
    """Give the folder of ``callboard.toml`` and of the trust record; it may not exist yet."""
    return Path(_dirs().user_config_dir)


def private_dir(path: Path) -> Path:
    """Make ``path`` with mode 0700, or check the one that is there: a real folder, ours, closed to others.

    A folder of ours that others may only read is closed; one that others may write to is refused, for what is
    in it may be theirs. Raises Unavailable.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
    except FileExistsError:
        found = path.lstat()
    except OSError as fault:
        raise Unavailable(f"cannot make the folder {path}: {fault.strerror}") from fault
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        raise Unavailable(f"{path} is not a folder but should be; remove it, or set XDG_RUNTIME_DIR")
    if found.st_uid != os.geteuid():
        raise Unavailable(
            f"{path} belongs to user id {found.st_uid}, not to you ({os.geteuid()}); it took its place. "
            f"Set XDG_RUNTIME_DIR to a folder of your own, or have it removed"
        )
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise Unavailable(f"{path} can be written to by others; remove it and start again")
    if stat.S_IMODE(found.st_mode) != 0o700:
        path.chmod(0o700)
    return path


def _root_path(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_RUNTIME_DIR", "")
    if base and Path(base).is_absolute() and os.access(base, os.W_OK | os.X_OK):
        return Path(base) / "callboard"
    return Path("/tmp") / f"callboard-{os.geteuid()}"


def _dirs() -> PlatformDirs:
    return PlatformDirs("callboard", appauthor=False)
