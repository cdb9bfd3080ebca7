"""OTP-1 to OTP-12: specs, flags, and how children start."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

from callboard.supervisor import spec_errors
from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import (
    ChildCounts,
    ChildNotStarted,
    CountChildren,
    RestartChild,
    StartChild,
    TerminateChild,
)
from callboard.supervisor.core_terms import ChildUp
from callboard.supervisor.envelope import Failure
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec import ChildSpec, SupervisorFlags, check_children

covers = pytest.mark.covers
ACTOR = "some.Actor"


@covers("OTP-1")
def test_a_child_that_ignores_its_start_keeps_its_spec_without_a_process(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"))
    run.starts["a"] = ["ignore"]
    run.boot()
    assert run.up
    assert run.state("a") == "stopped"
    assert "a" not in run.lives
    assert run.ask(CountChildren()) == ChildCounts(specs=2, active=1, supervisors=0, workers=2)
    run.starts["c"] = ["ignore"]
    assert run.ask(StartChild(spec("c"))) == ChildNotStarted("c", kept=True)
    assert run.ask(CountChildren()) == ChildCounts(specs=3, active=1, supervisors=0, workers=3)


@covers("OTP-2")
@pytest.mark.parametrize(
    ("dynamic", "restart"), [(False, "temporary"), (True, "temporary"), (True, "permanent")]
)
def test_nothing_is_kept_of_a_temporary_or_dynamic_child_that_ignores_its_start(
    bench: Any, spec: Any, dynamic: bool, restart: str
) -> None:
    run = bench(dynamic=dynamic).boot()
    run.starts["a"] = ["ignore"]
    assert run.ask(StartChild(spec("a", restart=restart))) == ChildNotStarted("a", kept=False)
    assert run.ask(CountChildren()).specs == 0
    assert run.shown["a"] == "gone"
    run.stop()
    assert run.ended == "shutdown"


@covers("OTP-2")
def test_a_temporary_child_that_ignores_its_start_at_the_boot_is_not_kept(bench: Any, spec: Any) -> None:
    run = bench(spec("a", restart="temporary"), spec("b"))
    run.starts["a"] = ["ignore"]
    run.boot()
    assert run.up
    assert run.state("a") is None


@covers("OTP-3", "OTP-9")
def test_a_start_that_fails_at_the_boot_ends_the_supervisor_with_that_reason(bench: Any, spec: Any) -> None:
    run = bench(spec("a"), spec("b"), spec("c"))
    run.starts["b"] = ["start_failed: ValueError: no such file"]
    run.boot()
    assert not run.up
    assert run.ended == "shutdown: failed_to_start_child b: start_failed: ValueError: no such file"
    assert run.log == [("spawn", "a"), ("spawn", "b"), ("exit", "b"), ("ask", "a"), ("exit", "a")]


@covers("OTP-9")
def test_the_parent_sees_a_subtree_that_cannot_start_as_a_failed_start(bench: Any, spec: Any) -> None:
    inner = bench(spec("worker"))
    inner.starts["worker"] = ["start_failed: no weights"]
    inner.boot()
    outer = bench(spec("inner", type="supervisor"))
    outer.starts["inner"] = [inner.ended]
    outer.boot()
    assert outer.ended.startswith(
        "shutdown: failed_to_start_child inner: shutdown: failed_to_start_child worker"
    )
    assert "no weights" in outer.ended


@covers("OTP-3")
def test_a_child_that_is_not_up_in_time_is_killed_and_its_start_has_failed(bench: Any, spec: Any) -> None:
    run = bench(spec("a", start_s=3.0))
    run.starts["a"] = ["hang"]
    run.boot().advance(2.9)
    assert run.ended is None
    run.advance(0.1)
    assert run.count("kill", "a") == 1
    assert run.ended == "shutdown: failed_to_start_child a: start_failed: it was not up after 3 s"


@covers("OTP-4", "OTP-12")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "reason",
    [
        "start_failed: ValueError: bad",
        "normal",
        "shutdown",
        "killed by SIGKILL",
        "exited with code 3",
        "crashed: KeyError",
    ],
)
def test_every_way_for_a_start_to_go_wrong_is_a_typed_error_and_keeps_nothing(
    bench: Any, spec: Any, dynamic: bool, reason: str
) -> None:
    run = bench(dynamic=dynamic).boot()
    run.starts["a"] = [reason]
    answer = run.ask(StartChild(spec("a")))
    assert isinstance(answer, Failure)
    assert answer.kind == "start_failed"
    assert reason in answer.message
    assert run.state("a") is None
    assert run.count("spawn", "a") == 1
    assert run.shown["a"] == "gone"
    assert run.ended is None


@covers("OTP-5")
def test_a_manual_restart_that_fails_leaves_the_spec_without_a_process(bench: Any, spec: Any) -> None:
    run = bench(spec("a")).boot()
    run.ask(TerminateChild("a"))
    run.starts["a"] = ["start_failed: no"]
    answer = run.ask(RestartChild("a"))
    assert answer.kind == "start_failed"
    assert "start_failed: no" in answer.message
    assert run.state("a") == "stopped"
    run.starts["a"] = ["ignore"]
    assert run.ask(RestartChild("a")) == ChildNotStarted("a", kept=True)
    run.starts["a"] = ["ok"]
    assert isinstance(run.ask(RestartChild("a")), ChildUp)


@covers("OTP-6")
def test_the_defaults_of_a_spec() -> None:
    worker = ChildSpec.from_mapping({"id": "a", "actor": ACTOR})
    assert (worker.restart, worker.type, worker.significant, worker.stop_limit_s) == (
        "permanent",
        "worker",
        False,
        5.0,
    )
    assert worker == ChildSpec(id="a", actor=ACTOR)
    assert ChildSpec(id="a", actor=ACTOR, type="supervisor").stop_limit_s == math.inf
    assert ChildSpec(id="a", actor=ACTOR, type="supervisor", shutdown_s=2).stop_limit_s == 2


WRONG: list[tuple[dict[str, Any], type[spec_errors.SpecError]]] = [
    ({"id": ""}, spec_errors.InvalidId),
    ({"id": "a/b"}, spec_errors.InvalidId),
    ({"id": 7}, spec_errors.InvalidId),
    ({"actor": "Actor"}, spec_errors.InvalidStart),
    ({"actor": "some."}, spec_errors.InvalidStart),
    ({"actor": None}, spec_errors.InvalidStart),
    ({"args": [1]}, spec_errors.InvalidStart),
    ({"kind": 1}, spec_errors.InvalidStart),
    ({"start_s": 0}, spec_errors.InvalidStart),
    ({"start_s": math.inf}, spec_errors.InvalidStart),
    ({"restart": "sometimes"}, spec_errors.InvalidRestart),
    ({"restart": ["permanent"]}, spec_errors.InvalidRestart),
    ({"shutdown_s": -1}, spec_errors.InvalidShutdown),
    ({"shutdown_s": math.nan}, spec_errors.InvalidShutdown),
    ({"shutdown_s": True}, spec_errors.InvalidShutdown),
    ({"shutdown_s": "brutal_kill"}, spec_errors.InvalidShutdown),
    ({"type": "manager"}, spec_errors.InvalidType),
    ({"significant": 1}, spec_errors.InvalidSignificant),
    ({"significant": True}, spec_errors.BadCombination),
    ({"backoff": 1.0}, spec_errors.InvalidBackoff),
    ({"backoff": {"min_s": 3, "max_s": 1}}, spec_errors.InvalidBackoff),
    ({"backoff": {"least_s": 3}}, spec_errors.UnknownKey),
    ({"max_consecutive": -1}, spec_errors.InvalidExhaustion),
    ({"max_consecutive": 1.5}, spec_errors.InvalidExhaustion),
    ({"on_exhausted": "explode"}, spec_errors.InvalidExhaustion),
    ({"on_exhausted": "park"}, spec_errors.BadCombination),
    ({"on_exhausted": "park", "max_consecutive": 3}, spec_errors.BadCombination),
    ({"on_exhausted": "drop", "backoff": Backoff()}, spec_errors.BadCombination),
    (
        {"on_exhausted": "drop", "backoff": Backoff(), "max_consecutive": 1, "restart": "temporary"},
        spec_errors.BadCombination,
    ),
    ({"modules": []}, spec_errors.UnknownKey),
]


@covers("OTP-7", "OTP-11")
@pytest.mark.parametrize(("fields", "error"), WRONG)
def test_each_wrong_field_is_its_own_error_where_the_spec_is_made(
    fields: dict[str, Any], error: type[spec_errors.SpecError]
) -> None:
    with pytest.raises(error) as raised:
        ChildSpec.from_mapping({"id": "a", "actor": ACTOR, **fields})
    assert type(raised.value) is error
    assert next(iter(fields)) in str(raised.value) or str(fields.get("id", "a")) in str(raised.value)


@covers("OTP-7", "OTP-11")
def test_a_spec_without_id_or_actor_is_refused() -> None:
    with pytest.raises(spec_errors.MissingId):
        ChildSpec.from_mapping({"actor": ACTOR})
    with pytest.raises(spec_errors.MissingStart):
        ChildSpec.from_mapping({"id": "a"})


@covers("OTP-7")
def test_every_valid_combination_is_taken() -> None:
    flags = SupervisorFlags(auto_shutdown="any_significant")
    for restart, type_, shutdown_s, significant in itertools.product(
        ("permanent", "transient", "temporary"),
        ("worker", "supervisor"),
        (None, 0, 0.5, 3, math.inf),
        (False, True),
    ):
        if restart == "permanent" and significant:
            continue
        made = ChildSpec.from_mapping(
            {
                "id": "a",
                "actor": ACTOR,
                "restart": restart,
                "type": type_,
                "shutdown_s": shutdown_s,
                "significant": significant,
            }
        )
        check_children(flags, (made,))


@covers("OTP-7")
def test_children_must_fit_their_supervisor(bench: Any, spec: Any) -> None:
    with pytest.raises(spec_errors.DuplicateId):
        bench(spec("a"), spec("b"), spec("a"))
    with pytest.raises(spec_errors.InvalidSignificant):
        bench(spec("a", restart="transient", significant=True))
    with pytest.raises(spec_errors.BadCombination):
        bench(spec("a"), dynamic=True)
    parked = {"on_exhausted": "park", "backoff": Backoff(), "max_consecutive": 1}
    with pytest.raises(spec_errors.BadCombination):
        bench(spec("a", **parked), strategy="one_for_all")
    run = bench(strategy="rest_for_one").boot()
    assert run.ask(StartChild(spec("a", **parked))).kind == "bad_combination"
    assert run.ask(StartChild(spec("a", restart="temporary", significant=True))).kind == "invalid_significant"
    assert run.log == []


@covers("OTP-8")
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Intensity(-1, 5.0), spec_errors.InvalidIntensity),
        (lambda: Intensity(1.5, 5.0), spec_errors.InvalidIntensity),  # type: ignore[arg-type]
        (lambda: Intensity(True, 5.0), spec_errors.InvalidIntensity),
        (lambda: Intensity(1, 0), spec_errors.InvalidIntensity),
        (lambda: Intensity(1, math.inf), spec_errors.InvalidIntensity),
        (lambda: Intensity(1, math.nan), spec_errors.InvalidIntensity),
        (lambda: Intensity(1, "5"), spec_errors.InvalidIntensity),  # type: ignore[arg-type]
        (lambda: SupervisorFlags(intensity=3), spec_errors.InvalidIntensity),  # type: ignore[arg-type]
        (lambda: SupervisorFlags(strategy="none_for_one"), spec_errors.InvalidStrategy),  # type: ignore[arg-type]
        (lambda: SupervisorFlags(auto_shutdown="yes"), spec_errors.InvalidAutoShutdown),  # type: ignore[arg-type]
        (lambda: SupervisorFlags(dynamic=True, max_children=-1), spec_errors.InvalidMaxChildren),
        (lambda: SupervisorFlags(max_children=3), spec_errors.BadCombination),
        (lambda: SupervisorFlags(extra_args={"a": 1}), spec_errors.BadCombination),
        (lambda: SupervisorFlags(dynamic=True, strategy="one_for_all"), spec_errors.BadCombination),
    ],
)
def test_wrong_flags_are_refused(make: Callable[[], object], error: type[spec_errors.SpecError]) -> None:
    with pytest.raises(error) as raised:
        make()
    assert type(raised.value) is error


@covers("OTP-8")
def test_right_flags_are_taken() -> None:
    assert Intensity() == Intensity(3, 5.0)
    assert Intensity(0, 0.1).limit == 0
    for strategy in ("one_for_one", "one_for_all", "rest_for_one"):
        for auto_shutdown in ("never", "any_significant", "all_significant"):
            SupervisorFlags(strategy=strategy, auto_shutdown=auto_shutdown)
    assert SupervisorFlags(dynamic=True, max_children=0).max_children == 0


@covers("OTP-10")
def test_what_a_child_says_at_its_start_reaches_who_asked(bench: Any, spec: Any) -> None:
    run = bench().boot()
    run.infos["a"] = {"port": 7}
    assert run.ask(StartChild(spec("a"))) == ChildUp("a", 1, {"port": 7})
    run.ask(TerminateChild("a"))
    assert run.ask(RestartChild("a")) == ChildUp("a", 2, {"port": 7})
    run.exit("a")
    assert run.state("a") == "running"
    assert run.lives["a"] == 3
