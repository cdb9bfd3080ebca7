"""Rows of OTP's list that need processes: a small tree of our own, kept by the real outermost process."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from callboard.mailbox import Mailbox
from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import (
    ChildAt,
    ChildDeleted,
    ChildStatus,
    ChildTerminated,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from callboard.supervisor.envelope import Envelope, Failure
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.supervisor import SUPERVISOR
from callboard.supervisor.table import ProcessTable, Row
from callboard.testing.turns import eventually

covers = pytest.mark.covers

HERE = Path(__file__).parent
ROOMY = Intensity(100, 10.0)


class Tree:
    """A running tree: commands by name, rows, the log."""

    def __init__(self, folder: Path, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.process = process
        self.table = ProcessTable(folder)
        self.mailbox = Mailbox(folder)

    def ask(self, to: str, body: Any, timeout_s: float = 10.0) -> Any:
        return self.mailbox.request(body, timeout_s=timeout_s, to=to)

    def tell_once(self, to: str, body: Any) -> None:
        """Send a command a single time, and wait for no answer."""
        found = self.table.find(to)
        assert found is not None
        endpoint = self.mailbox._take()
        endpoint.send(found[0], Envelope(request_id=f"once-{time.monotonic_ns()}", body=body))
        self.mailbox._give_back(endpoint)

    def row(self, id: str) -> Row:
        row = self.table.get(id)
        assert row is not None, f"no {id}"
        return row

    def pid(self, id: str) -> int:
        pid = self.row(id).pid
        assert pid is not None
        return pid

    def runs_anew(self, id: str, old_pid: int, within_s: float = 10.0) -> Row:
        def anew() -> bool:
            row = self.table.get(id)
            return row is not None and row.state == "running" and row.pid not in (None, old_pid)

        eventually(anew, within_s, f"{id} runs anew")
        return self.row(id)

    def log(self, event: str, subject: str) -> list[dict[str, Any]]:
        lines = (self.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
        entries = [json.loads(line) for line in lines]
        return [e for e in entries if e.get("event") == event and e.get("subject") == subject]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0


@contextmanager
def kept_tree(folder: Path, *children: ChildSpec, **flags: Any) -> Iterator[Tree]:
    args = {"flags": SupervisorFlags(**{"intensity": ROOMY, **flags}), "children": children}
    pickled = folder / "args"
    pickled.write_bytes(pickle.dumps(args))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "otp_actors.py"), str(folder), str(pickled)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    tree = Tree(folder, process)
    try:
        assert process.stdout.readline() == "up\n"
        yield tree
    finally:
        tree.mailbox.close()
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


@pytest.fixture
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Tree]]:
    """Keep a tree of these children under a root with these flags."""
    with ExitStack() as stack:
        yield lambda *children, **flags: stack.enter_context(
            kept_tree(tmp_path_factory.mktemp("t"), *children, **flags)
        )


def actor(id: str, **fields: Any) -> ChildSpec:
    do: dict[str, Any] = {key: fields.pop(key) for key in ("do", "note") if key in fields}
    return ChildSpec(id=id, actor="otp_actors.Willing", args=do, **{"shutdown_s": 1.0, **fields})


def supervisor(id: str, *children: ChildSpec, **flags: Any) -> ChildSpec:
    args = {"flags": SupervisorFlags(**{"intensity": ROOMY, **flags}), "children": children}
    return ChildSpec(id=id, actor=SUPERVISOR, args=args, type="supervisor", shutdown_s=3.0)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@covers("OTP-41")
def test_a_killed_supervisor_takes_its_worker_with_it_and_both_come_back_under_their_names(tree: Any) -> None:
    run = tree(supervisor("mid", actor("worker")), actor("other"))
    mid, worker, other = run.pid("mid"), run.pid("mid.worker"), run.pid("other")
    former = run.row("mid.worker").incarnation
    os.kill(mid, signal.SIGKILL)
    run.runs_anew("mid", mid)
    assert run.runs_anew("mid.worker", worker).incarnation > former, "no incarnation comes twice"
    eventually(lambda: is_gone(worker), 2.0, "the former worker is gone")
    assert run.ask("mid.worker", "hello") == "hello"
    assert run.pid("other") == other


@covers("OTP-60")
@pytest.mark.parametrize("victim", ["mid", "root"])
def test_a_killed_parent_leaves_no_process_whatever_its_children_do(tree: Any, victim: str) -> None:
    run = tree(supervisor("mid", actor("spins"), actor("stopped"), supervisor("deep", actor("leaf"))))
    assert run.ask("mid.spins", "spin") == "spinning"
    os.kill(run.pid("mid.stopped"), signal.SIGSTOP)
    top = psutil.Process(run.pid(victim))
    below = top.children(recursive=True)
    assert len(below) >= 4
    top.kill()
    eventually(lambda: all(is_gone(process.pid) for process in below), 3.0, "all below are gone")
    run.runs_anew("mid.deep.leaf", 0)


@covers("OTP-59")
def test_a_command_that_raised_has_its_effect_once(tree: Any, tmp_path: Path) -> None:
    run = tree(actor("a"))
    file, pid = tmp_path / "effects", run.pid("a")
    run.tell_once("a", ("note and raise", str(file)))
    run.runs_anew("a", pid)
    assert run.ask("a", "hello") == "hello"
    assert file.read_text().splitlines() == ["done"]
    assert run.log("restarting", "a")[0]["reason"] == "crashed: RuntimeError: after the effect"


@covers("OTP-63")
def test_a_segmentation_fault_is_reported_within_a_second(tree: Any) -> None:
    run = tree(actor("a"))
    pid = run.pid("a")
    run.tell_once("a", "segfault")
    eventually(lambda: run.log("restarting", "a"), 1.0, "the fault is reported")
    assert run.log("restarting", "a")[0]["reason"] == "killed by SIGSEGV"
    run.runs_anew("a", pid)


@covers("OTP-58")
def test_a_transient_child_that_says_goodbye_and_vanishes_is_not_restarted(tree: Any) -> None:
    run = tree(*[actor(f"a{number}", restart="transient") for number in range(8)])
    for number in range(8):
        run.tell_once(f"a{number}", ("say goodbye and vanish", "normal"))
    for number in range(8):
        eventually(lambda: run.row(f"a{number}").state == "stopped", 3.0, "it has ended")  # noqa: B023
        assert [entry["reason"] for entry in run.log("ended", f"a{number}")] == ["normal"]
        assert run.log("restarting", f"a{number}") == []


@covers("OTP-57")
def test_every_death_of_many_at_once_counts_once(tree: Any) -> None:
    run = tree(*[actor(f"a{number}") for number in range(10)])
    before = {f"a{number}": run.pid(f"a{number}") for number in range(10)}
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    for id, pid in before.items():
        row = run.runs_anew(id, pid)
        assert (row.restarts, row.incarnation) == (1, 2)
        assert [entry["reason"] for entry in run.log("restarting", id)] == ["killed by SIGKILL"]


@covers("OTP-61", "OTP-62")
def test_what_was_on_its_way_in_a_former_life_does_not_disturb_the_next(tree: Any) -> None:
    """The timers and notices of the lives before, restart and reset, come while later lives run."""
    run = tree(actor("a", start_s=1.0, backoff=Backoff(min_s=0.05, max_s=0.05, reset_after_s=0.3)))
    for _ in range(3):
        pid = run.pid("a")
        os.kill(pid, signal.SIGKILL)
        run.runs_anew("a", pid)
    pid, began = run.pid("a"), time.monotonic()
    eventually(lambda: time.monotonic() - began > 1.5, 3.0)
    assert run.pid("a") == pid, "the start timers of all four lives are over, and none of them killed it"
    assert run.row("a").restarts == 3


@covers("OTP-39", "OTP-35")
def test_a_stopped_child_cannot_hang_its_supervisor(tree: Any) -> None:
    run = tree(actor("a", shutdown_s=0.3), actor("b"))
    pid = run.pid("a")
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    assert run.ask("root", TerminateChild("a")) == ChildTerminated("a")
    assert 0.25 < time.monotonic() - began < 3.0
    assert is_gone(pid)
    assert run.row("a").state == "stopped"
    assert run.ask("b", "hello") == "hello"
    assert run.log("shutdown_error", "a")[0]["reason"] == "killed by SIGKILL"


@covers("OTP-3", "OTP-4", "OTP-12")
def test_real_starts_fail_in_their_own_words(tree: Any) -> None:
    run = tree(supervisor("kids", dynamic=True))
    expected = {
        "raise": "ValueError: told to fail",
        "exit": "",
        "kill": "SIGKILL",
        "hang": "not up after 0.3 s",
    }
    for do, words in expected.items():
        answer = run.ask("kids", StartChild(actor(do, do=do, start_s=0.3 if do == "hang" else 20.0)))
        assert isinstance(answer, Failure)
        assert answer.kind == "start_failed"
        assert words in answer.message
    assert run.ask("kids", CountChildren()).specs == 0
    assert run.table.get("kids.raise") is None


@covers("OTP-13", "OTP-14")
def test_administration_by_messages(tree: Any) -> None:
    run = tree(actor("a"), supervisor("kids", dynamic=True, max_children=2))
    assert run.ask("root", RestartChild("a")).kind == "running"
    assert run.ask("root", TerminateChild("a")) == ChildTerminated("a")
    restarted = run.ask("root", RestartChild("a"))
    assert isinstance(restarted, ChildAt)
    assert restarted.pid == run.pid("a")
    run.ask("root", TerminateChild("a"))
    assert run.ask("root", DeleteChild("a")) == ChildDeleted("a")
    assert run.ask("root", DeleteChild("a")).kind == "not_found"
    first = run.ask("kids", StartChild(actor("one")))
    assert run.ask("kids", StartChild(actor("one"))).pid == first.pid
    assert run.ask("kids", StartChild(actor("two"))).incarnation == 1
    assert run.ask("kids", StartChild(actor("three"))).kind == "max_children"
    statuses: tuple[ChildStatus, ...] = run.ask("kids", WhichChildren())
    assert {(status.id, status.state, status.pid) for status in statuses} == {
        ("one", "running", run.pid("kids.one")),
        ("two", "running", run.pid("kids.two")),
    }


@covers("OTP-24", "OTP-28")
def test_one_for_all_with_real_processes_keeps_the_order(tree: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    ids = ["m", "z", "a"]
    run = tree(*[actor(id, note=str(notes)) for id in ids], strategy="one_for_all")
    before = [run.pid(id) for id in ids]
    os.kill(run.pid("z"), signal.SIGKILL)
    for id, pid in zip(ids, before, strict=True):
        run.runs_anew(id, pid)
    started = [f"start {id}" for id in ids]
    assert notes.read_text().splitlines() == [*started, "stop a", "stop m", *started]
    run.stop()
    assert notes.read_text().splitlines()[-3:] == ["stop a", "stop z", "stop m"]


@covers("OTP-29")
def test_escalation_brings_static_children_back_and_not_dynamic_ones(tree: Any) -> None:
    run = tree(
        supervisor("mid", actor("static"), intensity=Intensity(0)),
        supervisor("kids", dynamic=True, intensity=Intensity(0)),
    )
    run.ask("kids", StartChild(actor("one")))
    mid, static, kids = run.pid("mid"), run.pid("mid.static"), run.pid("kids")
    os.kill(static, signal.SIGKILL)
    os.kill(run.pid("kids.one"), signal.SIGKILL)
    run.runs_anew("mid", mid)
    run.runs_anew("mid.static", static)
    run.runs_anew("kids", kids)
    assert run.ask("kids", CountChildren()).specs == 0
    assert run.table.get("kids.one") is None
    assert run.log("restarting", "mid")[0]["reason"] == "shutdown: reached_max_restart_intensity"


@covers("OTP-45", "OTP-43")
def test_a_significant_child_ends_its_group(tree: Any) -> None:
    group = supervisor(
        "turn",
        actor("stream", restart="temporary", significant=True),
        actor("worker", restart="temporary"),
        auto_shutdown="any_significant",
    )
    run = tree(supervisor("kids", dynamic=True))
    fields = {name: getattr(group, name) for name in ("id", "actor", "args", "type", "shutdown_s")}
    run.ask("kids", StartChild(ChildSpec(**fields, restart="transient")))
    worker = run.pid("kids.turn.worker")
    run.tell_once("kids.turn.stream", ("finish", "normal"))
    eventually(lambda: run.table.get("kids.turn") is None, 5.0, "the group has ended")
    assert is_gone(worker)
    assert run.log("ended", "kids.turn")[0]["reason"].startswith("shutdown: significant child stream ended")


@covers("OTP-38", "OTP-40")
def test_dynamic_children_are_ended_in_the_time_of_the_slowest(tree: Any) -> None:
    run = tree(supervisor("kids", dynamic=True))
    pids = []
    for number in range(6):
        pids.append(run.ask("kids", StartChild(actor(f"c{number}", shutdown_s=0.5))).pid)
        os.kill(pids[-1], signal.SIGSTOP)
    began = time.monotonic()
    assert run.ask("root", TerminateChild("kids")) == ChildTerminated("kids")
    assert time.monotonic() - began < 2.0, "one after the other it would be three seconds"
    assert all(is_gone(pid) for pid in pids)
