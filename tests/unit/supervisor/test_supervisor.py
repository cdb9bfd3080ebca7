"""The supervisor actor as a shell: what it makes of notices, deaths and commands. Its processes are made up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.supervisor import supervisor as shell
from callboard.supervisor.child import Spawned
from callboard.supervisor.commands import (
    ChildAt,
    ChildNotStarted,
    ChildTerminated,
    CountChildren,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from callboard.supervisor.envelope import (
    Envelope,
    Exiting,
    Failure,
    Ignored,
    Init,
    Shutdown,
    Started,
    StartFailed,
)
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.supervisor import LIFE, SupervisorActor

covers = pytest.mark.covers


class Rig(SupervisorActor):
    """A supervisor whose mail, clock, table and processes are lists."""

    def __init__(self, *children: ChildSpec, incarnation: int = 1, id: str = "root", **flags: Any) -> None:
        super().__init__()
        args = {"flags": SupervisorFlags(**flags), "children": children}
        self.init = Init(id=id, kind="supervisor", incarnation=incarnation, runtime_dir="/nowhere", args=args)
        self.time = 0.0
        self.pending: list[tuple[float, Callable[[], None]]] = []
        self.inits: list[Init] = []
        self.fds: dict[str, int] = {}
        self.forgotten: list[int] = []
        self.sent: list[tuple[Any, Any]] = []
        self.answers: list[Any] = []
        self.facts: list[tuple[str, str, str]] = []
        self.rows: dict[str, Any] = {}
        self.ended: str | None = None
        self.no_fork = False
        self._table = SimpleNamespace(  # type: ignore[assignment]
            put=lambda row: self.rows.__setitem__(row.id, row),
            remove=lambda id: self.rows.pop(id, None),
            remove_below=lambda id: None,
        )
        note = lambda fact, **words: self.facts.append((fact, words["subject"], words["reason"]))  # noqa: E731
        self.log = SimpleNamespace(info=note, warning=note)
        self.start()
        self._run_continues()

    def now(self) -> float:
        return self.time

    def after(self, delay_s: float, action: Callable[[], None]) -> Any:
        self.pending.append((self.time + delay_s, action))

    def advance(self, seconds: float) -> None:
        self.time += seconds
        due = sorted((p for p in self.pending if p[0] <= self.time), key=lambda p: p[0])
        self.pending = [p for p in self.pending if p[0] > self.time]
        for _, action in due:
            action()
            self._run_continues()

    def spawn(self, actor: str, init: Init) -> Spawned | None:
        if self.no_fork:
            return None
        self.inits.append(init)
        fd = self.fds[init.id] = os.open(os.devnull, os.O_RDONLY)
        return Spawned(address=f"address of {init.id}", pid=len(self.inits), pidfd=fd)

    def forget_child(self, spawned: Spawned) -> None:
        self.forgotten.append(spawned.pid)

    def send(self, address: Any, message: Any) -> None:
        self.sent.append((address, message))

    def reply(self, envelope: Envelope, body: Any) -> None:
        self.answers.append(body)

    def ready(self) -> None:
        self.is_up = True

    def finish(self, reason: str = "normal") -> None:
        self.ended = reason

    def ask_for(self, body: Any, request_id: str) -> None:
        self.handle(Envelope(request_id=request_id, body=body))

    def started(self, id: str, info: Any = None) -> None:
        """The latest incarnation of the child says that it is up."""
        init = [init for init in self.inits if init.id == id][-1]
        started = Started(id=id, incarnation=init.incarnation, pid=1, address=f"real {id}", info=info)
        self.handle_notice(started, None)
        self._run_continues()

    def says(self, id: str, reason: str, incarnation: int = 1) -> None:
        self.handle_notice(Exiting(id=id, incarnation=incarnation, reason=reason), None)

    def dies(self, id: str) -> None:
        """The kernel says that the child's process has ended."""
        self._watched[self.fds[id]](1)
        self._run_continues()


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """No real process is touched; ``code`` is the exit code that the kernel knows."""
    world = SimpleNamespace(code=None, killed=[])
    monkeypatch.setattr(shell, "exit_code", lambda fd, pid: world.code)
    monkeypatch.setattr(shell, "kill_by", world.killed.append)
    monkeypatch.setattr(shell, "kill_group", lambda pid: None)
    monkeypatch.setattr(shell, "start_time", lambda pid: 0.0)
    rigs: list[Rig] = []
    world.rigs = rigs
    yield world
    for rig in rigs:
        for life in rig._lives.values():
            if not life.over:
                rig._let_go(life)
        if rig._poller is not None:
            rig._poller.close()


@pytest.fixture
def rig(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rig]:
    """Make a supervisor, and its children ``a``, ``b`` … up unless told otherwise."""

    def watch(self: Rig, fd: int, action: Callable[[int], None], events: int = 1) -> None:
        self._watched[fd] = action

    monkeypatch.setattr(Rig, "watch", watch)
    monkeypatch.setattr(Rig, "unwatch", lambda self, fd: self._watched.pop(fd, None))

    def make(*children: ChildSpec, up: bool = True, **more: Any) -> Rig:
        made = Rig(*children, **more)
        world.rigs.append(made)
        for child in children if up else ():
            made.started(made._full(child.id))
        return made

    return make


def spec(id: str, **fields: Any) -> ChildSpec:
    return ChildSpec(id=id, actor="some.Actor", **fields)


@covers("OTP-58")
def test_an_exit_that_overtakes_its_notice_still_gets_the_notices_reason(rig: Any, world: Any) -> None:
    world.code = 0
    run = rig(spec("a", restart="transient"))
    run.dies("a")
    run.advance(0.05)
    run.says("a", "normal")
    run.advance(1.0)
    assert run.facts[-1] == ("ended", "a", "normal")
    assert len(run.inits) == 1


@covers("OTP-58")
def test_without_a_notice_the_kernel_says_how_it_ended(rig: Any, world: Any) -> None:
    world.code = 3
    run = rig(spec("a"))
    run.dies("a")
    assert len(run.inits) == 1, "the notice may still be in the mail"
    run.advance(0.11)
    assert ("restarting", "a", "exited with code 3") in run.facts
    assert [init.incarnation for init in run.inits] == [1, 2]
    assert [init.restarts for init in run.inits] == [0, 1]


@covers("OTP-63")
@pytest.mark.parametrize(("code", "name"), [(-11, "SIGSEGV"), (-9, "SIGKILL"), (-7, "SIGBUS")])
def test_a_child_that_a_signal_killed_is_replaced_without_waiting_for_a_notice(
    rig: Any, world: Any, code: int, name: str
) -> None:
    world.code = code
    run = rig(spec("a"))
    run.dies("a")
    assert ("restarting", "a", f"killed by {name}") in run.facts
    assert len(run.inits) == 2


@covers("OTP-57")
def test_a_death_that_is_said_twice_counts_once(rig: Any, world: Any) -> None:
    run = rig(spec("a"))
    run.says("a", "crashed: first")
    run.says("a", "crashed: second")
    run.dies("a")
    run.says("a", "crashed: first")
    run.advance(5.0)
    run.started("a")
    run.says("a", "crashed: first", incarnation=1)
    assert [fact for fact in run.facts if fact[0] == "restarting"] == [("restarting", "a", "crashed: first")]
    assert run.rows["a"].restarts == 1
    assert world.killed == []


@covers("OTP-39")
def test_a_child_that_says_goodbye_and_stays_is_killed(rig: Any, world: Any) -> None:
    run = rig(spec("a"))
    run.says("a", "normal")
    run.advance(0.6)
    assert world.killed == [run.fds["a"]]


@covers("OTP-39")
def test_nothing_is_signalled_through_a_descriptor_that_is_closed(rig: Any, world: Any) -> None:
    world.code = 0
    run = rig(spec("a", shutdown_s=0.05))
    run.stopping()
    assert run.sent[-1] == ("real a", Shutdown())
    run.dies("a")
    run.advance(0.06)
    assert world.killed == []
    run.advance(0.2)
    assert run.ended == "shutdown"


@covers("OTP-61", "OTP-62")
def test_notices_of_a_former_incarnation_are_ignored(rig: Any, world: Any) -> None:
    run = rig(spec("a"))
    run.says("a", "crashed: x")
    run.dies("a")
    run.handle_notice(Started(id="a", incarnation=1, pid=1, address="old"), None)
    assert run.rows["a"].state == "starting"
    run.started("a")
    run.says("a", "crashed: again", incarnation=1)
    assert run.rows["a"].state == "running"
    assert run._lives["a"].reason is None


@covers("OTP-3", "OTP-12")
def test_a_start_that_failed_is_answered_with_the_childs_own_words(rig: Any) -> None:
    run = rig()
    run.ask_for(StartChild(spec("a")), "r1")
    failure = Failure(kind="start_failed", message="ValueError: no such file")
    run.handle_notice(StartFailed(id="a", incarnation=1, failure=failure), None)
    run.dies("a")
    assert run.answers[-1].kind == "start_failed"
    assert "ValueError: no such file" in run.answers[-1].message
    assert run.rows == {}


@covers("OTP-12")
def test_a_process_that_cannot_be_forked_is_a_failed_start(rig: Any) -> None:
    run = rig()
    run.no_fork = True
    run.ask_for(StartChild(spec("a")), "r1")
    run._run_continues()
    assert run.answers[-1].kind == "start_failed"
    assert run._lives == {}


@covers("OTP-1", "OTP-2")
def test_a_child_that_ignores_its_start_is_no_failure(rig: Any) -> None:
    run = rig()
    run.ask_for(StartChild(spec("a")), "r1")
    run.handle_notice(Ignored(id="a", incarnation=1), None)
    run.dies("a")
    assert run.answers == [ChildNotStarted("a", kept=True)]
    assert (run.rows["a"].state, run.rows["a"].pid) == ("stopped", None)


@covers("OTP-10")
def test_an_answer_says_where_the_child_is_and_what_it_said(rig: Any) -> None:
    run = rig(id="models")
    run.ask_for(StartChild(spec("a")), "r1")
    run.started("models.a", info={"port": 7})
    at = ChildAt(id="a", address="real models.a", pid=1, incarnation=1, info={"port": 7})
    assert run.answers == [at]
    run.ask_for(StartChild(spec("a")), "r2")
    assert run.answers[-1].already_started
    assert run.answers[-1].address == "real models.a"


def test_the_same_request_id_is_the_same_command(rig: Any) -> None:
    run = rig(spec("a"))
    for _ in range(3):
        run.ask_for(TerminateChild("a"), "r1")
    assert run.answers == []
    assert [message for _, message in run.sent] == [Shutdown()]
    run.says("a", "shutdown")
    run.dies("a")
    assert run.answers == [ChildTerminated("a")]
    run.ask_for(StartChild(spec("b")), "r2")
    run.ask_for(TerminateChild("a"), "r1")
    assert run.answers == [ChildTerminated("a"), ChildTerminated("a")]


def test_a_repeated_terminate_does_not_hit_the_next_child_of_that_id(rig: Any) -> None:
    run = rig(dynamic=True)
    run.ask_for(StartChild(spec("a")), "r1")
    run.started("a")
    run.ask_for(TerminateChild("a"), "r2")
    run.says("a", "shutdown")
    run.dies("a")
    run.ask_for(StartChild(spec("a")), "r3")
    run.started("a")
    run.ask_for(TerminateChild("a"), "r2")
    assert run.rows["a"].state == "running"


def test_views_show_processes_and_are_never_remembered(rig: Any) -> None:
    run = rig(spec("a"), spec("b", kind="model"))
    run.ask_for(WhichChildren(), "r1")
    assert [(s.id, s.state, s.pid, s.kind) for s in run.answers[-1]] == [
        ("a", "running", 1, "actor"),
        ("b", "running", 2, "model"),
    ]
    run.ask_for(CountChildren(), "r2")
    assert run.answers[-1].active == 2
    run.ask_for(TerminateChild("a"), "r3")
    run.says("a", "shutdown")
    run.dies("a")
    run.ask_for(CountChildren(), "r2")
    assert run.answers[-1].active == 1
    run.ask_for(WhichChildren(), "r1")
    assert run.answers[-1][0].pid is None


def test_waiting_commands_and_remembered_answers_are_bounded(
    rig: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "_ASKED_LIMIT", 2)
    monkeypatch.setattr(shell, "_ANSWERED_KEPT", 3)
    run = rig(dynamic=True)
    for number in range(3):
        run.ask_for(StartChild(spec("a")), f"r{number}")
    assert run.answers[-1].kind == "overloaded"
    run.started("a")
    for number in range(10):
        run.ask_for(TerminateChild("nobody"), f"t{number}")
    assert len(run._answered) == 3
    run.ask_for("no command", "x")
    assert "x" not in run._asked


@covers("OTP-57")
def test_the_incarnations_of_a_supervisors_next_life_are_above_those_of_its_former(rig: Any) -> None:
    first, second = rig(spec("a")), rig(spec("a"), incarnation=2, up=False)
    assert first.inits[0].incarnation == 1
    assert second.inits[0].incarnation == LIFE + 1
    second.handle_notice(Started(id="a", incarnation=1, pid=1, address="old"), None)
    assert second.rows["a"].state == "starting"


def test_a_child_that_cannot_be_killed_is_let_go(rig: Any, world: Any) -> None:
    run = rig(spec("a", shutdown_s=0))
    run.stopping()
    assert world.killed == [run.fds["a"]]
    run.advance(5.1)
    assert run._lives == {}
    assert run.ended == "shutdown"


@covers("OTP-20")
def test_the_shell_keeps_nothing_of_a_child_that_is_gone(rig: Any) -> None:
    run = rig(dynamic=True)
    for number in range(5):
        run.ask_for(StartChild(spec("a", restart="temporary", args={"x": 1})), f"r{number}")
        run.started("a")
        run.says("a", "normal", incarnation=number + 1)
        run.dies("a")
    assert (run._lives, run._asked, run._watched, run.rows) == ({}, {}, {}, {})
