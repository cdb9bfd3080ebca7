"""The client's end of its log: what is sent when, and what happens while the storage is at fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callboard.actors.events import Event, ToolEnabled, TurnStarted
from callboard.actors.log_writer import STUCK_AFTER_S, LogLost, LogWriter
from callboard.actors.messages import AppendEvents
from callboard.supervisor.envelope import Failure

FULL = Failure(kind="storage_full", message="the disk is full", retryable=True)


class Host:
    """A child without an actor: its clock and its mail are the test's."""

    def __init__(self) -> None:
        self.time = 0.0
        self.sent: list[AppendEvents] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.logged: list[str] = []
        self.log = self
        self._then: Callable[[Any], None] | None = None

    def error(self, what: str, **_facts: object) -> None:
        self.logged.append(what)

    def now(self) -> float:
        return self.time

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.timers.append((self.time + delay_s, action))

    def ask(self, _target: str, body: AppendEvents, then: Callable[[Any], None], **_limits: float) -> None:
        assert self._then is None, "two appends on their way"
        self.sent.append(body)
        self._then = then

    def answer(self, body: Any) -> None:
        then, self._then = self._then, None
        assert then is not None
        then(body)

    def wait(self) -> float:
        """Let the next timer run; gives how long it took."""
        at, action = self.timers.pop(0)
        waited, self.time = at - self.time, at
        action()
        return waited


class Bench:
    """A writer at seq 3, and what it told its owner."""

    def __init__(self, refuses: bool = False) -> None:
        self.host = Host()
        self.durable: list[int] = []
        self.done: list[str] = []
        self.stuck: list[Failure] = []
        self.refused: list[Failure] = []
        self.refuses = refuses
        self.writer = LogWriter(
            self.host,  # type: ignore[arg-type]
            "c", "red", 7, 3, self._durable, self._refused, self.stuck.append,
        )  # fmt: skip

    def _durable(self, events: tuple[Event, ...]) -> None:
        self.durable += [event.seq or 0 for event in events]

    def _refused(self, failure: Failure, _batch: tuple[Event, ...]) -> bool:
        self.refused.append(failure)
        return self.refuses

    def append(self, *names: str) -> None:
        events = tuple(ToolEnabled(tool=name) for name in names)
        self.writer.append(events, lambda: self.done.append(names[-1]))

    def seqs(self) -> list[int | None]:
        return [event.seq for event in self.host.sent[-1].events]


def test_one_append_is_on_its_way_and_the_rest_goes_together() -> None:
    bench = Bench()
    for name in ("a", "b", "c"):
        bench.append(name)
    assert (bench.host.sent[0].team, bench.host.sent[0].epoch, bench.seqs()) == ("red", 7, [4])
    bench.host.answer(4)
    assert (bench.durable, bench.done, bench.seqs()) == ([4], ["a"], [5, 6])
    bench.host.answer(6)
    assert (bench.durable, bench.done) == ([4, 5, 6], ["a", "b", "c"])
    assert len(bench.host.sent) == 2


@pytest.mark.parametrize("kind", ["stale_epoch", "conflict", "unknown", "invalid", "crashed", "not_found"])
def test_what_is_refused_for_good_ends_the_client(kind: str) -> None:
    bench = Bench()
    bench.append("a")
    with pytest.raises(LogLost, match=kind):
        bench.host.answer(Failure(kind=kind, message="no"))


@pytest.mark.parametrize("kind", ["storage_full", "storage_locked", "unanswered", "overloaded"])
def test_a_fault_of_the_storage_is_tried_again_for_ever_at_growing_distances(kind: str) -> None:
    bench = Bench()
    bench.append("a")
    distances = []
    for _ in range(40):
        bench.host.answer(Failure(kind=kind, message="no", retryable=True))
        bench.append("later")
        assert bench.writer.fault is not None and bench.writer.fault.kind.startswith("storage_")
        distances.append(bench.host.wait())
    assert distances[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(distances) == 5.0
    assert [f.kind for f in bench.stuck] == [kind if kind.startswith("storage") else f"storage_{kind}"]
    assert {tuple(command.events) for command in bench.host.sent} == {bench.host.sent[0].events}
    bench.host.answer(4)
    assert bench.writer.fault is None
    assert bench.seqs() == list(range(5, 45))
    bench.host.answer(44)
    assert bench.durable == list(range(4, 45))


def test_it_is_stuck_once_a_fault_and_not_before_its_time() -> None:
    bench = Bench()
    for _fault in range(2):
        bench.append("a")
        bench.stuck.clear()
        began = bench.host.time
        while not bench.stuck:
            assert bench.host.time - began <= STUCK_AFTER_S + 5.0
            bench.host.answer(FULL)
            bench.host.wait()
        assert bench.host.time - began >= STUCK_AFTER_S
        for _ in range(5):
            bench.host.answer(FULL)
            bench.host.wait()
        assert bench.stuck == [FULL]
        bench.host.answer(bench.seqs()[-1])
    assert bench.host.logged == ["log_stuck", "log_stuck"]


def test_an_acceptance_that_its_owner_can_do_without_frees_its_number() -> None:
    bench = Bench(refuses=True)
    bench.writer.append((TurnStarted(turn_id="t", text="x"),), lambda: bench.done.append("never"))
    bench.host.answer(FULL)
    assert (bench.refused, bench.writer.fault, bench.host.timers) == ([FULL], None, [])
    bench.append("a")
    assert bench.seqs() == [4]
    bench.host.answer(4)
    assert (bench.durable, bench.done) == ([4], ["a"])


def test_what_others_queue_behind_is_never_given_up() -> None:
    bench = Bench(refuses=True)
    bench.append("a")
    bench.append("b")
    bench.host.answer(FULL)
    assert bench.refused == []
    bench.host.wait()
    assert bench.seqs() == [4]
