"""OTP-57, OTP-58, OTP-61, OTP-62 for the pure parts: what comes twice, late or from a former life."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import RestartChild, TerminateChild
from callboard.supervisor.core import SupervisorCore
from callboard.supervisor.core_terms import Boot, ChildExited, ChildStarted, Purpose, Spawn, Stop, TimerDue
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.requests import Pending, Requests
from callboard.supervisor.spec import SupervisorFlags
from callboard.supervisor.timers import Timers

covers = pytest.mark.covers


@covers("OTP-57")
def test_an_exit_that_is_noticed_twice_counts_once(bench: Any, spec: Any) -> None:
    run = bench(spec("a", backoff=Backoff(min_s=1.0)), intensity=Intensity(1)).boot()
    run.exit("a")
    for _ in range(5):
        run.feed(ChildExited("a", 1, "crashed: boom"))
    assert run.ended is None
    run.advance(1.0)
    run.feed(ChildExited("a", 1, "crashed: boom"), ChildExited("nobody", 1, "crashed: boom"))
    assert run.lives == {"a": 2}
    assert run.reports[-1].restarts == 1


@covers("OTP-61")
@pytest.mark.parametrize("purpose", ["start", "stop", "abandon", "restart", "reset"])
@pytest.mark.parametrize("state", ["running", "stopped", "restarting"])
def test_a_timer_of_a_former_life_changes_nothing(
    bench: Any, spec: Any, purpose: Purpose, state: str
) -> None:
    run = bench(spec("a", backoff=Backoff(min_s=1.0))).boot().exit("a").advance(1.0)
    if state == "stopped":
        run.ask(TerminateChild("a"))
    if state == "restarting":
        run.exit("a")
    log, reports = list(run.log), list(run.reports)
    run.feed(TimerDue("a", purpose, 1), TimerDue("nobody", purpose, 1))
    assert (run.log, run.reports) == (log, reports)
    assert run.state("a") == state


@covers("OTP-61")
@pytest.mark.parametrize("purpose", ["start", "stop", "abandon", "restart"])
def test_a_timer_of_this_life_that_is_no_longer_wanted_changes_nothing(
    bench: Any, spec: Any, purpose: Purpose
) -> None:
    run = bench(spec("a")).boot()
    run.ask(TerminateChild("a"))
    run.feed(TimerDue("a", purpose, 1))
    assert run.state("a") == "stopped"
    assert run.log == [("spawn", "a"), ("ask", "a"), ("exit", "a")]
    run.ask(RestartChild("a"))
    log = list(run.log)
    for purpose in ("start", "stop", "restart"):
        run.feed(TimerDue("a", purpose, 2))
    assert run.log == log
    assert run.state("a") == "running"


@covers("OTP-61")
def test_a_cancelled_timer_does_not_run() -> None:
    timers, ran = Timers(), []
    late = timers.add(2.0, lambda: ran.append("late"))
    timers.add(1.0, lambda: ran.append("early"))
    late.cancel()
    assert timers.next_at() == 1.0
    for action in timers.take_due(5.0):
        action()
    assert ran == ["early"]
    assert timers.next_at() is None


@covers("OTP-62")
def test_a_start_notice_of_a_former_life_changes_nothing(bench: Any, spec: Any) -> None:
    run = bench(spec("a")).boot()
    run.starts["a"] = ["hang"]
    run.exit("a")
    run.feed(ChildStarted("a", 1), ChildStarted("nobody", 1))
    assert run.state("a") == "starting"
    run.feed(ChildStarted("a", 2))
    assert run.state("a") == "running"
    facts = run.facts("a")
    run.feed(ChildStarted("a", 2))
    assert run.facts("a") == facts


@covers("OTP-62")
def test_a_late_answer_is_dropped() -> None:
    requests = Requests()
    got: list[Any] = []
    requests.add(Pending("r1", "someone", "body", got.append, 5.0, 0.25))
    requests.expire("r1")
    assert [failure.kind for failure in got] == ["unanswered"]
    assert not requests.settle("r1", "late")
    assert not requests.settle("foreign", "stray")
    assert len(got) == 1


@covers("OTP-57", "OTP-61")
def test_no_incarnation_is_given_twice_to_one_id(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    seen: dict[str, set[int]] = {"a": set(), "b": set()}
    for _ in range(20):
        for id in ("a", "b"):
            run.start(spec(id, restart="temporary"))
            assert run.lives[id] not in seen[id]
            seen[id].add(run.lives[id])
        run.exit("a")
        run.ask(TerminateChild("b"))


@covers("OTP-57", "OTP-61")
def test_the_incarnations_of_a_supervisors_next_life_are_above_its_former_ones(spec: Any) -> None:
    core = SupervisorCore(SupervisorFlags(), (spec("a"),), lambda: 0.0, floor=1000)
    assert [effect.incarnation for effect in core.handle(Boot(), 0.0) if isinstance(effect, Spawn)] == [1001]
    core.handle(ChildStarted("a", 1001), 0.0)
    assert core.handle(ChildExited("a", 1, "killed"), 0.0) == []
    core.handle(Stop(), 0.0)
    assert core.handle(TimerDue("a", "stop", 1), 0.0) == []
