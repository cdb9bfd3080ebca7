"""OTP-16 to OTP-20: the restart types."""

from __future__ import annotations

import dataclasses
import gc
import sys
import weakref
from typing import Any

import psutil
import pytest

from callboard.supervisor.commands import StartChild
from callboard.supervisor.core_terms import Asked, Boot, ChildExited, ChildStarted
from callboard.supervisor.intensity import Intensity

covers = pytest.mark.covers
CLEAN = ["normal", "shutdown", "shutdown: done", "expired"]
ABNORMAL = ["crashed: boom", "killed by SIGKILL", "killed", "exited with code 0", "noproc", "normality"]


@covers("OTP-16")
@pytest.mark.parametrize("reason", CLEAN + ABNORMAL)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_permanent_child_is_restarted_whatever_its_reason(
    bench: Any, spec: Any, reason: str, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic, intensity=Intensity(1)).boot().start(spec("a"))
    run.exit("a", reason)
    assert run.state("a") == "running"
    assert run.lives["a"] == 2
    run.exit("a", reason)
    assert run.ended, "every restart counts, after a normal end too"


@covers("OTP-17")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reason", CLEAN + ABNORMAL)
def test_a_transient_child_is_restarted_after_an_abnormal_end_only(
    bench: Any, spec: Any, reason: str, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic).boot().start(spec("a", restart="transient"))
    run.exit("a", reason)
    kept = None if dynamic else "stopped"
    assert run.state("a") == ("running" if reason in ABNORMAL else kept)
    assert run.count("spawn", "a") == (2 if reason in ABNORMAL else 1)


@covers("OTP-18")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reason", CLEAN + ABNORMAL)
def test_a_temporary_child_is_never_restarted(bench: Any, spec: Any, reason: str, dynamic: bool) -> None:
    run = bench(dynamic=dynamic, intensity=Intensity(0)).boot().start(spec("a", restart="temporary"))
    run.exit("a", reason)
    assert run.state("a") is None
    assert run.ended is None
    assert run.facts("a")[-1] == ("ended", reason)


@covers("OTP-17")
def test_idle_children_that_leave_cost_no_budget(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True, intensity=Intensity(0)).boot()
    for number in range(50):
        run.start(spec(f"c{number}", restart="transient")).exit(f"c{number}", "expired")
    assert run.ended is None
    assert len(run.core.children) == 0


@covers("OTP-19")
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
def test_a_temporary_bystander_stays_away_and_costs_nothing(bench: Any, spec: Any, strategy: str) -> None:
    run = bench(
        spec("a"), spec("t", restart="temporary"), spec("b"), strategy=strategy, intensity=Intensity(1)
    )
    run.boot().exit("a")
    assert run.state("t") is None
    assert run.state("a") == run.state("b") == "running"
    assert run.count("spawn", "t") == 1
    assert run.ended is None


class Heavy:
    """An argument whose life can be watched."""


@covers("OTP-20")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_temporary_childs_arguments_are_not_retained(bench: Any, spec: Any, dynamic: bool) -> None:
    run = bench(dynamic=dynamic, **({"extra_args": {"more": 1}} if dynamic else {})).boot()
    heavy = Heavy()
    watched = weakref.ref(heavy)
    run.start(spec("t", restart="temporary", args={"heavy": heavy}))
    assert run.specs.pop("t").args["heavy"] is heavy
    del heavy
    gc.collect()
    assert watched() is None
    kept = run.core.children.get("t").spec
    assert kept.args == {}
    assert kept.restart == "temporary"
    run.exit("t").start(spec("t", restart="temporary", args={"light": 1}))
    assert run.specs["t"].args["light"] == 1
    assert run.core.children.get("t").spec.args == {}


@covers("OTP-20")
def test_a_permanent_childs_arguments_are_retained(bench: Any, spec: Any) -> None:
    run = bench(spec("a", args={"x": 1})).boot().exit("a")
    assert run.specs["a"].args == {"x": 1}


@covers("OTP-20")
def test_short_lived_children_leave_nothing_in_the_core(bench: Any, spec: Any) -> None:
    """100,000 of them: the interpreter holds as many blocks of memory as before, and the process as many bytes."""
    run = bench(dynamic=True)
    run.core.handle(Boot(), 0.0)
    made = spec("t", restart="temporary", args={"x": 1})

    def live_and_die(number: int) -> None:
        id = f"t{number}"
        run.core.handle(Asked(id, StartChild(dataclasses.replace(made, id=id))), float(number))
        run.core.handle(ChildStarted(id, number + 1), float(number))
        run.core.handle(ChildExited(id, number + 1, "normal"), float(number))

    for number in range(1000):
        live_and_die(number)
    gc.collect()
    blocks, resident = sys.getallocatedblocks(), psutil.Process().memory_info().rss
    for number in range(1000, 101_000):
        live_and_die(number)
    gc.collect()
    assert len(run.core.children) == 0
    assert sys.getallocatedblocks() - blocks < 2000
    assert psutil.Process().memory_info().rss - resident < 100 * 100_000
