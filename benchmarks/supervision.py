"""What supervision costs: restart, spawn, many actors. Prints a table; ``python benchmarks/supervision.py [--quick]``.

Real actors on the product's own mail, in a tree of this process alone. Medians, with the machine described first.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from callboard.supervisor import mends
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Init, Reply, Started
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.process import become_subreaper, descendants, kill, raise_descriptor_limit
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.supervisor import SUPERVISOR, StartChild
from callboard.supervisor.table import ProcessTable
from callboard.transports import mail

NAME = "bench"


class Echo(Child):
    """Answers what it is asked."""

    def handle(self, envelope: Envelope) -> None:
        """Send the command back."""
        self.reply(envelope, envelope.body)


class Tree:
    """A root supervisor of its own, and requests to it and its children."""

    def __init__(self, folder: Path) -> None:
        self.table = ProcessTable(folder)
        self.table.create()
        self.folder = folder
        self.system = mail.open_system(folder)
        root = self.system.create(SUPERVISOR)
        flags = SupervisorFlags(intensity=Intensity(100_000, 1.0), dynamic=True)
        self.system.send(
            root,
            Init(
                id="root",
                kind="supervisor",
                incarnation=1,
                runtime_dir=str(folder),
                args={"flags": flags, "preload": ("supervision",)},
            ),
        )
        started = self.system.receive(20)
        assert isinstance(started, Started), started
        self.root, self.root_pid = started.address, started.pid
        self.endpoint = mail.Endpoint(folder)

    def spec(self, number: int) -> ChildSpec:
        """A permanent child without backoff."""
        return ChildSpec(id=f"e{number}", actor="supervision.Echo", kind="echo")

    def send(self, address: Any, body: Any) -> str:
        """Send a command; give its request id."""
        id = uuid.uuid4().hex
        self.endpoint.send(address, Envelope(request_id=id, body=body, reply_to=self.endpoint.address))
        return id

    def answers(self, ids: set[str], timeout_s: float = 120.0) -> dict[str, Any]:
        """Collect the answers to all these requests."""
        found: dict[str, Any] = {}
        end = time.monotonic() + timeout_s
        while ids - found.keys():
            message = self.endpoint.receive(max(0.0, end - time.monotonic()))
            assert message is not None, f"{len(ids - found.keys())} of {len(ids)} answers are missing"
            if isinstance(message, Reply):
                found[message.request_id] = message.body
        return found

    def ask(self, address: Any, body: Any, timeout_s: float = 30.0) -> Any:
        """Ask and wait for the answer."""
        id = self.send(address, body)
        return self.answers({id}, timeout_s)[id]

    def close(self) -> None:
        """End everything."""
        self.endpoint.close()
        while left := descendants(os.getpid()):
            for process in left:
                kill(process.pid)
            reap()
        self.system.close()


def reap() -> None:
    """Collect what has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


@contextmanager
def tree() -> Iterator[Tree]:
    """A tree for one measurement."""
    with tempfile.TemporaryDirectory(prefix="cb-", dir="/tmp") as name:
        opened = Tree(Path(name))
        try:
            yield opened
        finally:
            opened.close()


def restart_ms(tree: Tree, times: int) -> list[float]:
    """SIGKILL of a child to its replacement's answer."""
    at = tree.ask(tree.root, StartChild(tree.spec(0)))
    found = []
    for _ in range(times):
        began = time.perf_counter()
        os.kill(at.pid, signal.SIGKILL)
        while True:
            here = tree.table.find("e0")
            if here is not None and here[1] != at.pid and tree.ask(here[0], "ping") == "ping":
                break
        found.append((time.perf_counter() - began) * 1000)
        at = tree.ask(tree.root, StartChild(tree.spec(0)))
    return found


def spawn_ms(tree: Tree, times: int) -> list[float]:
    """The request to start a child to that child's first answer."""
    found = []
    for number in range(1000, 1000 + times):
        began = time.perf_counter()
        at = tree.ask(tree.root, StartChild(tree.spec(number)))
        assert tree.ask(at.address, "ping") == "ping"
        found.append((time.perf_counter() - began) * 1000)
    return found


def many(tree: Tree, count: int, first: int) -> tuple[float, float, float]:
    """Start ``count`` at once, message each: seconds until all have started, until all answered, and USS per actor."""
    began = time.perf_counter()
    ids = {tree.send(tree.root, StartChild(tree.spec(first + n))) for n in range(count)}
    places = tree.answers(ids)
    started = time.perf_counter() - began
    tree.answers({tree.send(at.address, "ping") for at in places.values()})
    answered = time.perf_counter() - began
    some = [psutil.Process(at.pid).memory_full_info().uss for at in list(places.values())[:20]]
    return started, answered, statistics.median(some) / 1e6


@contextmanager
def busy_cores() -> Iterator[None]:
    """Both cores (all of them) at work."""
    burn = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burn:
            process.kill()
            process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, at most 200 actors")
    quick = parser.parse_args().quick
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    become_subreaper()
    raise_descriptor_limit()
    mail.prepare_environment(Path(tempfile.gettempdir()))
    mends.apply(os.getpid())
    times = 10 if quick else 50
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"load before: {os.getloadavg()[0]:.1f}")
    rows: list[tuple[str, str]] = []
    with tree() as one:
        rows.append(
            (
                "SIGKILL to the replacement's answer, at rest",
                f"{statistics.median(restart_ms(one, times)):.1f} ms",
            )
        )
        rows.append(("spawn to the first answer", f"{statistics.median(spawn_ms(one, times)):.1f} ms"))
        with busy_cores():
            rows.append(
                (
                    "SIGKILL to the replacement's answer, all cores busy",
                    f"{statistics.median(restart_ms(one, times)):.1f} ms",
                )
            )
    for count in (100, 200) if quick else (100, 200, 500, 1000):
        with tree() as one:
            started, answered, uss = many(one, count, 0)
            rows.append(
                (
                    f"{count} children at once: all started",
                    f"{started:.2f} s ({started / count * 1000:.1f} ms each)",
                )
            )
            rows.append(
                (f"{count} children at once: all answered", f"{answered:.2f} s; {uss:.1f} MB private each")
            )
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    import supervision  # the module's importable self: actors are created by its name

    supervision.main()
