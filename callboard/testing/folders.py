"""Folders as a hostile tool would leave them, for tests of what removes them."""

from __future__ import annotations

import os
from pathlib import Path


def dig(folder: Path, levels: int) -> None:
    """Make so many folders in each other below ``folder``: deeper than a path, and most programs, can go."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(levels):
            os.mkdir("deeper")  # noqa: PTH102 (the path would be too long for anything but a name)
            os.chdir("deeper")
    finally:
        os.fchdir(here)
        os.close(here)
