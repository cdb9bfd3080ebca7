"""A folder removed, however hard its tool made that: without rights, of many files, or deeper than Python can climb.

Called by the worker at its end (``tools/keeper.py``), where it may take its time, and for what a killed one left. It
touches nothing but the folder and what is in it, and decides nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

_MODE = 0o700
_DEEP_S = 60.0


def remove_folder(folder: Path) -> None:
    """Remove the folder with all that is in it; what then still stays is left for the next to try."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except NotADirectoryError:  # a tool may have put a link or a file in its place
        with contextlib.suppress(OSError):
            folder.unlink()
    except OSError:
        _remove_full(folder)


def _remove_full(folder: Path) -> None:
    def open_and_retry(_function: object, path: str, fault: Any) -> None:
        """What has no rights is given them, and tried once more."""
        target = Path(path)
        if issubclass(fault[0], FileNotFoundError):
            return
        for place in (target.parent, target):
            if place == folder or folder in place.parents:
                _open(place)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                target.unlink()

    _open(folder)
    try:
        shutil.rmtree(folder, onerror=open_and_retry)
    except RecursionError:
        import subprocess  # the system's own way climbs as deep as anybody can dig; no call needs it otherwise

        command = ["rm", "-rf", "--", str(folder)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stderr=subprocess.DEVNULL, timeout=_DEEP_S, check=False)


def _open(place: Path) -> None:
    """Give its owner all rights on a folder; never on what a link leads to."""
    with contextlib.suppress(OSError):
        fd = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.chmod(f"/proc/self/fd/{fd}", _MODE)  # noqa: PTH101
        finally:
            os.close(fd)
