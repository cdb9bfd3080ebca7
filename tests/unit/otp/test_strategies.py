"""OTP-21 to OTP-34: intensity, strategies, and restarts that fail."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import (
    ChildNotStarted,
    ChildTerminated,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from callboard.supervisor.core_terms import ChildUp, Stop
from callboard.supervisor.intensity import Intensity

covers = pytest.mark.covers
NO = "start_failed: no"
GAVE_UP = "shutdown: reached_max_restart_intensity"


@covers("OTP-21")
def test_crashes_further_apart_than_the_period_never_exhaust_the_intensity(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), intensity=Intensity(1, 1.0)).boot()
    for _ in range(20):
        run.exit("a").advance(1.01)
    assert run.ended is None
    run.exit("a").advance(1.0)
    run.exit("a")
    assert run.ended == GAVE_UP, "an entry exactly a period old still counts"


@covers("OTP-22", "OTP-30")
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_third_crash_over_different_children_exceeds_a_limit_of_two(
    bench: Any, spec: Any, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic, intensity=Intensity(2)).boot().start(spec("a"), spec("b"), spec("c"))
    run.exit("a").exit("b")
    assert run.ended is None
    run.exit("c")
    assert run.ended == GAVE_UP
    assert ("gave_up", "crashed: boom") in run.facts("c")
    assert run.lives == {}
    assert run.count("spawn", "c") == 1


@covers("OTP-23", "OTP-30", "OTP-31")
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_restart_that_always_fails_escalates_without_a_further_crash(
    bench: Any, spec: Any, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic, intensity=Intensity(4)).boot().start(spec("a"), spec("b"))
    run.starts["a"] = [NO]
    mark = len(run.log)
    run.exit("a")
    assert run.ended == GAVE_UP
    assert run.since(mark).count(("spawn", "a")) == 4
    assert run.since(mark)[-2:] == [("ask", "b"), ("exit", "b")]


@covers("OTP-30")
def test_extra_arguments_are_given_to_each_dynamic_child_beneath_its_own(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True, extra_args={"x": 1, "y": 1}).boot().start(spec("a", args={"y": 2}))
    assert run.specs["a"].args == {"x": 1, "y": 2}
    run.exit("a")
    assert run.specs["a"].args == {"x": 1, "y": 2}
    assert run.core.children.get("a").spec.args == {"y": 2}


@covers("OTP-24", "OTP-28")
def test_one_for_all_restarts_all_in_order(bench: Any, spec: Any) -> None:
    run = bench(spec("z"), spec("m"), spec("a"), strategy="one_for_all").boot()
    mark = len(run.log)
    run.exit("m")
    assert run.since(mark) == [
        ("exit", "m"),
        ("ask", "a"),
        ("exit", "a"),
        ("ask", "z"),
        ("exit", "z"),
        ("spawn", "z"),
        ("spawn", "m"),
        ("spawn", "a"),
    ]
    assert run.lives == {"z": 2, "m": 2, "a": 2}
    assert [s.id for s in run.ask(WhichChildren())] == ["z", "m", "a"]


@covers("OTP-24")
def test_one_for_all_counts_one_restart_per_event(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="one_for_all", intensity=Intensity(2)).boot()
    run.exit("a").exit("b")
    assert run.ended is None
    run.exit("c")
    assert run.ended == GAVE_UP


@covers("OTP-24")
def test_one_for_all_waits_for_each_sibling_before_it_stops_the_next(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="one_for_all").boot()
    run.stops["c"] = "hang"
    mark = len(run.log)
    run.exit("a")
    assert run.since(mark) == [("exit", "a"), ("ask", "c")]
    run.advance(5.0)
    assert run.since(mark)[2:6] == [("kill", "c"), ("exit", "c"), ("ask", "b"), ("exit", "b")]
    assert run.lives == {"a": 2, "b": 2, "c": 2}


@covers("OTP-24", "OTP-57")
def test_children_that_crash_together_cost_one_group_restart(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="one_for_all", intensity=Intensity(1)).boot()
    run.exit_together("c", "a", "b")
    assert run.ended is None
    assert run.lives == {"a": 2, "b": 2, "c": 2}


@covers("OTP-25")
def test_one_for_all_stops_those_just_started_when_a_siblings_restart_fails(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="one_for_all").boot()
    run.starts["b"] = [NO, "ok"]
    mark = len(run.log)
    run.exit("c")
    assert run.since(mark)[-8:] == [
        ("spawn", "a"),
        ("spawn", "b"),
        ("exit", "b"),
        ("ask", "a"),
        ("exit", "a"),
        ("spawn", "a"),
        ("spawn", "b"),
        ("spawn", "c"),
    ]
    assert run.lives == {"a": 3, "b": 3, "c": 2}


@covers("OTP-25")
def test_the_child_that_crashed_waits_for_its_turn_when_an_earlier_start_fails(bench: Any, spec: Any) -> None:
    run = bench(spec("a", backoff=Backoff(min_s=1.0)), spec("b"), strategy="one_for_all").boot()
    run.starts["a"] = [NO, "ok"]
    run.exit("b")
    assert (run.state("a"), run.state("b")) == ("restarting", "stopped")
    assert (run.shown["a"], run.shown["b"]) == ("restarting", "stopped")
    run.advance(1.0)
    assert (run.state("a"), run.state("b")) == ("running", "running")


@covers("OTP-26", "OTP-28")
def test_rest_for_one_leaves_earlier_children_alone(bench: Any, spec: Any) -> None:
    run = bench(spec("d"), spec("c"), spec("b"), spec("a"), strategy="rest_for_one").boot()
    mark = len(run.log)
    run.exit("c")
    assert run.lives == {"d": 1, "c": 2, "b": 2, "a": 2}
    assert run.since(mark) == [
        ("exit", "c"),
        ("ask", "a"),
        ("exit", "a"),
        ("ask", "b"),
        ("exit", "b"),
        ("spawn", "c"),
        ("spawn", "b"),
        ("spawn", "a"),
    ]


@covers("OTP-27")
def test_rest_for_one_does_not_start_the_first_again_when_a_later_restart_fails(
    bench: Any, spec: Any
) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="rest_for_one").boot()
    run.starts["b"] = [NO, NO, "ok"]
    mark = len(run.log)
    run.exit("a")
    assert run.since(mark).count(("spawn", "a")) == 1
    assert run.since(mark).count(("spawn", "b")) == 3
    assert run.since(mark).count(("spawn", "c")) == 1
    assert run.lives == {"a": 2, "b": 4, "c": 2}


@covers("OTP-24", "OTP-26")
def test_a_crash_during_a_groups_restart_is_taken_up_after_it(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="rest_for_one").boot()
    run.starts["c"] = ["hang", "ok"]
    run.exit("b")
    assert run.lives == {"a": 1, "b": 2, "c": 2}
    run.exit("a")
    assert "a" not in run.lives, "the supervisor is in the middle of a restart"
    run.up_now("c")
    assert run.lives == {"a": 2, "b": 3, "c": 3}
    assert run.facts("a")[-4:-1] == [
        ("started", ""),
        ("exited", "crashed: boom"),
        ("restarting", "crashed: boom"),
    ]


@covers("OTP-24")
def test_who_died_together_with_a_group_and_waits_for_its_turn_is_not_decided_about(
    bench: Any, spec: Any
) -> None:
    run = bench(spec("a", backoff=Backoff(min_s=1.0)), spec("b"), spec("c"), strategy="one_for_all").boot()
    run.starts["a"] = [NO, "ok"]
    run.exit_together("c", "b")
    assert [run.state(id) for id in "abc"] == ["restarting", "stopped", "stopped"]
    assert ("restarting", "crashed: boom") not in run.facts("b")
    run.advance(1.0)
    assert [run.state(id) for id in "abc"] == ["running"] * 3


@covers("OTP-25")
def test_an_exit_held_during_a_restart_that_failed_is_not_decided_about(bench: Any, spec: Any) -> None:
    run = bench(
        spec("a", backoff=Backoff(min_s=1.0)), spec("b"), spec("c"), spec("d"), strategy="one_for_all"
    )
    run.starts["a"] = ["ok", NO, "ok"]
    run.stops["c"] = "hang"
    run.boot().exit("d").exit("b").exit("c", "shutdown")
    assert [run.state(id) for id in "abcd"] == ["restarting", "stopped", "stopped", "stopped"]
    assert ("exited", "crashed: boom") in run.facts("b")
    assert ("restarting", "crashed: boom") not in run.facts("b")
    run.advance(1.0)
    assert [run.state(id) for id in "abcd"] == ["running"] * 4


@covers("OTP-19", "OTP-24")
def test_temporary_children_that_died_together_with_the_group_are_gone(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), *[spec(id, restart="temporary") for id in "tu"], spec("b"), strategy="one_for_all")
    run.boot().exit_together("b", "a", "t", "u")
    assert {id: run.shown[id] for id in "atub"} == {"a": "running", "t": "gone", "u": "gone", "b": "running"}
    assert [child.id for child in run.core.children] == ["a", "b"]


@covers("OTP-36")
def test_an_exit_that_is_held_when_the_stop_comes_restarts_nobody(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"), strategy="rest_for_one").boot()
    run.starts["c"] = ["hang"]
    run.stops["b"] = "hang"
    run.exit("c").exit("a").stop()
    assert run.ended is None, "b has not yet ended"
    assert run.count("spawn", "a") == 1
    run.exit("b", "shutdown")
    assert run.ended == "shutdown"


@covers("OTP-27")
def test_rest_for_one_leaves_those_that_came_up_while_a_later_one_backs_off(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b", backoff=Backoff(min_s=1.0)), spec("c"), strategy="rest_for_one").boot()
    run.starts["b"] = [NO, "ok"]
    run.exit("a")
    assert [run.state(id) for id in "abc"] == ["running", "restarting", "stopped"]
    run.advance(1.0)
    assert run.lives == {"a": 2, "b": 3, "c": 2}


@covers("OTP-26")
def test_rest_for_one_leaves_earlier_children_alone_during_a_backoff_too(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b", backoff=Backoff(min_s=1.0)), spec("c"), strategy="rest_for_one").boot()
    run.exit("b")
    assert [run.state(id) for id in "abc"] == ["running", "restarting", "stopped"]
    run.advance(1.0)
    assert run.lives == {"a": 1, "b": 2, "c": 2}


@covers("OTP-28")
def test_starts_follow_the_specs_and_stops_their_reverse(bench: Any, spec: Any) -> None:
    ids = ["m", "z", "a", "k"]
    run = bench(*[spec(id) for id in ids]).boot()
    assert run.log == [("spawn", id) for id in ids]
    run.stop()
    assert [id for what, id in run.log if what == "ask"] == ids[::-1]


@covers("OTP-28")
def test_the_next_child_starts_only_when_the_one_before_is_up(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"))
    run.starts["a"] = ["hang"]
    run.boot()
    assert run.log == [("spawn", "a")]
    assert not run.up
    run.up_now("a")
    assert run.log == [("spawn", "a"), ("spawn", "b")]
    assert run.up


@covers("OTP-29")
def test_one_for_all_brings_a_terminated_child_back(bench: Any, spec: Any) -> None:
    run = bench(
        spec("sup", restart="transient", type="supervisor"), spec("a"), spec("b"), strategy="one_for_all"
    ).boot()
    run.ask(TerminateChild("sup"))
    run.exit("a")
    assert run.state("sup") == "running"
    assert run.lives["sup"] == 2


@covers("OTP-29")
def test_escalation_restarts_the_static_children_and_forgets_the_dynamic_ones(bench: Any, spec: Any) -> None:
    """A supervisor's next life is a new core with the same static specs."""
    static = (spec("a"), spec("b"))
    first = bench(*static, intensity=Intensity(0)).boot().start(spec("added"))
    first.exit("added")
    assert first.ended == GAVE_UP
    parent = bench(spec("sup", type="supervisor")).boot().exit("sup", first.ended)
    assert parent.lives == {"sup": 2}
    second = bench(*static).boot()
    assert set(second.lives) == {"a", "b"}


@covers("OTP-29")
def test_a_transient_supervisor_is_not_restarted_after_its_escalation(bench: Any, spec: Any) -> None:
    parent = bench(spec("sup", type="supervisor", restart="transient")).boot().exit("sup", GAVE_UP)
    assert parent.state("sup") == "stopped"


@covers("OTP-31")
def test_a_dynamic_child_whose_restart_fails_is_tried_again(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True, intensity=Intensity(3)).boot().start(spec("a"))
    run.starts["a"] = [NO, NO, "ok"]
    run.exit("a")
    assert run.state("a") == "running"
    assert run.lives["a"] == 4
    run.exit("a")
    assert run.ended == GAVE_UP, "the two further tries have counted"


@covers("OTP-32")
def test_a_dynamic_child_that_ignores_its_restart_is_removed(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot().start(spec("a"))
    run.starts["a"] = ["ignore"]
    run.exit("a")
    assert run.state("a") is None
    assert run.ask(CountChildren()).specs == 0


@covers("OTP-32")
def test_a_static_child_that_ignores_its_restart_keeps_its_spec(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), strategy="one_for_all").boot()
    run.starts["a"] = ["ignore"]
    run.exit("b")
    assert (run.state("a"), run.state("b")) == ("stopped", "running")


@covers("OTP-32")
def test_a_child_that_fails_its_restart_is_restarting(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True).boot().start(spec("a", backoff=Backoff(min_s=1.0)))
    run.starts["a"] = [NO]
    run.exit("a").advance(1.0)
    assert run.state("a") == "restarting"


@covers("OTP-33")
def test_restarting_children_count_for_max_children(bench: Any, spec: Any) -> None:
    run = bench(dynamic=True, max_children=2).boot()
    run.start(spec("a", backoff=Backoff(min_s=1.0)), spec("b"))
    run.exit("a")
    answer = run.ask(StartChild(spec("c")))
    assert (answer.kind, answer.retryable) == ("max_children", True)
    run.exit("b", "normal")
    run.ask(TerminateChild("b"))
    assert run.ask(StartChild(spec("c"))) == ChildUp("c", run.lives["c"])
    assert run.ask(StartChild(spec("d"))).kind == "max_children"


def restarting(bench: Any, spec: Any, strategy: str, dynamic: bool) -> Any:
    """A supervisor whose child ``a`` keeps failing its restart, and waits for the next try."""
    run = bench(dynamic=dynamic, strategy=strategy).boot()
    run.start(spec("a", backoff=Backoff(min_s=1.0)), spec("b"))
    run.starts["a"] = [NO]
    run.exit("a").advance(1.0)
    assert run.state("a") == "restarting"
    return run


KINDS = [("one_for_one", False), ("one_for_all", False), ("rest_for_one", False), ("one_for_one", True)]


@covers("OTP-34")
@pytest.mark.parametrize(("strategy", "dynamic"), KINDS)
def test_commands_are_answered_while_a_restart_fails_again_and_again(
    bench: Any, spec: Any, strategy: str, dynamic: bool
) -> None:
    run = restarting(bench, spec, strategy, dynamic)
    assert {s.id: s.state for s in run.ask(WhichChildren())}["a"] == "restarting"
    assert run.ask(CountChildren()).specs == 2
    if not dynamic:
        assert run.ask(RestartChild("a")).kind == "restarting"
        assert run.ask(DeleteChild("a")).kind == "restarting"
        assert run.ask(StartChild(spec("a"))).kind == "already_present"
    assert run.ask(TerminateChild("a")) == ChildTerminated("a")
    spawned = run.count("spawn", "a")
    run.advance(100.0)
    assert run.count("spawn", "a") == spawned, "terminate has cancelled the next try"
    assert run.state("a") == (None if dynamic else "stopped")


@covers("OTP-34")
@pytest.mark.parametrize(("strategy", "dynamic"), KINDS)
def test_a_stop_is_immediate_while_a_restart_fails_again_and_again(
    bench: Any, spec: Any, strategy: str, dynamic: bool
) -> None:
    run = restarting(bench, spec, strategy, dynamic)
    run.stop()
    assert run.ended == "shutdown"


@covers("OTP-34")
@pytest.mark.parametrize(("strategy", "dynamic"), KINDS)
def test_a_stop_comes_between_two_tries_without_a_delay(
    bench: Any, spec: Any, strategy: str, dynamic: bool
) -> None:
    run = bench(dynamic=dynamic, strategy=strategy, intensity=Intensity(1000)).boot().start(spec("a"))
    run.starts["a"] = [NO]
    death = run._death("a", "crashed: boom")
    run.feed(death, Stop())
    assert run.ended == "shutdown"
    assert run.count("spawn", "a") <= 3


def test_a_terminated_start_that_ignores_is_answered(bench: Any, spec: Any) -> None:
    run = bench(spec("a")).boot()
    run.ask(TerminateChild("a"))
    run.starts["a"] = ["ignore"]
    assert run.ask(RestartChild("a")) == ChildNotStarted("a", kept=True)
