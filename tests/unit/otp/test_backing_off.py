"""OTP-51 to OTP-56: backoff in front of the intensity, as in Pekko; and our own limits (park, drop)."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import (
    ChildTerminated,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
)
from callboard.supervisor.core_admin import MAX_WAITING
from callboard.supervisor.core_terms import Asked, ChildUp
from callboard.supervisor.intensity import Intensity

covers = pytest.mark.covers
NO = "start_failed: no"
WIDE = Intensity(1000, 1.0)
SECOND = Backoff(min_s=1.0, max_s=8.0, jitter=0.0, reset_after_s=10.0)


@covers("OTP-51")
def test_restarts_wait_exponentially_longer_up_to_the_cap(bench: Any, spec: Any) -> None:
    run = bench(spec("a", backoff=SECOND), intensity=WIDE).boot()
    for delay_s in (1.0, 2.0, 4.0, 8.0, 8.0):
        run.exit("a")
        assert run.state("a") == "restarting"
        run.advance(delay_s - 0.01)
        assert run.state("a") == "restarting"
        run.advance(0.01)
        assert run.state("a") == "running"
    assert run.delays == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert [report.delay_s for report in run.reports if report.fact == "restarting"] == run.delays
    assert [report.consecutive for report in run.reports if report.fact == "restarting"] == [1, 2, 3, 4, 5]
    assert run.reports[-1].restarts == 5


@covers("OTP-51")
def test_failed_starts_wait_like_crashes_and_jitter_is_added(bench: Any, spec: Any) -> None:
    jittery = Backoff(min_s=1.0, max_s=30.0, jitter=0.5)
    run = bench(spec("a", backoff=jittery), intensity=WIDE, random=0.5).boot()
    run.starts["a"] = [NO, NO, "ok"]
    run.exit("a").advance(30.0)
    assert run.delays == [1.25, 2.5, 5.0]
    assert run.state("a") == "running"


@covers("OTP-52")
def test_undisturbed_life_resets_the_backoff_and_a_shorter_one_does_not(bench: Any, spec: Any) -> None:
    run = bench(spec("a", backoff=SECOND), intensity=WIDE).boot()
    run.exit("a").advance(1.0).advance(9.9)
    run.exit("a").advance(2.0)
    assert run.delays == [1.0, 2.0]
    run.advance(0.5).exit("a").advance(4.0)
    assert run.delays[-1] == 4.0, "the reset of an earlier life must not count"
    run.advance(10.0).exit("a")
    assert run.delays[-1] == 1.0


@covers("OTP-52")
def test_without_a_backoff_the_count_in_a_row_is_reset_after_the_period(bench: Any, spec: Any) -> None:
    run = bench(spec("a", max_consecutive=1), intensity=Intensity(100, 3.0)).boot()
    run.exit("a").advance(3.0).exit("a")
    assert run.ended is None
    run.exit("a")
    assert run.ended


@covers("OTP-53")
def test_more_failures_in_a_row_than_allowed_fail_upwards(bench: Any, spec: Any) -> None:
    run = bench(spec("a", backoff=SECOND, max_consecutive=2), spec("b"), intensity=WIDE).boot()
    run.exit("a").advance(1.0).exit("a").advance(2.0)
    assert run.state("a") == "running"
    run.exit("a")
    assert run.ended == "shutdown: reached_max_restart_intensity"


PARKED = {"backoff": SECOND, "max_consecutive": 2, "on_exhausted": "park"}
DROPPED = {"backoff": SECOND, "max_consecutive": 2, "on_exhausted": "drop", "restart": "transient"}


@covers("OTP-53")
def test_a_child_that_may_be_parked_never_escalates(bench: Any, spec: Any) -> None:
    run = bench(spec("a", **PARKED), spec("b"), intensity=Intensity(0)).boot()
    run.starts["a"] = [NO]
    run.exit("a").advance(3.0)
    assert run.state("a") == "parked"
    assert run.facts("a")[-1] == ("parked", NO)
    assert run.shown["a"] == "parked"
    spawned = run.count("spawn", "a")
    run.advance(7.9)
    assert run.count("spawn", "a") == spawned
    run.advance(0.1)
    assert run.count("spawn", "a") == spawned + 1, "it is tried again every max_s"
    assert run.state("a") == "parked"
    run.starts["a"] = ["ok"]
    run.advance(8.0)
    assert run.state("a") == "running"
    run.exit("a")
    assert run.state("a") == "parked", "it has not yet lived long enough"
    run.advance(8.0 + 10.0).exit("a")
    assert run.state("a") == "restarting"
    assert run.delays[-1] == 1.0
    assert run.ended is None


@covers("OTP-53")
def test_a_parked_child_is_administered(bench: Any, spec: Any) -> None:
    run = bench(spec("a", **PARKED)).boot()
    run.starts["a"] = [NO]
    run.exit("a").advance(3.0)
    assert run.ask(DeleteChild("a")).kind == "parked"
    assert run.ask(StartChild(spec("a"))).kind == "already_present"
    answer = run.ask(RestartChild("a"))
    assert (answer.kind, answer.retryable) == ("parked", True)
    run.starts["a"] = ["ok"]
    assert run.ask(RestartChild("a")) == ChildUp("a", run.lives["a"])
    run.exit("a")
    assert run.state("a") == "parked"
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    spawned = run.count("spawn", "a")
    run.advance(100.0)
    assert run.count("spawn", "a") == spawned


@covers("OTP-53")
@pytest.mark.parametrize("fields", [PARKED, DROPPED])
def test_the_boot_does_not_fail_for_a_child_that_never_escalates(bench: Any, spec: Any, fields: Any) -> None:
    run = bench(spec("a", **fields), spec("b"))
    run.starts["a"] = [NO, "ok"]
    run.boot()
    assert run.up
    assert run.log == [("spawn", "a"), ("exit", "a"), ("spawn", "b")]
    assert run.facts("a") == [("start_failed", NO)]
    run.advance(1.0)
    assert run.state("a") == "running"


@covers("OTP-53")
def test_a_dynamic_child_that_may_be_dropped_is_retried_from_its_first_start_on(
    bench: Any, spec: Any
) -> None:
    run = bench(dynamic=True, intensity=Intensity(0)).boot()
    run.starts["a"] = [NO, "ok"]
    assert run.ask(StartChild(spec("a", **DROPPED))) is None
    first = run.last_ref
    assert run.ask(StartChild(spec("a", **DROPPED))) is None, "further callers wait with the first"
    run.advance(1.0)
    assert run.answer(first) == run.answer() == ChildUp("a", 2)
    run.starts["a"] = [NO]
    run.exit("a")
    assert run.ask(StartChild(spec("a", **DROPPED))) is None
    run.advance(100.0)
    assert run.answer().kind == "start_failed"
    assert NO in run.answer().message
    assert run.facts("a")[-1] == ("dropped", NO)
    assert run.state("a") is None
    assert run.ended is None


@covers("OTP-53")
def test_a_parked_dynamic_child_is_said_to_be_parked(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot()
    run.starts["a"] = [NO]
    run.ask(StartChild(spec("a", **PARKED)))
    first = run.last_ref
    run.advance(3.0)
    assert run.answer(first).kind == "parked"
    answer = run.ask(StartChild(spec("a", **PARKED)))
    assert (answer.kind, answer.retryable) == ("parked", True)
    assert run.ask(CountChildren()).active == 0


@covers("OTP-54")
def test_who_waits_during_a_backoff_is_kept_up_to_a_capacity_and_the_rest_is_told(
    bench: Any, spec: Any
) -> None:
    run = bench(dynamic=True).boot().start(spec("a", backoff=SECOND))
    run.exit("a")
    run.feed(*[Asked(f"r{number}", StartChild(spec("a"))) for number in range(MAX_WAITING + 5)])
    assert run.answer(f"r{MAX_WAITING - 1}") is None
    for number in range(MAX_WAITING, MAX_WAITING + 5):
        assert (run.answer(f"r{number}").kind, run.answer(f"r{number}").retryable) == ("overloaded", True)
    run.advance(1.0)
    assert {run.answer(f"r{number}") for number in range(MAX_WAITING)} == {ChildUp("a", 2)}


@covers("OTP-55")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_groups_restart_waits_for_the_delay_and_for_the_siblings_each_time(
    bench: Any, spec: Any, strategy: str
) -> None:
    run = bench(
        spec("a", backoff=SECOND), spec("b", shutdown_s=3.0), strategy=strategy, intensity=WIDE
    ).boot()
    run.stops["b"] = "hang"
    run.exit("a")
    run.advance(2.9)
    assert run.count("spawn", "a") == 1, "the delay is over, the sibling is not"
    run.advance(0.1)
    assert run.log[-2:] == [("spawn", "a"), ("spawn", "b")]
    run.stops["b"] = "obey"
    run.exit("a")
    assert run.log[-2:] == [("ask", "b"), ("exit", "b")]
    run.advance(1.9)
    assert run.count("spawn", "a") == 2, "the sibling is over, the delay is not"
    run.advance(0.1)
    assert run.log[-2:] == [("spawn", "a"), ("spawn", "b")]


@covers("OTP-56")
def test_a_limit_of_nothing_fails_at_the_first_failure(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), intensity=Intensity(0)).boot().exit("a")
    assert run.ended
    run = bench(spec("a", max_consecutive=0), intensity=WIDE).boot().exit("a")
    assert run.ended
    assert run.count("spawn", "a") == 1


@covers("OTP-56")
def test_a_limit_within_a_period_starts_over_after_it(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), intensity=Intensity(3, 5.0)).boot()
    for _ in range(4):
        run.exit("a").exit("a").exit("a").advance(5.01)
    assert run.ended is None
    run.exit("a").exit("a").exit("a").exit("a")
    assert run.ended
