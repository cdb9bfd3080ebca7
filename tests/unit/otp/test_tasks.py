"""OTP-46 to OTP-50: the calls of one step are a stream of tasks. ``actors/call.py`` with a host without processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from callboard.actors import call_worker
from callboard.actors.call import Calls
from callboard.actors.chat_model import ModelReply
from callboard.actors.events import Event, ToolCallFinished
from callboard.actors.history import items_of
from callboard.actors.items import FunctionCall, FunctionCallOutput
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
from callboard.actors.worker_endings import ended_by_itself, overdue
from callboard.supervisor.envelope import Failure
from callboard.supervisor.requests import Pending, Requests
from callboard.tools.content import Progress, TextBlock, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec

covers = pytest.mark.covers


def text_result(text: str) -> ToolResult:
    return ToolResult(content=(TextBlock(text),))


def text_of(result: ToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextBlock))


class Host:
    """What ``Calls`` needs of its actor: a clock, timers, and descriptors to watch."""

    def __init__(self) -> None:
        self.init = SimpleNamespace(id="conversations.c1", runtime_dir="/nowhere")
        self.table = SimpleNamespace(put=lambda row: self.rows.add(row.id), remove_row=self.rows_without)
        self.log = SimpleNamespace(error=lambda what, **_: self.logged.append(what))
        self.rows: set[str] = set()
        self.logged: list[str] = []
        self.time = 0.0
        self.timers: list[Any] = []
        self.watched: dict[int, Callable[[int], None]] = {}
        self.continues: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.time

    def after(self, delay_s: float, action: Callable[[], None]) -> Any:
        timer = SimpleNamespace(at=self.time + delay_s, action=action)
        timer.cancel = lambda: setattr(timer, "action", None)
        self.timers.append(timer)
        return timer

    def then_continue(self, action: Callable[[], None]) -> None:
        self.continues.append(action)

    def watch(self, fd: int, action: Callable[[int], None]) -> None:
        self.watched[fd] = action

    def unwatch(self, fd: int) -> None:
        self.watched.pop(fd, None)

    def rows_without(self, row: str) -> None:
        self.rows.discard(row)

    def advance(self, seconds: float) -> None:
        until = self.time + seconds
        while due := sorted((t for t in self.timers if t.action and t.at <= until), key=lambda t: t.at):
            self.time = due[0].at
            self.timers.remove(due[0])
            due[0].action()
        self.time = until


class Process:
    """A worker's process as its keeper sees it; it does what the test says. Its descriptors are numbers."""

    refuse = False
    living: ClassVar[dict[int, Process]] = {}
    peak = 0

    def __init__(self, spec: ToolSpec, folder: Path, title: str, fork: object) -> None:
        self.spec = spec
        self.pid = 0
        self.is_over = self.deaf = False
        self.channel_is_open = self.output_is_open = True
        self.killed = 0
        self.given_up = False
        self._said: ToolResult | None = None
        self._gone = False

    def start(self) -> None:
        if Process.refuse:
            raise OSError("no more processes")
        self.pid = next(_PIDS)
        self.channel_fd, self.output_fd, self.word_fd, self.pidfd = (10 * self.pid + n for n in range(4))
        Process.living[self.pid] = self
        Process.peak = max(Process.peak, len(Process.living))

    @property
    def has_ended(self) -> bool:
        return self._gone

    @property
    def is_ready(self) -> bool:
        return not self._gone

    def hand_over(self, call: bytes, deadline_s: float) -> None:
        self.deadline_s = deadline_s

    def say(self, result: ToolResult) -> None:
        self._said, self.is_over = result, True

    def read_channel(self) -> list[Progress]:
        return []

    def look(self) -> None:
        pass

    def stop(self, cause: str) -> None:
        if not self.is_over:
            self.is_over, self._said = True, overdue(self.spec.name, self.deadline_s)

    def end(self) -> None:
        self.killed += 1

    def die(self) -> None:
        self._gone = True

    def reap(self) -> bool:
        gone = self._gone or self.given_up or (self.killed > 0 and not self.deaf)
        if gone:
            Process.living.pop(self.pid, None)
        return gone

    def reap_within(self, seconds: float) -> bool:
        return self.reap()

    def give_up(self) -> None:
        self.given_up = True

    def close(self) -> None:
        pass

    def result(self) -> ToolResult:
        return self._said or ended_by_itself(self.spec.name, -9, self.spec.limits)


_PIDS = itertools.count(1)


class Stream:
    """A few calls, and what became of them in the order in which it was heard."""

    def __init__(self, limit: int) -> None:
        self.host = Host()
        self.heard: list[tuple[str, ToolResult]] = []
        self.calls = Calls(self.host, lambda id, result, _: self.heard.append((id, result)), limit)  # type: ignore[arg-type]

    def start(self, *ids: str, deadline_s: float = 10.0) -> Stream:
        for id in ids:
            spec = ToolSpec(name=f"tool_{id}", description="", parameters={}, module="m", attribute="f")
            self.calls.start(id, spec, {}, ToolContext(), deadline_s)
        return self

    def process(self, id: str) -> Process:
        return next(p for p in Process.living.values() if p.spec.name == f"tool_{id}")

    def running(self) -> list[str]:
        return [process.spec.name.removeprefix("tool_") for process in Process.living.values()]

    def ready(self, fd: int) -> None:
        """The kernel tells that a descriptor is ready."""
        if fd in self.host.watched:
            self.host.watched[fd](1)

    def result(self, id: str, text: str = "ok") -> Stream:
        """The worker says its result."""
        process = self.process(id)
        process.say(text_result(text))
        self.ready(process.channel_fd)
        self.ready(process.pidfd)
        return self

    def die(self, id: str) -> Stream:
        """The worker's process is gone."""
        process = self.process(id)
        process.die()
        self.ready(process.word_fd)
        self.ready(process.pidfd)
        return self

    def at_rest(self) -> bool:
        """No process, no row, no watch, no timer that could still speak."""
        self.host.advance(1000.0)
        return not (
            Process.living
            or self.host.rows
            or self.host.watched
            or [timer for timer in self.host.timers if timer.action]
            or self.calls._running
            or self.calls._taken
        )


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The processes of this file are made up."""
    monkeypatch.setattr(call_worker, "WorkProcess", Process)
    monkeypatch.setattr(call_worker, "make_folder", lambda: tmp_path)
    monkeypatch.setattr(call_worker, "start_removal", lambda _folder: None)
    monkeypatch.setattr(call_worker, "start_time", lambda _pid: 0.0)
    Process.living.clear()
    Process.peak = 0
    yield
    Process.refuse = False


@covers("OTP-46")
def test_results_go_by_call_whoever_is_first_and_slots_are_kept() -> None:
    stream = Stream(limit=2).start("slow", "quick", "next", "last")
    assert stream.running() == ["slow", "quick"], "the rest waits for a free slot"
    stream.result("quick", "quick one").result("next", "next one").result("last", "last one").result(
        "slow", "slow one"
    )
    assert [(id, text_of(result)) for id, result in stream.heard] == [
        ("quick", "quick one"),
        ("next", "next one"),
        ("last", "last one"),
        ("slow", "slow one"),
    ]
    assert Process.peak == 2
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
    late = stream.process("late")
    stream.host.advance(1.1)
    assert [(id, result.outcome) for id, result in stream.heard] == [("late", "deadline")]
    assert "tool_late exceeded its deadline of 1 s" in text_of(stream.heard[0][1])
    assert late.killed == 1
    assert stream.running() == ["fine", "waits"]
    stream.result("fine").result("waits")
    assert [id for id, _ in stream.heard] == ["late", "fine", "waits"]
    assert stream.at_rest()


@covers("OTP-46")
def test_a_place_is_free_when_the_process_is_down_not_when_it_replied() -> None:
    stream = Stream(limit=1).start("a", "b")
    process = stream.process("a")
    process.deaf = True
    stream.result("a")
    assert [id for id, _ in stream.heard] == ["a"]
    assert stream.running() == ["a"]
    process.die()
    stream.ready(process.pidfd)
    assert stream.running() == ["b"]
    stream.calls.kill("b")
    assert stream.at_rest()


@covers("OTP-46")
def test_a_worker_that_does_not_end_is_given_up_and_its_place_is_free() -> None:
    stream = Stream(limit=1).start("a", "b")
    process = stream.process("a")
    process.deaf = True
    stream.result("a")
    stream.host.advance(29.0)
    assert not process.given_up
    stream.host.advance(10.0)
    assert process.given_up
    assert stream.host.logged == ["worker_given_up"]
    assert stream.running() == ["b"]
    stream.result("b")
    assert stream.at_rest()


@covers("OTP-46")
def test_a_call_that_is_killed_is_heard_of_no_more_and_its_place_is_free() -> None:
    stream = Stream(limit=1).start("a", "b")
    process = stream.process("a")
    stream.calls.kill("a")
    assert process.killed == 1
    assert stream.running() == ["b"]
    stream.result("b")
    assert [id for id, _ in stream.heard] == ["b"]
    assert stream.at_rest()


@covers("OTP-46")
def test_a_call_that_replied_before_its_kill_counts_as_done() -> None:
    stream = Stream(limit=1).start("a", deadline_s=1.0)
    stream.host.advance(0.99)
    stream.result("a").host.advance(5.0)
    assert [result.outcome for _, result in stream.heard] == ["ok"]


@covers("OTP-46")
def test_a_crashed_call_names_its_input() -> None:
    stream = Stream(limit=2).start("a", "b").die("a")
    ((id, result),) = stream.heard
    assert (id, result.outcome) == ("a", "killed")
    assert "tool_a did not finish: its process was killed by SIGKILL" in text_of(result)
    stream.result("b")
    assert stream.at_rest()


@covers("OTP-46", "OTP-58")
def test_a_result_that_its_process_death_has_overtaken_still_counts() -> None:
    stream = Stream(limit=1).start("a")
    stream.process("a").say(text_result("made it"))
    stream.die("a").host.advance(5.0)
    assert [(id, text_of(result)) for id, result in stream.heard] == [("a", "made it")]
    assert stream.at_rest()


@covers("OTP-47")
def test_ending_early_leaves_no_process_and_no_message() -> None:
    stream = Stream(limit=2).start("a", "b", "c", "d")
    for id in ("c", "a", "b", "d"):
        stream.calls.kill(id)
    assert stream.running() == []
    assert stream.at_rest()
    assert stream.heard == []


@covers("OTP-47")
def test_the_end_of_the_caller_ends_all_its_calls_at_once() -> None:
    stream = Stream(limit=2).start("a", "b", "c")
    stream.calls.stop()
    assert stream.running() == []
    assert not stream.host.rows
    assert not stream.host.watched
    assert stream.heard == []


@covers("OTP-48")
def test_a_call_that_no_process_can_be_started_for_fails_clearly_and_the_others_end() -> None:
    stream = Stream(limit=2).start("a")
    Process.refuse = True
    stream.start("b")
    assert stream.heard == [], "whoever starts a call hears nothing from inside that"
    for action in stream.host.continues:
        action()
    stream.result("a")
    assert [(id, result.outcome) for id, result in stream.heard] == [("b", "unavailable"), ("a", "ok")]
    assert "no process could be started for tool_b: no more processes" in text_of(stream.heard[0][1])
    assert stream.at_rest()


@covers("OTP-48")
def test_arguments_that_cannot_be_handed_over_are_told_and_the_tool_does_not_run() -> None:
    stream = Stream(limit=1)
    spec = ToolSpec(name="odd", description="", parameters={}, module="m", attribute="f")
    stream.calls.start("a", spec, {"x": object()}, ToolContext(), 1.0)
    for action in stream.host.continues:
        action()
    assert [(id, result.outcome) for id, result in stream.heard] == [("a", "unavailable")]
    assert "cannot be handed over" in text_of(stream.heard[0][1])
    assert stream.at_rest()


@covers("OTP-49")
def test_what_is_ready_at_another_descriptor_is_none_of_a_calls_result() -> None:
    stream = Stream(limit=2).start("a", "b")
    b = stream.process("b")
    stream.ready(b.channel_fd)
    stream.ready(b.output_fd + 1000)
    assert stream.heard == []
    stream.result("a")
    assert [id for id, _ in stream.heard] == ["a"]
    stream.result("b")
    assert [id for id, _ in stream.heard] == ["a", "b"]
    assert stream.at_rest()


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
