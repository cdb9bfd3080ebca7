"""One fault of Thespian per scenario, in a process and an actor system of its own.

``python mend_scenarios.py SCENARIO [--mail unix|tcp] [--without MEND]`` prints what happened as a line of JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from callboard.supervisor import mends
from callboard.supervisor.process import become_subreaper, descendants, is_running, kill, open_pidfd
from callboard.transports import mail

mail.prepare_environment(tempfile.gettempdir())

from thespian.actors import Actor, ActorExitRequest, ChildActorExited  # noqa: E402

WAIT_S = 3.0
BORN = "MEND_SCENARIO_BORN"


class Leaf(Actor):  # type: ignore[misc]
    """A child that says who it is. Its birth is a file: Thespian has told its parent of it by then."""

    def __init__(self) -> None:
        if BORN in os.environ:
            Path(os.environ[BORN], str(os.getpid())).touch()

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        """Answer with the pid, or with the pidfds that it has; or fail by a segmentation fault."""
        match message:
            case "who":
                self.send(sender, ("leaf", os.getpid()))
            case "pidfds":
                self.send(sender, ("pidfds", pidfds()))
            case "segfault":
                ctypes.string_at(0)


class Parent(Actor):  # type: ignore[misc]
    """A parent of leaves, which does to them what the scenario says."""

    def __init__(self) -> None:
        self.asker: Any = None
        self.wanted = 0
        self.pids: list[int] = []
        self.heard: set[int] = set()
        self.code: int | None = None
        self.killed_by_turns = False

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        """Carry out the scenario's command."""
        match message:
            case ("have", number):
                self.asker, self.wanted = sender, number
                self.leaves = [self.createActor(Leaf) for _ in range(number)]
                for leaf in self.leaves:
                    self.send(leaf, "who")
            case ("leaf", pid):
                self.pids.append(pid)
                if len(self.pids) == self.wanted:
                    self.send(self.asker, (os.getpid(), self.pids))
            case "kill by turns":
                self.killed_by_turns = True
                os.kill(self.pids[0], signal.SIGKILL)
            case ChildActorExited() if self.killed_by_turns:
                self._hear(message)
            case "heard":
                self.send(sender, (len(self.heard), self.code))
            case "bear and kill":
                self._bear_and_kill()
                self.send(sender, os.getpid())
            case "open":
                self.asker = sender
                open_pidfd(os.getpid())
                self.send(self.createActor(Leaf), "pidfds")
            case ("pidfds", number):
                self.send(self.asker, (pidfds(), number))

    def _hear(self, message: Any) -> None:
        """The next child dies while the death of the first is being handled."""
        self.heard.add(next(i for i, leaf in enumerate(self.leaves) if leaf == message.childAddress))
        if len(self.heard) == 1:
            self.code = mends.exit_code_of(self.pids[0])
            kill_and_await(self.pids[1])

    def _bear_and_kill(self) -> None:
        """Children that have reported, of which this parent reads only when they are dead."""
        for _ in range(3):
            self.createActor(Leaf)
        pids = [info.childProc.pid for info in self._myRef._child_procs]
        until(lambda: len(list(Path(os.environ[BORN]).iterdir())) == 3)
        time.sleep(0.3)
        for pid in pids:
            kill_and_await(pid)


def pidfds() -> int:
    """How many pidfds this process has."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(fd) == "anon_inode:[pidfd]"
        except FileNotFoundError:
            continue
    return found


def kill_and_await(pid: int) -> None:
    """SIGKILL a child; it is a zombie afterwards."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def until(condition: Callable[[], bool], timeout_s: float = WAIT_S) -> bool:
    """Wait for the condition; False when it does not come true."""
    give_up_at = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.01)
    return True


class Stage:
    """An open actor system, and questions to its actors."""

    def __init__(self, folder: Path) -> None:
        self.system = mail.open_system(folder)
        self.admin = next(p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE)

    def ask(self, actor: Any, message: Any) -> Any:
        """Give the answer."""
        self.system.send(actor, message)
        return self.system.receive(10.0)

    def family(self, number: int) -> tuple[Any, int, list[int]]:
        """A parent with so many leaves: its address, its pid, theirs."""
        parent = self.system.create("mend_scenarios.Parent")
        pid, leaves = self.ask(parent, ("have", number))
        return parent, pid, leaves


def lost_exits(stage: Stage) -> dict[str, Any]:
    """A second child dies while the death of the first is handled: is it heard of?"""
    parent, _, _ = stage.family(2)
    stage.system.send(parent, "kill by turns")
    until(lambda: stage.ask(parent, "heard")[0] == 2, 1.5)
    heard, code = stage.ask(parent, "heard")
    return {"heard": heard, "code": code}


def shutdown(stage: Stage) -> dict[str, Any]:
    """A parent that does not know that its children are dead is to end: does it?"""
    parent = stage.system.create("mend_scenarios.Parent")
    pid = stage.ask(parent, "bear and kill")
    stage.system.send(parent, ActorExitRequest())
    return {"ended": until(lambda: not is_running(pid))}


def logger_death(stage: Stage) -> dict[str, Any]:
    """Thespian's logger is killed: does the admin live, and make actors?"""
    (logger,) = stage.admin.children()
    logger.kill()
    died = until(lambda: not is_running(stage.admin.pid), 1.5)
    answer = None
    if not died:
        answer = stage.ask(stage.system.create("mend_scenarios.Leaf"), "who")
    return {"admin_lives": not died, "answers": answer is not None}


def signals(stage: Stage) -> dict[str, Any]:
    """A leaf has a segmentation fault: does it end, and is its parent told?"""
    leaf = stage.system.create("mend_scenarios.Leaf")
    _, pid = stage.ask(leaf, "who")
    before = psutil.Process(pid).cpu_times().user
    stage.system.send(leaf, "segfault")
    ended = until(lambda: not is_running(pid), 2.0)
    spun = 0.0 if ended else sum(psutil.Process(pid).cpu_times()[:2]) - before
    return {"ended": ended, "spun_s": spun}


def orphans(stage: Stage) -> dict[str, Any]:
    """A parent is killed, then the admin: do those below end?"""
    _, parent, leaves = stage.family(2)
    kill(parent)
    leaves_end = until(lambda: not any(map(is_running, leaves)), 1.5)
    _, parent, leaves = stage.family(1)
    below = [parent, *leaves, *(p.pid for p in stage.admin.children())]
    kill(stage.admin.pid)
    return {"leaves_end": leaves_end, "all_end": until(lambda: not any(map(is_running, below)), 1.5)}


def outermost(stage: Stage) -> dict[str, Any]:
    """The outermost process is killed; its caller sees which of these end."""
    _, parent, leaves = stage.family(1)
    pids = [stage.admin.pid, parent, *leaves, *(p.pid for p in stage.admin.children())]
    print(json.dumps({"pids": pids}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def descriptors(stage: Stage) -> dict[str, Any]:
    """A parent that watches a process makes a child: does the child inherit the watch?"""
    parent = stage.system.create("mend_scenarios.Parent")
    own, inherited = stage.ask(parent, "open")
    return {"parent": own, "child": inherited}


SCENARIOS = {
    each.__name__: each
    for each in (lost_exits, shutdown, logger_death, signals, orphans, outermost, descriptors)
}


def main() -> None:
    """Play one scenario, print what happened, and leave nothing behind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--mail", default="unix", choices=("unix", "tcp"))
    parser.add_argument("--without", action="append", default=[])
    given = parser.parse_args()
    os.environ["CALLBOARD_MAIL"] = given.mail
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="cb-") as name:
        born = Path(name, "born")
        born.mkdir()
        os.environ[BORN] = str(born)
        try:
            mends.apply(os.getpid(), frozenset(given.without))
            print(json.dumps(SCENARIOS[given.scenario](Stage(Path(name)))), flush=True)
        finally:
            end_all()


def end_all() -> None:
    """Kill and reap everything below this process."""
    while left := descendants(os.getpid()):
        for process in left:
            kill(process.pid)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(0.005)


if __name__ == "__main__":
    import mend_scenarios  # the module's importable self: actors are created by its name

    sys.exit(mend_scenarios.main())
