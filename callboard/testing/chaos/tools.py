"""The tools of a chaotic workload: with a side effect that can be counted, and without, each taking its time."""

import os
import time
from pathlib import Path

from callboard import ToolContext, tool


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


@tool
def leave_mark(path: str, seconds: float, context: ToolContext) -> str:
    """Append the call's id to a file, durably: an effect that must not happen twice. Half the time passes before."""
    time.sleep(seconds / 2)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{context.call_id}\n".encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    time.sleep(seconds / 2)
    return "marked"


@tool(idempotent=True)
def leave_mark_again(path: str, seconds: float, context: ToolContext) -> str:
    """Append the call's id to a file: a side effect that may happen twice."""
    return str(leave_mark(path=path, seconds=seconds, context=context))
