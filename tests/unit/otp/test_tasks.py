"""OTP-46 to OTP-50: the calls of one step are a stream of tasks. ``actors/call.py`` with a host without processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.actors import call_worker
from callboard.actors.call import Calls
from callboard.actors.chat_model import ModelReply
from callboard.actors.events import Event, ToolCallFinished
from callboard.actors.history import items_of
from callboard.actors.items import FunctionCall, FunctionCallOutput
from callboard.actors.messages import Worked
from callboard.actors.turn import (
    Append,
    Begin,
    CallFinished,
    Durable,
    Input,
    ModelReplied,
    StartCall,
    Turn,
    TurnLimits,
)
from callboard.supervisor.child import Spawned
from callboard.supervisor.envelope import Failure, Shutdown
from callboard.supervisor.requests import Pending, Requests
from callboard.tools.content import TextBlock, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec

covers = pytest.mark.covers


def text_result(text: str) -> ToolResult:
    return ToolResult(content=(TextBlock(text),))


def text_of(result: ToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextBlock))


class Host:
    """What ``Calls`` needs of its actor; processes are numbers, and die when they are told to."""

    def __init__(self) -> None:
        self.init = SimpleNamespace(id="conversations.c1", runtime_dir="/nowhere")
        self.table = SimpleNamespace(put=lambda row: self.rows.add(row.id), remove=self._remove)
        self.rows: set[str] = set()
        self.time = 0.0
        self.timers: list[Any] = []
        self.watched: dict[int, Callable[[int], None]] = {}
        self.continues: list[Callable[[], None]] = []
        self.living: dict[str, int] = {}
        self.forgotten: list[int] = []
        self.pidfds: dict[str, int] = {}
        self.deaf = False
        self.killed: list[int] = []
        self.refuse = False
        self.peak = 0
        self._pids = itertools.count(1)

    def now(self) -> float:
        return self.time

    def after(self, delay_s: float, action: Callable[[], None]) -> Any:
        timer = SimpleNamespace(at=self.time + delay_s, action=action, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def then_continue(self, action: Callable[[], None]) -> None:
        self.continues.append(action)

    def watch(self, fd: int, action: Callable[[int], None]) -> None:
        self.watched[fd] = action

    def unwatch(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def spawn(self, actor: str, init: Any) -> Spawned | None:
        if self.refuse:
            return None
        number = next(self._pids)
        self.living[init.id] = number
        self.peak = max(self.peak, len(self.living))
        self.pidfds[init.id] = os.open(os.devnull, os.O_RDONLY)
        return Spawned(address=init.id, pid=number, pidfd=self.pidfds[init.id])

    def send(self, address: str, message: Any) -> None:
        """A worker that is asked to end does, unless it is deaf."""
        if isinstance(message, Shutdown) and not self.deaf:
            self.die(address)

    def kill(self, pid: int) -> None:
        self.killed.append(pid)
        for row in [row for row, number in self.living.items() if number == pid]:
            self.die(row)

    def die(self, row: str) -> None:
        """The kernel tells of a death a moment later."""
        self.after(0.001, lambda: self.watched.get(self.pidfds[row], lambda _: None)(1))

    def forget_child(self, worker: Spawned) -> None:
        self.forgotten.append(worker.pid)

    def advance(self, seconds: float) -> None:
        until = self.time + seconds
        while due := sorted(
            (t for t in self.timers if not t.cancelled and t.at <= until), key=lambda t: t.at
        ):
            self.time = due[0].at
            self.timers.remove(due[0])
            due[0].action()
        self.time = until

    def _remove(self, row: str) -> None:
        self.rows.discard(row)
        self.living.pop(row, None)


class Stream:
    """A few calls, and what became of them in the order in which it was heard."""

    def __init__(self, limit: int) -> None:
        self.host = Host()
        _HOSTS.append(self.host)
        self.heard: list[tuple[str, ToolResult]] = []
        self.calls = Calls(self.host, lambda id, result, _: self.heard.append((id, result)), limit)  # type: ignore[arg-type]

    def start(self, *ids: str, deadline_s: float = 10.0) -> Stream:
        for id in ids:
            spec = ToolSpec(name=f"tool_{id}", description="", parameters={}, module="m", attribute="f")
            self.calls.start(id, spec, {}, ToolContext(), deadline_s)
        return self

    def worker(self, number: int) -> str:
        return f"conversations.c1.call-{number}"

    def result(self, number: int, text: str = "ok") -> Stream:
        """The worker replies, clears away and ends."""
        self.calls.take(Worked(worker=self.worker(number), result=text_result(text)))
        if self.worker(number) in self.host.living:
            self.host.die(self.worker(number))
        self.host.advance(0.01)
        return self

    def die(self, number: int) -> Stream:
        """The worker's process is gone."""
        self.host.die(self.worker(number))
        self.host.advance(0.01)
        return self

    def at_rest(self) -> bool:
        """No process, no row, no watch, no timer that could still speak."""
        self.host.advance(1000.0)
        return not (
            self.host.living
            or self.host.rows
            or self.host.watched
            or self.calls._running
            or self.calls._taken
        )


@pytest.fixture(autouse=True)
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pids of this file are made up: signals go to the stream's own host."""
    monkeypatch.setattr(call_worker, "kill_group", lambda *_: None)
    monkeypatch.setattr(call_worker, "kill", lambda pid: _HOSTS[-1].kill(pid))
    monkeypatch.setattr(call_worker, "start_time", lambda _pid: 0.0)
    yield
    _HOSTS.clear()


_HOSTS: list[Host] = []


@covers("OTP-46")
def test_results_go_by_call_whoever_is_first_and_slots_are_kept() -> None:
    stream = Stream(limit=2).start("slow", "quick", "next", "last")
    assert list(stream.host.living) == [stream.worker(1), stream.worker(2)], "the rest waits for a free slot"
    stream.result(2, "quick one").result(3, "next one").result(4, "last one").result(1, "slow one")
    assert [(id, text_of(result)) for id, result in stream.heard] == [
        ("quick", "quick one"),
        ("next", "next one"),
        ("last", "last one"),
        ("slow", "slow one"),
    ]
    assert stream.host.peak == 2
    assert stream.at_rest()


@covers("OTP-46")
def test_the_turn_puts_results_in_call_order_whoever_was_first() -> None:
    turn = Turn(TurnLimits(), ())
    log: list[Event] = []
    started: list[str] = []

    def give(given: Input) -> None:
        for effect in turn.handle(given, 0.0):
            match effect:
                case Append(events=events, token=token):
                    log.extend(events)
                    give(Durable(token))
                case StartCall(call=call):
                    started.append(call.call_id)

    calls = tuple(FunctionCall(call_id=id, tool="f", arguments=f'{{"n": {n}}}') for n, id in enumerate("abc"))
    give(Begin(turn_id="t", text="go"))
    give(ModelReplied(reply=ModelReply(calls=calls)))
    assert started == ["a", "b", "c"]
    for id in "cab":
        give(CallFinished(call_id=id, result=text_result(f"result {id}")))
    assert [event.call_id for event in log if isinstance(event, ToolCallFinished)] == ["c", "a", "b"]
    outputs = [item for item in items_of(log) if isinstance(item, FunctionCallOutput)]
    assert [output.call_id for output in outputs] == ["a", "b", "c"]
    assert outputs[1].content == (TextBlock("result b"),)


@covers("OTP-46")
def test_a_late_call_is_killed_and_named_and_the_others_go_on() -> None:
    stream = Stream(limit=2).start("late", deadline_s=1.0).start("fine", "waits")
    stream.host.advance(1.8)
    assert [(id, result.outcome) for id, result in stream.heard] == [("late", "deadline")]
    assert "tool_late exceeded its deadline of 1 s" in text_of(stream.heard[0][1])
    assert stream.worker(1) not in stream.host.living
    stream.result(1, "too late").result(2).result(3)
    assert [id for id, _ in stream.heard] == ["late", "fine", "waits"]
    assert stream.at_rest()


@covers("OTP-46")
def test_a_place_is_free_when_the_process_is_down_not_when_it_replied() -> None:
    stream = Stream(limit=1).start("a", "b")
    stream.calls.take(Worked(worker=stream.worker(1), result=text_result("ok")))
    assert [id for id, _ in stream.heard] == ["a"]
    stream.host.advance(0.01)
    assert list(stream.host.living) == [stream.worker(1)]
    stream.die(1)
    assert list(stream.host.living) == [stream.worker(2)]
    stream.calls.kill("b")
    assert stream.at_rest()


@covers("OTP-46")
def test_a_worker_that_replied_and_does_not_end_is_killed() -> None:
    stream = Stream(limit=1).start("a", "b")
    stream.calls.take(Worked(worker=stream.worker(1), result=text_result("ok")))
    stream.host.advance(4.9)
    assert stream.host.killed == []
    stream.host.advance(0.2)
    assert stream.host.killed == [1]
    assert list(stream.host.living) == [stream.worker(2)]
    stream.result(2)
    assert stream.at_rest()


@covers("OTP-46")
def test_a_worker_that_does_not_end_when_it_is_asked_is_killed() -> None:
    stream = Stream(limit=1)
    stream.host.deaf = True
    stream.start("a")
    stream.calls.kill("a")
    stream.host.advance(0.9)
    assert stream.host.killed == []
    stream.host.advance(0.2)
    assert stream.host.killed == [1]
    assert stream.at_rest()
    assert stream.heard == []


@covers("OTP-46")
def test_a_call_that_replied_before_its_kill_counts_as_done() -> None:
    stream = Stream(limit=1).start("a", deadline_s=1.0)
    stream.host.advance(0.99)
    stream.result(1).host.advance(5.0)
    assert [result.outcome for _, result in stream.heard] == ["ok"]


@covers("OTP-46")
def test_a_crashed_call_names_its_input() -> None:
    stream = Stream(limit=2).start("a", "b").die(1)
    stream.host.advance(1.0)
    ((id, result),) = stream.heard
    assert (id, result.outcome) == ("a", "killed")
    assert "tool_a did not finish" in text_of(result)
    stream.result(2)
    assert stream.at_rest()


@covers("OTP-46", "OTP-58")
def test_a_result_that_its_process_death_has_overtaken_still_counts() -> None:
    stream = Stream(limit=1).start("a").die(1)
    assert stream.heard == []
    stream.result(1, "made it")
    stream.host.advance(5.0)
    assert [(id, text_of(result)) for id, result in stream.heard] == [("a", "made it")]


@covers("OTP-47")
def test_ending_early_leaves_no_process_and_no_message() -> None:
    stream = Stream(limit=2).start("a", "b", "c", "d")
    for id in ("c", "a", "b", "d"):
        stream.calls.kill(id)
    stream.host.advance(0.01)
    assert stream.host.living == {}
    for number in range(1, 6):
        stream.result(number)
    assert stream.at_rest()
    assert stream.heard == []


@covers("OTP-48")
def test_a_call_that_no_process_can_be_started_for_fails_clearly_and_the_others_end() -> None:
    stream = Stream(limit=2).start("a")
    stream.host.refuse = True
    stream.start("b")
    for action in stream.host.continues:
        action()
    stream.host.refuse = False
    stream.result(1)
    assert [(id, result.outcome) for id, result in stream.heard] == [("b", "unavailable"), ("a", "ok")]
    assert "no process could be started for tool_b" in text_of(stream.heard[0][1])
    assert stream.at_rest()


@covers("OTP-49")
def test_messages_that_only_look_like_a_result_are_ignored() -> None:
    stream = Stream(limit=2).start("a", "b")
    stream.calls.take(Worked(worker="conversations.other.call-1", result=text_result("foreign")))
    stream.calls.take(Worked(worker=stream.worker(99), result=text_result("unknown")))
    stream.calls.take(("DOWN", stream.worker(1)))
    assert stream.heard == []
    stream.result(1).result(1).result(2)
    assert [id for id, _ in stream.heard] == ["a", "b"]


@covers("OTP-50")
def test_waiting_ends_at_its_timeout_and_the_late_answer_is_dropped() -> None:
    requests = Requests()
    got: list[Any] = []
    requests.add(Pending("mine", "someone", "body", got.append, 5.0, 0.25))
    requests.add(Pending("other", "someone", "body", got.append, 5.0, 0.25))
    requests.expire("mine")
    assert isinstance(got[0], Failure)
    assert not requests.settle("mine", "late")
    assert not requests.settle("never asked by us", "stray")
    assert requests.settle("other", "answer")
    assert got[1:] == ["answer"]
    assert len(requests) == 0
    requests.add(Pending("given up", "someone", "body", got.append, 5.0, 0.25))
    requests.forget("given up")
    requests.expire("given up")
    assert not requests.settle("given up", "late")
    assert len(got) == 2
