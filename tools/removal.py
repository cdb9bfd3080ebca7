"""A folder removed, however hard its tool made that: without rights, of many files, or deeper than Python can climb.

Called by the worker at its end (``tools/keeper.py``), where it may take its time, and for what a killed one left. It
decides nothing.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

_MODE = 0o700
_DEEP_S = 60.0


def remove_folder(folder: Path) -> None:
    """Remove the folder with all that is in it; what then still stays is left for the next to try."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return
    except OSError:
        _remove_full(folder)


def _remove_full(folder: Path) -> None:
    try:
        shutil.rmtree(folder, onerror=_open_and_retry)
    except RecursionError:
        import subprocess  # the system's own way climbs as deep as anybody can dig; no call needs it otherwise

        command = ["rm", "-rf", "--", str(folder)]
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(command, stderr=subprocess.DEVNULL, timeout=_DEEP_S, check=False)


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
