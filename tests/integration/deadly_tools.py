"""Tools that die in every way there is, and tools that look where they are."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from callboard import Progress, ToolContext, tool

_FOREVER_S = 600


def _daemonise(note: str) -> None:
    """A grandchild in a session of its own, whose parent is gone."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    Path(note).write_text(str(os.getpid()), encoding="ascii")
    time.sleep(_FOREVER_S)
    os._exit(0)


def _await_file(path: str) -> None:
    while not (Path(path).exists() and Path(path).stat().st_size):
        time.sleep(0.002)


@tool
def die(how: str, note: str = "") -> Any:
    """End in the way that ``how`` says."""
    match how:
        case "exit":
            sys.exit(3)
        case "os_exit":
            os._exit(4)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "abort":
            os.abort()
        case "interrupt":
            raise KeyboardInterrupt
        case "close":
            os.closerange(0, 4096)
            return "not to be heard"
        case "unpicklable":
            return lambda: None
        case "kill_parent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(_FOREVER_S)
        case "escape":
            _daemonise(note)
            _await_file(note)
            return "bred"
    return "not reached"


@tool(deadline_s=1.0)
def hang(how: str, note: str = "") -> str:
    """Never end."""
    if how == "deaf":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
    elif how == "escape":
        _daemonise(note)
    elif how == "loop":
        while True:
            pass
    time.sleep(_FOREVER_S)
    return "not reached"


@tool(memory_mb=256, deadline_s=60.0)
def devour(how: str) -> str:
    """Touch 4 GiB of memory, alone or by four children."""
    if how == "children":
        for _ in range(4):
            if os.fork() == 0:
                _held = bytearray(os.urandom(1024)) * (120 * 1024)
                time.sleep(_FOREVER_S)
        time.sleep(_FOREVER_S)
    held = [bytearray(os.urandom(1024)) * (64 * 1024) for _ in range(64)]
    return f"held {len(held)}"


@tool(cpu_s=1.0, deadline_s=60.0)
def burn() -> str:
    """Use CPU for ever."""
    while True:
        pass


@tool(output_mb=2, deadline_s=60.0)
def babble() -> str:
    """Print 10 GB."""
    block = b"x" * (1 << 20)
    for _ in range(10 * 1024):
        os.write(1, block)
    return "not reached"


@tool(file_mb=4, deadline_s=60.0)
def hoard(how: str) -> str:
    """Fill the temporary folder with one file or with many."""
    folder = Path(os.environ["TMPDIR"])
    if how == "one":
        (folder / "big").write_bytes(b"x" * (8 << 20))
    number = 0
    while True:
        number += 1
        (folder / f"f{number}").write_bytes(b"x" * (1 << 18))
        time.sleep(0.001)


@tool(processes=24, deadline_s=60.0, sandbox="isolated")
def multiply() -> str:
    """Be a fork bomb."""
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.01)


@tool
def big(mib: int) -> str:
    """Give back very much text."""
    return "HEAD" + "x" * (mib << 20) + "TAIL"


@tool
def chatter(text: str, times: int = 1) -> str:
    """Print on both streams."""
    for _ in range(times):
        print(text)
    print("oops", file=sys.stderr)
    return "done"


@tool
def count_up(to: int) -> Iterator[object]:
    """Tell how far it is, and give the last number."""
    for number in range(to):
        yield Progress(f"at {number}", number / to)
    yield to


@tool
async def count_later(to: int) -> AsyncIterator[object]:
    """The same, asynchronously."""
    for number in range(to):
        yield Progress(f"at {number}")
    yield to


@tool
def look_around(context: ToolContext) -> dict[str, object]:
    """Say what this process has and is."""
    return {
        "environment": dict(os.environ),
        "from_start": Path("/proc/self/environ").read_bytes().decode("utf-8", "replace"),
        "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
        "stdin": os.read(0, 10).decode(),
        "folder": os.environ["TMPDIR"],
        "session": os.getsid(0) == os.getpid(),
        "cwd": os.getcwd(),
        "user": context.user,
    }


@tool
def grow_old() -> int:
    """Use CPU for a while, then say the own priority."""
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass
    return os.getpriority(os.PRIO_PROCESS, 0)


def _attempt(what: str, target: str) -> object:
    match what:
        case "read":
            return Path(target).read_bytes()[:20].decode("utf-8", "replace")
        case "list":
            return sorted(os.listdir(target))[:5]
        case "write":
            return Path(target).write_text("x", encoding="ascii")
        case "tcp":
            return socket.create_connection(("127.0.0.1", int(target)), timeout=1.0).close()
        case "udp":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                return sender.sendto(b"x", ("127.0.0.1", int(target)))
        case "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                return sender.sendto(b"x", target)
        case "signal":
            return os.kill(int(target), 0)
        case "run":
            return subprocess.run(target.split(), capture_output=True, text=True, check=False).stdout
    raise ValueError(what)


def _try(what: str, target: str) -> dict[str, str]:
    try:
        return {"done": str(_attempt(what, target))}
    except OSError as fault:
        return {"refused": type(fault).__name__}


@tool(sandbox="confined")
def attempt_confined(attempts: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Try things, from within the profile ``confined``."""
    return [_try(what, target) for what, target in attempts]


@tool(sandbox="isolated")
def attempt_isolated(attempts: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Try things, from within the profile ``isolated``."""
    return [_try(what, target) for what, target in attempts]


@tool
def attempt_freely(attempts: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Try things, without a profile."""
    return [_try(what, target) for what, target in attempts]


@tool
def dig(levels: int) -> str:
    """Dig down in the private folder, deeper than most programs climb."""
    os.chdir(os.environ["TMPDIR"])
    for _ in range(levels):
        os.mkdir("deeper")
        os.chdir("deeper")
    return f"{levels} levels"
