"""Tools for the tests of ``callboard tools``."""

import os
import time
from pathlib import Path

from callboard import Progress, tool


@tool
def note(path: str, seconds: float = 0.0) -> str:
    """Write the process into a file, then take a while.

    Args:
        path: the file
        seconds: how long
    """
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(seconds)
    return "noted"


@tool(destructive=True)
def wipe(path: str) -> str:
    """Wipe a folder.

    Args:
        path: the folder
    """
    return f"wiped {path}"


@tool(feature="beta")
def young(n: int) -> int:
    """Not for everybody yet.

    Args:
        n: a number
    """
    return n


@tool
def steps(n: int):
    """Count, and say so.

    Args:
        n: how far
    """
    for number in range(n):
        yield Progress(f"at \x1b[2J{number}", number / n)
        time.sleep(0.1)
    return n


def check(request):
    """The permission hook."""
    if request.user == "slow":
        time.sleep(0.8)
    return "not mallory" if request.user == "mallory" else True
