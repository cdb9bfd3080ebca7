"""The core: what is ours, and the exact effects of single events. The list of OTP is in ``tests/unit/otp``."""

from __future__ import annotations

from typing import Any

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import RestartChild, StartChild, TerminateChild
from callboard.supervisor.core import KILL_WAIT_S, SupervisorCore
from callboard.supervisor.core_terms import (
    Answer,
    Asked,
    AskToStop,
    Boot,
    ChildExited,
    ChildStarted,
    ChildUp,
    End,
    Kill,
    Report,
    SetTimer,
    Show,
    Spawn,
    Stop,
    TimerDue,
    Up,
)
from callboard.supervisor.envelope import Failure
from callboard.supervisor.spec import SupervisorFlags


def test_the_life_of_a_child_effect_by_effect(spec: Any) -> None:
    a = spec("a", kind="k", start_s=9.0, shutdown_s=2.0, backoff=Backoff(min_s=1.0, jitter=0.5))
    core = SupervisorCore(SupervisorFlags(), (a,), lambda: 0.5)
    assert core.handle(Boot(), 0.0) == [
        Spawn(a, 1, 0),
        Show("a", "k", "starting", 1, 0),
        SetTimer(TimerDue("a", "start", 1), 9.0),
    ]
    assert core.handle(ChildStarted("a", 1, "info"), 0.0) == [
        Show("a", "k", "running", 1, 0),
        Report("a", "started", 1, "", 0, 0),
        Up(),
    ]
    assert core.handle(ChildExited("a", 1, "crashed: x"), 1.0) == [
        Report("a", "restarting", 1, "crashed: x", 1, 1, 1.25),
        Show("a", "k", "restarting", 1, 1),
        SetTimer(TimerDue("a", "restart", 1), 1.25),
    ]
    assert core.handle(TimerDue("a", "restart", 1), 2.25) == [
        Spawn(a, 2, 1),
        Show("a", "k", "starting", 2, 1),
        SetTimer(TimerDue("a", "start", 2), 9.0),
    ]
    assert core.handle(ChildStarted("a", 2), 3.0) == [
        Show("a", "k", "running", 2, 1),
        Report("a", "started", 2, "", 1, 1),
        SetTimer(TimerDue("a", "reset", 2), 10.0),
    ]
    assert core.handle(TimerDue("a", "reset", 2), 13.0) == []
    assert core.handle(Stop(), 14.0) == [
        Show("a", "k", "stopping", 2, 1),
        AskToStop("a", 2),
        SetTimer(TimerDue("a", "stop", 2), 2.0),
    ]
    assert core.handle(Stop(), 14.5) == []
    assert core.handle(TimerDue("a", "stop", 2), 16.0) == [
        Kill("a", 2),
        SetTimer(TimerDue("a", "abandon", 2), KILL_WAIT_S),
    ]
    assert core.handle(ChildExited("a", 2, "killed by SIGKILL"), 16.1) == [
        Report("a", "shutdown_error", 2, "killed by SIGKILL", 0, 1),
        Show("a", "k", None, 2, 1),
        End("shutdown"),
    ]


def test_a_childs_start_answers_with_what_it_said(spec: Any) -> None:
    core = SupervisorCore(SupervisorFlags(), (), lambda: 0.0)
    assert core.handle(Boot(), 0.0) == [Up()]
    core.handle(Asked("r", StartChild(spec("a"))), 0.0)
    assert core.handle(ChildStarted("a", 1, "info"), 0.0)[-1] == Answer("r", ChildUp("a", 1, "info"))


def test_a_one_for_one_supervisor_restarts_a_child_while_it_boots_the_next(bench: Any, spec: Any) -> None:
    """Later children may need the earlier one to come up at all."""
    run = bench(spec("a"), spec("b"), spec("c"))
    run.starts["b"] = ["hang"]
    run.boot().exit("a")
    assert run.lives == {"a": 2, "b": 1}
    assert not run.up
    run.up_now("b")
    assert run.up
    assert run.lives == {"a": 2, "b": 1, "c": 1}


def test_a_group_supervisor_takes_up_a_crash_during_its_boot_after_it(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), strategy="one_for_all")
    run.starts["b"] = ["hang", "ok"]
    run.boot().exit("a")
    assert run.lives == {"b": 1}
    run.up_now("b")
    assert run.up
    assert run.lives == {"a": 2, "b": 2}


def test_commands_during_the_boot_are_taken_up_after_it(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"))
    run.starts["a"] = ["hang"]
    run.boot()
    assert run.ask(TerminateChild("b")) is None
    run.up_now("a")
    assert run.state("b") == "stopped"


def test_a_command_that_waits_when_the_supervisor_ends_is_answered(bench: Any, spec: Any) -> None:
    run = bench(spec("a"))
    run.starts["a"] = ["hang"]
    run.boot()
    run.ask(StartChild(spec("b")))
    run.stop()
    assert (run.answer().kind, run.answer().retryable) == ("stopping", True)
    assert run.ended == "shutdown"


def test_a_child_that_ends_by_itself_before_its_turn_to_stop_is_not_waited_for(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c")).boot()
    run.stops["c"] = "hang"
    run.stop().exit("a").exit("c", "shutdown")
    assert run.ended == "shutdown"
    assert run.facts("a")[-1] == ("ended", "crashed: boom")
    assert run.log[-2:] == [("ask", "b"), ("exit", "b")]


def test_a_supervisor_that_gives_up_while_it_boots_never_comes_up(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"))
    run.starts["b"] = ["hang"]
    run.boot()
    for _ in range(4):
        run.exit("a")
    assert run.ended == "shutdown: reached_max_restart_intensity"
    assert not run.up
    assert run.count("kill", "b") == 1
    assert run.count("spawn", "c") == 0


def test_a_crash_during_the_boot_whose_restart_fails_does_not_end_the_boot(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"))
    run.starts["a"] = ["ok", "start_failed: no", "ok"]
    run.starts["b"] = ["hang"]
    run.boot().exit("a")
    assert run.lives == {"a": 3, "b": 1}
    run.up_now("b")
    assert run.up
    assert run.lives == {"a": 3, "b": 1, "c": 1}


def test_a_failed_restart_is_said_and_tried_again_through_the_mailbox(spec: Any) -> None:
    a = spec("a", kind="k")
    core = SupervisorCore(SupervisorFlags(), (a,), lambda: 0.5)
    core.handle(Boot(), 0.0)
    core.handle(ChildStarted("a", 1), 0.0)
    assert core.handle(ChildExited("a", 1, "crashed: x"), 1.0) == [
        Report("a", "restarting", 1, "crashed: x", 1, 1, 0.0),
        Spawn(a, 2, 1),
        Show("a", "k", "starting", 2, 1),
        SetTimer(TimerDue("a", "start", 2), 20.0),
    ]
    assert core.handle(ChildExited("a", 2, "start_failed: no"), 1.0) == [
        Report("a", "start_failed", 2, "start_failed: no", 2, 2, 0.0),
        Show("a", "k", "restarting", 2, 2),
        SetTimer(TimerDue("a", "restart", 2), 0.0),
    ]


def test_the_facts_of_failed_and_ignored_starts_are_reported(bench: Any, spec: Any) -> None:
    run = bench(spec("a")).boot()
    run.starts["b"] = ["start_failed: no"]
    run.ask(StartChild(spec("b")))
    assert run.facts("b") == [("start_failed", "start_failed: no")]
    run.starts["c"] = ["ignore"]
    run.ask(StartChild(spec("c")))
    assert run.facts("c") == [("ignored", "")]
    run.ask(TerminateChild("a"))
    run.starts["a"] = ["start_failed: no"]
    run.ask(RestartChild("a"))
    assert run.facts("a") == [("started", ""), ("ended", "shutdown"), ("start_failed", "start_failed: no")]
    boot = bench(spec("a"))
    boot.starts["a"] = ["start_failed: no"]
    boot.boot()
    assert boot.facts("a") == [("start_failed", "start_failed: no")]


def test_parking_is_said_with_its_reason_and_the_next_try(bench: Any, spec: Any) -> None:
    policy = Backoff(min_s=1.0, max_s=9.0, jitter=0.0)
    run = bench(spec("a", backoff=policy, max_consecutive=0, on_exhausted="park"))
    run.starts["a"] = ["start_failed: no"]
    run.boot()
    assert run.up
    assert [(r.fact, r.reason, r.delay_s) for r in run.reports] == [("parked", "start_failed: no", 9.0)]
    assert run.ask(RestartChild("a")) == Failure(
        kind="parked", message="a is parked after: start_failed: no", retryable=True
    )
