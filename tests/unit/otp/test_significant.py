"""OTP-43 to OTP-45: significant children end their supervisor."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import TerminateChild

covers = pytest.mark.covers
KINDS = pytest.mark.parametrize("dynamic", [False, True])


@covers("OTP-43")
@KINDS
@pytest.mark.parametrize("auto", ["any_significant", "all_significant"])
@pytest.mark.parametrize(("restart", "reason"), [("temporary", "crashed: boom"), ("transient", "normal")])
def test_a_child_that_is_not_significant_shuts_nothing_down(
    bench: Any, spec: Any, dynamic: bool, auto: str, restart: str, reason: str
) -> None:
    run = bench(dynamic=dynamic, auto_shutdown=auto).boot()
    run.start(spec("a", restart=restart), spec("s", restart="transient", significant=True))
    run.exit("a", reason)
    assert run.ended is None


@covers("OTP-43")
@KINDS
@pytest.mark.parametrize("reason", ["normal", "shutdown", "crashed: boom"])
def test_any_significant_temporary_child_shuts_its_supervisor_down(
    bench: Any, spec: Any, dynamic: bool, reason: str
) -> None:
    run = bench(dynamic=dynamic, auto_shutdown="any_significant").boot()
    run.start(*[spec(id, restart="temporary", significant=True) for id in "ab"], spec("c"))
    run.exit("a", reason)
    assert run.ended == "shutdown: significant child a ended"
    assert run.count("ask", "b") == run.count("ask", "c") == 1


@covers("OTP-43")
@KINDS
def test_a_significant_transient_child_that_is_restarted_shuts_nothing_down(
    bench: Any, spec: Any, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic, auto_shutdown="any_significant").boot()
    run.start(spec("a", restart="transient", significant=True))
    run.exit("a", "crashed: boom")
    assert run.ended is None
    run.exit("a", "normal")
    assert run.ended == "shutdown: significant child a ended"


@covers("OTP-43")
@KINDS
def test_all_significant_waits_for_the_last_active_one(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic, auto_shutdown="all_significant").boot()
    run.start(
        spec("a", restart="temporary", significant=True),
        spec("b", restart="transient", significant=True),
        spec("c", restart="transient", significant=True, backoff=Backoff(min_s=1.0)),
        spec("d"),
    )
    run.exit("a").exit("b", "normal")
    assert run.ended is None
    run.exit("c", "crashed: boom")
    assert run.ended is None, "it will come back"
    run.advance(1.0).exit("c", "normal")
    assert run.ended == "shutdown: all significant children ended"


@covers("OTP-43")
def test_a_significant_child_that_waits_for_its_restart_counts_as_active(bench: Any, spec: Any) -> None:
    run = bench(auto_shutdown="all_significant").boot()
    run.start(
        spec("a", restart="transient", significant=True, backoff=Backoff(min_s=1.0)),
        spec("b", restart="temporary", significant=True),
    )
    run.exit("a").exit("b")
    assert run.ended is None


@covers("OTP-43")
def test_a_significant_child_that_is_dropped_has_ended(bench: Any, spec: Any) -> None:
    run = bench(auto_shutdown="any_significant").boot()
    dropped = {"backoff": Backoff(), "max_consecutive": 0, "on_exhausted": "drop"}
    run.start(spec("a", restart="transient", significant=True, **dropped)).exit("a")
    assert run.ended == "shutdown: significant child a ended"


@covers("OTP-44")
@KINDS
@pytest.mark.parametrize("auto", ["any_significant", "all_significant"])
def test_a_command_triggers_nothing(bench: Any, spec: Any, dynamic: bool, auto: str) -> None:
    run = bench(dynamic=dynamic, auto_shutdown=auto).boot()
    run.start(spec("a", restart="transient", significant=True), spec("b"))
    run.ask(TerminateChild("a"))
    assert run.ended is None
    assert run.state("b") == "running"


@covers("OTP-44")
def test_the_last_one_ends_it_when_the_others_were_terminated(bench: Any, spec: Any) -> None:
    run = bench(auto_shutdown="all_significant").boot()
    run.start(*[spec(id, restart="transient", significant=True) for id in "ab"])
    run.ask(TerminateChild("a"))
    run.exit("b", "normal")
    assert run.ended == "shutdown: all significant children ended"


@covers("OTP-44")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
@pytest.mark.parametrize("restart", ["transient", "temporary"])
@pytest.mark.parametrize("auto", ["any_significant", "all_significant"])
def test_a_siblings_fate_triggers_nothing(
    bench: Any, spec: Any, strategy: str, restart: str, auto: str
) -> None:
    run = bench(spec("a"), strategy=strategy, auto_shutdown=auto).boot()
    run.start(spec("s", restart=restart, significant=True))
    run.exit("a")
    assert run.ended is None
    assert run.state("s") == ("running" if restart == "transient" else None)


@covers("OTP-45")
@pytest.mark.parametrize("significant", [True, False])
def test_the_shutdown_goes_on_upwards_only_through_a_significant_supervisor(
    bench: Any, spec: Any, significant: bool
) -> None:
    inner = bench(auto_shutdown="any_significant").boot()
    inner.start(spec("worker", restart="temporary", significant=True)).exit("worker", "normal")
    outer = bench(auto_shutdown="any_significant").boot()
    outer.start(spec("inner", type="supervisor", restart="transient", significant=significant), spec("other"))
    outer.exit("inner", inner.ended)
    assert outer.ended == ("shutdown: significant child inner ended" if significant else None)
    assert outer.count("spawn", "inner") == 1
