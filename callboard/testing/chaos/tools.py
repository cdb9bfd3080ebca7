"""The tools of a campaign's workload: one with a side effect that can be counted, one that takes its time."""

import time
from pathlib import Path

from callboard import tool


@tool
def note_down(path: str, seconds: float = 0.0) -> str:
    """Append a line to a file, a side effect that must not happen twice, and take a while."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("done\n")
    time.sleep(seconds)
    return "noted"


@tool(read_only=True)
def nap(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return "rested"
