"""A model actor's copy of the limits: no mail while all is well, and never a call that waits for the limits actor."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from callboard.actors.limits_copy import PERMIT_S, LimitsCopy
from callboard.actors.limits_core import DOWN, UP, EndpointState, Go, Outcome, Probe, Refuse
from callboard.actors.messages import JoinLimits, LimitsAre, ReportOutcome, TakeProbe
from callboard.supervisor.envelope import Failure

KEY = "http://host/v1 m"
SILENT = Failure(kind="unanswered", message="no answer")


class Host:
    """Stands for the model actor: notes what is sent, and lets the test answer."""

    def __init__(self, *, limits_is_there: bool = True) -> None:
        self.init = SimpleNamespace(id="models.m0")
        self.table = SimpleNamespace(find=lambda name: ("address", 7) if self.limits_is_there else None)
        self.log = SimpleNamespace(warning=lambda event, **fields: self.warnings.append(fields["about"]))
        self.limits_is_there = limits_is_there
        self.warnings: list[str] = []
        self.told: list[Any] = []
        self.asked: list[tuple[Any, Callable[[Any], None], float]] = []
        self.later: list[Callable[[], None]] = []
        self.when_dead: list[Callable[[], None]] = []
        self.clock = 100.0

    def now(self) -> float:
        return self.clock

    def tell(self, _target: Any, body: Any) -> bool:
        self.told.append(body)
        return self.limits_is_there

    def ask(
        self, _target: Any, body: Any, then: Callable[[Any], None], *, deadline_s: float, retry_s: float
    ) -> None:
        self.asked.append((body, then, deadline_s))

    def after(self, _delay_s: float, action: Callable[[], None]) -> None:
        self.later.append(action)

    def monitor(self, _pid: int, action: Callable[[], None]) -> None:
        self.when_dead.append(action)


def copy_of(host: Host) -> LimitsCopy:
    return LimitsCopy(host, KEY)  # type: ignore[arg-type]


def joined(host: Host, state: EndpointState | None = None) -> LimitsCopy:
    copy = copy_of(host)
    copy.join()
    body, then, _ = host.asked.pop()
    assert body == JoinLimits("models.m0")
    then(LimitsAre({KEY: state} if state else {}))
    return copy


def test_while_all_is_well_nothing_is_sent() -> None:
    host = Host()
    copy = joined(host)
    for _ in range(10):
        assert copy.verdict() == Go()
        copy.report(UP)
    assert (host.told, host.asked) == ([], [])


def test_failures_and_wishes_are_reported_and_what_says_nothing_is_not() -> None:
    host = Host()
    copy = joined(host)
    for outcome in (DOWN, Outcome(kind="held", held_s=2.0), None):
        copy.report(outcome)
    assert host.told == [ReportOutcome(KEY, DOWN), ReportOutcome(KEY, Outcome(kind="held", held_s=2.0))]


def test_a_success_is_reported_where_failures_are_known() -> None:
    host = Host()
    joined(host, EndpointState(failures=2)).report(UP)
    assert host.told == [ReportOutcome(KEY, UP)]


def test_what_another_actor_learnt_counts_here_by_this_processs_clock() -> None:
    host = Host()
    copy = joined(host)
    copy.take(LimitsAre({"http://other/v1 m": EndpointState(open_until=9.0)}))
    assert copy.verdict() == Go()
    copy.take(LimitsAre({KEY: EndpointState(failures=5, open_until=4.0)}))
    host.clock += 1
    assert copy.verdict() == Refuse(3.0)
    host.clock += 3
    assert copy.verdict() == Probe()


def test_no_answer_to_the_wish_to_try_is_a_yes_and_is_logged_once() -> None:
    host, permits = Host(), []
    copy = joined(host)
    for answer in (True, False, SILENT, SILENT):
        copy.take_probe(permits.append)
        body, then, deadline_s = host.asked.pop()
        assert (body, deadline_s) == (TakeProbe(KEY), PERMIT_S)
        then(answer)
    assert permits == [True, False, True, True]
    assert host.warnings == ["probe"]


def test_its_successor_is_joined_and_what_it_does_not_know_is_forgotten() -> None:
    host = Host()
    copy = joined(host, EndpointState(failures=5, open_until=60.0))
    assert copy.verdict() == Refuse(60.0)
    host.when_dead.pop()()
    assert copy.verdict() == Refuse(60.0), "until then the copy holds"
    _, then, _ = host.asked.pop()
    then(LimitsAre({}))
    assert copy.verdict() == Go()


def test_without_a_limits_actor_it_is_looked_for_again_and_calls_go_on() -> None:
    host = Host(limits_is_there=False)
    copy = copy_of(host)
    copy.join()
    assert host.asked == []
    assert copy.verdict() == Go()
    copy.report(DOWN)
    assert host.warnings == ["report"]
    host.limits_is_there = True
    host.later.pop()()
    _, then, _ = host.asked.pop()
    then(SILENT)
    assert len(host.asked) == 1, "it asks again"
