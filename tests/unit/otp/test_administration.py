"""OTP-13 to OTP-15: the commands about children, and their answers."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import (
    ChildCounts,
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
from callboard.supervisor.core_admin import MAX_WAITING
from callboard.supervisor.core_terms import Asked, ChildUp
from callboard.supervisor.envelope import Failure
from callboard.supervisor.intensity import Intensity

covers = pytest.mark.covers


def kind(answer: Any) -> str:
    return str(answer.kind)


@covers("OTP-13")
def test_static_children_are_administered_as_in_otp(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b")).boot()
    assert run.ask(StartChild(spec("a"))) == ChildUp("a", 1, already_started=True)
    assert kind(run.ask(RestartChild("a"))) == "running"
    assert kind(run.ask(DeleteChild("a"))) == "running"
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    assert run.shown["a"] == "stopped"
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    assert kind(run.ask(StartChild(spec("a")))) == "already_present"
    assert run.ask(RestartChild("a")) == ChildUp("a", 2)
    run.ask(TerminateChild("a"))
    assert run.ask(DeleteChild("a")) == ChildDeleted("a")
    assert run.shown["a"] == "gone"
    for command in (TerminateChild("a"), RestartChild("a"), DeleteChild("a")):
        assert kind(run.ask(command)) == "not_found"
    assert [(s.id, s.state, s.type) for s in run.ask(WhichChildren())] == [("b", "running", "worker")]
    assert run.ask(StartChild(spec("a"))) == ChildUp("a", 3)
    assert [s.id for s in run.ask(WhichChildren())] == ["b", "a"]


@covers("OTP-13")
def test_commands_about_a_child_that_is_starting_wait_for_its_start(bench: Any, spec: Any) -> None:
    run = bench().boot()
    run.starts["a"] = ["hang"]
    refs = []
    for command in (StartChild(spec("a")), StartChild(spec("a")), RestartChild("a"), DeleteChild("a")):
        assert run.ask(command) is None
        refs.append(run.last_ref)
    run.up_now("a")
    assert run.answer(refs[0]) == ChildUp("a", 1)
    assert run.answer(refs[1]) == ChildUp("a", 1, already_started=True)
    assert [kind(run.answer(ref)) for ref in refs[2:]] == ["running", "running"]


@covers("OTP-13")
def test_commands_about_a_child_that_is_stopping_wait_for_its_end(bench: Any, spec: Any) -> None:
    run = bench(spec("a")).boot()
    run.stops["a"] = "hang"
    refs = []
    for command in (TerminateChild("a"), TerminateChild("a"), StartChild(spec("a")), DeleteChild("a")):
        assert run.ask(command) is None
        refs.append(run.last_ref)
    assert run.count("ask", "a") == 1
    run.exit("a", "shutdown")
    assert run.answer(refs[0]) == run.answer(refs[1]) == ChildTerminated("a")
    assert kind(run.answer(refs[2])) == "already_present"
    assert run.answer(refs[3]) == ChildDeleted("a")


@covers("OTP-13")
def test_terminating_a_child_that_is_starting_kills_it_and_fails_its_start(bench: Any, spec: Any) -> None:
    run = bench().boot()
    run.starts["a"] = ["hang"]
    run.ask(StartChild(spec("a")))
    started = run.last_ref
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    assert run.count("kill", "a") == 1
    assert run.count("ask", "a") == 0
    assert kind(run.answer(started)) == "start_failed"
    assert run.state("a") == "stopped"
    assert ("ended", "shutdown: its start was broken off") in run.facts("a")


@covers("OTP-13")
def test_manual_restarts_cost_no_budget(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), intensity=Intensity(1, 60.0)).boot()
    for _ in range(10):
        run.ask(TerminateChild("a"))
        run.ask(RestartChild("a"))
    run.exit("a")
    assert run.ended is None
    assert run.state("a") == "running"


@covers("OTP-13")
def test_a_temporary_child_that_is_terminated_is_forgotten(bench: Any, spec: Any) -> None:
    run = bench(spec("a", restart="temporary")).boot()
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    assert kind(run.ask(RestartChild("a"))) == "not_found"


@covers("OTP-14")
def test_a_dynamic_supervisor_refuses_delete_and_restart(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot().start(spec("a"))
    for command in (RestartChild("a"), DeleteChild("a"), RestartChild("nobody")):
        assert kind(run.ask(command)) == "not_supported"
    assert run.log == [("spawn", "a")]


@covers("OTP-14")
def test_a_dynamic_supervisor_terminates_its_own_children_only(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot().start(spec("a"), spec("b"))
    assert kind(run.ask(TerminateChild("foreign"))) == "not_found"
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    assert run.log[2:] == [("ask", "a"), ("exit", "a")]
    assert kind(run.ask(TerminateChild("a"))) == "not_found"
    assert run.state("b") == "running"


@covers("OTP-14")
def test_callers_that_start_the_same_dynamic_child_share_it(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    run.starts["a"] = ["hang"]
    refs = []
    for _ in range(2):
        run.ask(StartChild(spec("a")))
        refs.append(run.last_ref)
    run.up_now("a")
    assert [run.answer(ref) for ref in refs] == [ChildUp("a", 1), ChildUp("a", 1)]
    run.stops["a"] = "hang"
    run.ask(TerminateChild("a"))
    assert run.ask(StartChild(spec("a"))) is None, "it must first be gone"
    run.exit("a", "shutdown")
    run.up_now("a")
    assert run.answer() == ChildUp("a", 2)


@covers("OTP-15")
def test_counts_of_thousands_of_children(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    for number in range(3000):
        run.start(spec(f"c{number}", restart="temporary", type="supervisor" if number % 3 == 0 else "worker"))
    assert run.ask(CountChildren()) == ChildCounts(specs=3000, active=3000, supervisors=1000, workers=2000)
    for number in range(0, 3000, 2):
        run.exit(f"c{number}", "normal")
    assert run.ask(CountChildren()) == ChildCounts(specs=1500, active=1500, supervisors=500, workers=1000)
    assert len(run.ask(WhichChildren())) == 1500


@covers("OTP-15")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_restarting_child_counts_as_a_worker_not_as_active(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic).boot().start(spec("a", backoff=Backoff(min_s=1.0)), spec("b"))
    run.exit("a")
    assert run.ask(CountChildren()) == ChildCounts(specs=2, active=1, supervisors=0, workers=2)
    assert {s.id: s.state for s in run.ask(WhichChildren())} == {"a": "restarting", "b": "running"}


def test_commands_that_wait_are_bounded(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    run.starts["a"] = ["hang"]
    run.feed(*[Asked(f"r{n}", StartChild(spec("a"))) for n in range(MAX_WAITING)])
    assert run.answer("r0") is None
    answer = run.ask(StartChild(spec("a")))
    assert answer == Failure(
        kind="overloaded", message="too many commands wait for this child", retryable=True
    )
    busy = bench(spec("a"))
    busy.starts["a"] = ["hang"]
    busy.boot()
    busy.feed(*[Asked(f"r{n}", TerminateChild("nobody")) for n in range(MAX_WAITING)])
    assert busy.answer("r0") is None
    assert busy.ask(TerminateChild("nobody")) == Failure(
        kind="overloaded", message="too many commands wait for this supervisor", retryable=True
    )
    assert busy.ask(CountChildren()).active == 0, "views are answered at once"
    busy.up_now("a")
    assert kind(busy.answer("r0")) == kind(busy.answer(f"r{MAX_WAITING - 1}")) == "not_found"


def test_refusals_say_what_and_why(bench: Any, spec: Any) -> None:
    run = bench(spec("a")).boot()
    assert run.ask(RestartChild("a")) == Failure(kind="running", message="a is running")
    assert run.ask(DeleteChild("b")) == Failure(kind="not_found", message="no child b")
    assert run.ask(StartChild(spec("b", restart="transient", significant=True))) == Failure(
        kind="invalid_significant",
        message="child b: significant needs a supervisor that may shut down by itself",
    )
    run.ask(TerminateChild("a"))
    assert run.ask(StartChild(spec("a"))) == Failure(
        kind="already_present", message="there is a child a already; it is stopped"
    )
    run.starts["b"] = ["hang"]
    run.ask(StartChild(spec("b")))
    starter = run.last_ref
    run.ask(TerminateChild("b"))
    assert run.answer(starter) == Failure(
        kind="start_failed", message="b could not be started: it was stopped"
    )
    run.stop()
    assert run.ask(TerminateChild("a")) == Failure(
        kind="stopping", message="the supervisor is stopping", retryable=True
    )


def test_refusals_of_a_dynamic_supervisor_say_what_and_why(bench: Any, spec: Any) -> None:
    parked = {"on_exhausted": "park", "backoff": Backoff(), "max_consecutive": 0}
    run = bench(dynamic=True, max_children=1).boot().start(spec("a", **parked))
    assert run.ask(DeleteChild("a")) == Failure(
        kind="not_supported", message="a dynamic supervisor keeps no spec of a to restart or delete"
    )
    assert run.ask(StartChild(spec("b"))) == Failure(
        kind="max_children", message="there are 1 children already", retryable=True
    )
    run.exit("a")
    assert run.ask(StartChild(spec("a", **parked))) == Failure(
        kind="parked", message="a failed too often and is tried again now and then", retryable=True
    )
    run.ask(TerminateChild("a"))
    run.starts["b"] = ["hang"]
    run.ask(StartChild(spec("b")))
    starter = run.last_ref
    run.ask(TerminateChild("b"))
    assert run.answer(starter).message == "b could not be started: it was stopped"


def test_who_waits_for_a_child_that_is_given_up_hears_why(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot().start(spec("a", backoff=Backoff(min_s=1.0), max_consecutive=1))
    run.starts["a"] = ["start_failed: gone for good"]
    run.exit("a")
    assert run.ask(StartChild(spec("a"))) is None
    run.advance(1.0)
    assert run.ended == "shutdown: reached_max_restart_intensity"
    assert run.answer().message == "a could not be started: start_failed: gone for good"


def test_who_waits_for_a_child_when_the_supervisor_stops_hears_why(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot().start(spec("a", backoff=Backoff(min_s=1.0)))
    run.exit("a")
    assert run.ask(StartChild(spec("a"))) is None
    run.stop()
    assert run.answer() == Failure(kind="start_failed", message="a could not be started: it was stopped")


def test_a_childs_status_in_full(bench: Any, spec: Any) -> None:
    run = bench(spec("a", kind="k", type="supervisor")).boot().exit("a")
    (status,) = run.ask(WhichChildren())
    assert status == ChildStatus(
        id="a", state="running", type="supervisor", kind="k", incarnation=2, restarts=1
    )
