"""Tools that the integration tests call: well-behaved ones, and every way to misbehave."""

import os
import signal
import time

from callboard import ToolContext, tool
from callboard.tools.content import TextBlock, ToolResult


@tool(read_only=True)
def say(text: str) -> str:
    """Say it back."""
    return f"said {text}"


@tool
def boom(text: str) -> str:
    """Raise an exception."""
    raise RuntimeError(f"boom {text}")


@tool
def segfault(text: str) -> str:
    """End by SIGSEGV."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return "not reached"


@tool
def leave(code: int) -> str:
    """End the process without a word."""
    os._exit(code)


@tool
def nap(seconds: float) -> str:
    """Take a while."""
    time.sleep(seconds)
    return f"slept {seconds:g} s"


@tool
def pause(path: str) -> str:
    """Note the process in a file, and wait until it is killed."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(600)
    return "not reached"


@tool
def note_down(path: str, text: str, seconds: float = 0.0) -> str:
    """Append a line to a file (a side effect that must not happen twice), then take a while."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n")
    time.sleep(seconds)
    return f"noted {text}"


@tool(idempotent=True)
def note_again(path: str, text: str, seconds: float = 0.0) -> str:
    """Append a line to a file, harmless when repeated, then take a while."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n")
    time.sleep(seconds)
    return f"noted {text}"


@tool(memory_mb=64)
def eat(mib: int) -> str:
    """Allocate and touch memory."""
    return f"ate {len(bytearray(os.urandom(1024)) * (mib * 1024))}"


@tool
def breed(path: str) -> str:
    """Leave a grandchild in a session of its own behind."""
    if os.fork() == 0:
        os.setsid()
        with open(path, "w", encoding="utf-8") as file:
            file.write(str(os.getpid()))
        time.sleep(600)
        os._exit(0)
    while not os.path.exists(path):
        time.sleep(0.01)
    return "bred"


@tool
def whoami(context: ToolContext) -> dict[str, object]:
    """Say for whom the tool runs, and what it sees of the environment."""
    return {"user": context.user, "team": context.team, "stdin": os.read(0, 10).decode()}


@tool
def flood(kib: int) -> str:
    """Give back very much text."""
    return "x" * (kib * 1024)


@tool
def odd_result(kind: str) -> object:
    """Give back what cannot be kept."""
    if kind == "huge_int":
        return {"n": 10**5000}
    if kind == "bad_citations":
        return ToolResult(content=(TextBlock("x"),), citations="docs/a.md")
    return object()
