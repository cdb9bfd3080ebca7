"""OTP-35 to OTP-42: how children and supervisors end."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import ChildTerminated, StartChild, TerminateChild
from callboard.supervisor.core import KILL_WAIT_S, SupervisorCore
from callboard.supervisor.core_terms import (
    Abandon,
    Asked,
    AskToStop,
    Boot,
    ChildExited,
    ChildStarted,
    End,
    Kill,
    Report,
    Show,
    Stop,
    TimerDue,
)
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec import ChildSpec, SupervisorFlags

covers = pytest.mark.covers
KINDS = pytest.mark.parametrize("dynamic", [False, True])


@covers("OTP-35")
@KINDS
def test_a_child_without_a_limit_is_waited_for(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic).boot().start(spec("a", type="supervisor"), spec("b"))
    run.stops["a"] = "hang"
    assert run.ask(TerminateChild("a")) is None
    run.advance(1e6)
    assert run.count("kill", "a") == 0
    run.exit("a", "shutdown")
    assert run.answer() == ChildTerminated("a")
    assert ("ended", "shutdown") in run.facts("a")
    assert run.state("b") == "running"


@covers("OTP-35")
@KINDS
def test_a_child_that_exceeds_its_limit_is_killed(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic).boot().start(spec("a", shutdown_s=2.0), spec("b"))
    run.stops["a"] = "hang"
    assert run.ask(TerminateChild("a")) is None
    run.advance(1.9)
    assert run.count("kill", "a") == 0
    run.advance(0.1)
    assert run.answer() == ChildTerminated("a")
    assert ("shutdown_error", "killed by SIGKILL") in run.facts("a")
    assert run.state("b") == "running"


@covers("OTP-35")
@KINDS
def test_a_child_with_no_time_to_end_is_killed_at_once(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic).boot().start(spec("a", shutdown_s=0), spec("b"))
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    assert run.count("ask", "a") == 0
    assert run.facts("a")[-1] == ("ended", "killed by SIGKILL")
    assert run.state("b") == "running"


RACERS = [
    (restart, reason)
    for restart, reason in itertools.product(
        ("permanent", "transient", "temporary"), ("normal", "shutdown", "shutdown: why", "crashed: boom")
    )
]


@covers("OTP-36", "OTP-37")
@KINDS
def test_children_that_end_by_themselves_do_not_disturb_the_shutdown(
    bench: Any, spec: Any, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic).boot()
    for number, (restart, reason) in enumerate(RACERS):
        run.start(spec(f"c{number}", restart=restart))
        run.stops[f"c{number}"] = "hang"
        run.reason = reason
    run.stop()
    for number, (_, reason) in enumerate(RACERS):
        assert run.ended is None
        run.exit(f"c{number}", reason)
    assert run.ended == "shutdown"
    for number, (restart, reason) in enumerate(RACERS):
        fact, given = run.facts(f"c{number}")[-1]
        assert given == reason
        last = number == len(RACERS) - 1
        if dynamic or last:
            in_order = reason == "shutdown" or (restart != "permanent" and reason != "crashed: boom")
            assert fact == ("ended" if in_order else "shutdown_error")
        assert run.count("spawn", f"c{number}") == 1


@covers("OTP-36")
def test_exits_on_their_way_when_the_stop_comes_are_not_restarted(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c")).boot()
    deaths = [run._death(id, "crashed: boom") for id in ("a", "c")]
    run.feed(Stop(), *deaths)
    assert run.ended == "shutdown"
    assert run.count("spawn", "a") == run.count("spawn", "c") == 1


@covers("OTP-38")
def test_dynamic_children_are_stopped_all_at_once(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    for number in range(1, 11):
        run.start(spec(f"c{number}", shutdown_s=float(number)))
        run.stops[f"c{number}"] = "hang"
    began = run.now
    run.stop()
    assert sum(what == "ask" for what, _ in run.log) == 10
    run.advance(9.9)
    assert run.ended is None
    run.advance(0.1)
    assert run.ended == "shutdown"
    assert run.now - began == pytest.approx(10.0)
    assert all(run.count("kill", f"c{number}") == 1 for number in range(1, 11))


@covers("OTP-38")
def test_static_children_are_stopped_one_after_the_other(bench: Any, spec: Any) -> None:
    run = bench(*[spec(f"c{number}", shutdown_s=1.0) for number in range(4)]).boot()
    for number in range(4):
        run.stops[f"c{number}"] = "hang"
    run.stop()
    run.advance(3.9)
    assert run.ended is None
    run.advance(0.2)
    assert run.ended == "shutdown"
    assert [id for what, id in run.log if what == "ask"] == ["c3", "c2", "c1", "c0"]


@covers("OTP-39")
@KINDS
def test_a_child_that_not_even_a_kill_ends_is_abandoned(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic).boot().start(spec("a", shutdown_s=1.0), spec("b"))
    run.stops["a"] = "unkillable"
    run.stop()
    run.advance(1.0 + KILL_WAIT_S - 0.1)
    assert run.ended is None
    run.advance(0.2)
    assert run.ended == "shutdown"
    assert ("abandoned", "SIGKILL did not end it") in run.facts("a")


@covers("OTP-39")
def test_a_child_that_hangs_in_its_start_cannot_hang_the_shutdown(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b", type="supervisor"))
    run.starts["b"] = ["hang"]
    run.boot().stop()
    assert run.ended == "shutdown"
    assert run.count("kill", "b") == 1


@covers("OTP-39")
def test_a_start_that_hangs_and_survives_its_kill_is_abandoned_and_tried_again(bench: Any, spec: Any) -> None:
    run = bench(spec("a", start_s=1.0), intensity=Intensity(2, 60.0)).boot()
    run.starts["a"] = ["hang", "ok"]
    run.stops["a"] = "unkillable"
    run.exit("a").advance(1.0 + KILL_WAIT_S)
    assert run.lives == {"a": 3}
    assert run.state("a") == "running"
    assert ("start_failed", "start_failed: it was not up after 1 s") in run.facts("a")


@covers("OTP-39")
def test_to_abandon_a_child_effect_by_effect(spec: Any) -> None:
    core = SupervisorCore(SupervisorFlags(), (spec("a", shutdown_s=0),), lambda: 0.0)
    core.handle(Boot(), 0.0)
    core.handle(ChildStarted("a", 1), 0.0)
    core.handle(Stop(), 0.0)
    assert core.handle(TimerDue("a", "abandon", 1), KILL_WAIT_S) == [
        Report("a", "abandoned", 1, "SIGKILL did not end it", 0, 0),
        Abandon("a", 1),
        Report("a", "shutdown_error", 1, "abandoned", 0, 0),
        Show("a", "actor", None, 1, 0),
        End("shutdown"),
    ]


@covers("OTP-35")
def test_a_child_without_a_limit_gets_no_timer(spec: Any) -> None:
    core = SupervisorCore(SupervisorFlags(), (spec("a", type="supervisor"),), lambda: 0.0)
    core.handle(Boot(), 0.0)
    core.handle(ChildStarted("a", 1), 0.0)
    assert core.handle(Stop(), 0.0) == [Show("a", "actor", "stopping", 1, 0), AskToStop("a", 1)]


@covers("OTP-40")
def test_a_dynamic_shutdown_copes_with_every_mixture(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    run.start(
        spec("late", shutdown_s=0.001),
        spec("brutal", shutdown_s=0),
        spec("patient", type="supervisor"),
        spec("polite"),
        spec("leaver", restart="permanent"),
        spec("retrying", backoff=Backoff(min_s=1.0)),
    )
    run.starts["starting"] = ["hang"]
    run.ask(StartChild(spec("starting")))
    starter = run.last_ref
    run.exit("retrying")
    run.stops["late"] = "hang"
    run.stops["leaver"] = "normal"
    run.stops["patient"] = "hang"
    run.stop()
    assert run.answer(starter).kind == "start_failed"
    assert ("shutdown_error", "normal") in run.facts("leaver"), "a permanent child does not end as it likes"
    assert run.count("spawn", "retrying") == 1
    run.advance(0.001)
    assert ("shutdown_error", "killed by SIGKILL") in run.facts("late")
    assert run.ended is None
    assert run.ask(StartChild(spec("new"))).kind == "stopping"
    run.exit("patient", "shutdown")
    assert run.ended == "shutdown"


def operations(count: int, dynamic: bool) -> int:
    """How many lines of the core's code run for the whole life of a supervisor with so many children."""
    specs = [ChildSpec(id=f"c{n}", actor="some.Actor", shutdown_s=0) for n in range(count)]
    core = SupervisorCore(SupervisorFlags(dynamic=dynamic), () if dynamic else tuple(specs), lambda: 0.0)
    lines = 0

    def live() -> None:
        core.handle(Boot(), 0.0)
        for number, spec in enumerate(specs):
            if dynamic:
                core.handle(Asked(spec.id, StartChild(spec)), 0.0)
            core.handle(ChildStarted(spec.id, 1), float(number))
        for number, spec in enumerate(specs[::10]):
            at = float(count + number * 10)
            core.handle(ChildExited(spec.id, 1, "crashed"), at)
            core.handle(ChildStarted(spec.id, 2), at)
        pending = [effect for effect in core.handle(Stop(), 1e9) if isinstance(effect, Kill)]
        while pending:
            kill = pending.pop()
            effects = core.handle(ChildExited(kill.id, kill.incarnation, "killed"), 1e9)
            pending += [effect for effect in effects if isinstance(effect, Kill)]
        assert len(core.children) == 0

    def count_lines(frame: Any, what: str, _: Any) -> Any:
        nonlocal lines
        lines += what == "line"
        return count_lines

    before = sys.gettrace()
    sys.settrace(count_lines)
    try:
        live()
    finally:
        sys.settrace(before)
    return lines


@covers("OTP-42")
@KINDS
def test_the_operations_per_child_do_not_grow_with_their_number(dynamic: bool) -> None:
    few, many = operations(100, dynamic) / 100, operations(5000, dynamic) / 5000
    assert many < few * 1.1


@covers("OTP-42")
def test_the_core_carries_a_hundred_thousand_children(bench: Any, spec: Any) -> None:
    """No step looks at all of them: the effects of each are few, and what is inside C is measured by the clock."""
    import time

    def per_child(count: int) -> float:
        core = bench(dynamic=True).core
        made = [spec(f"c{n}", restart="temporary", shutdown_s=0) for n in range(count)]
        began = time.process_time()
        core.handle(Boot(), 0.0)
        for one in made:
            core.handle(Asked(one.id, StartChild(one)), 0.0)
            core.handle(ChildStarted(one.id, 1), 0.0)
        for effect in core.handle(Stop(), 1.0):
            if isinstance(effect, Kill):
                core.handle(ChildExited(effect.id, effect.incarnation, "killed"), 1.0)
        assert len(core.children) == 0
        return (time.process_time() - began) / count

    small = min(per_child(2000) for _ in range(3))
    assert per_child(100_000) < 4 * small, "a quadratic step would cost fifty times as much"
