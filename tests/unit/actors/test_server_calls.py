"""One result for each call of an external server, whatever is sent twice; progress on the way, not too often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from callboard.actors.messages import AwaitCall, CallTool
from callboard.actors.server_calls import ServerCalls
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.tools.content import Progress, TextBlock, ToolResult
from callboard.transports import mcp_effects

DONE = ToolResult(content=(TextBlock("done"),))


class Host:
    """A clock that is moved by hand, and what was answered."""

    def __init__(self) -> None:
        self.at = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.said: list[Any] = []
        self.calls = ServerCalls(cast(Child, self), "disk")

    def now(self) -> float:
        return self.at

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.timers.append((self.at + delay_s, action))

    def reply(self, envelope: Envelope, body: Any) -> None:
        self.said.append(body)

    def pass_time(self, seconds: float) -> None:
        self.at += seconds
        due = [action for at, action in self.timers if at <= self.at]
        self.timers = [(at, action) for at, action in self.timers if at > self.at]
        for action in due:
            action()

    def tell(self, progress: float, total: float | None = 10.0) -> None:
        self.calls.progressed("1", mcp_effects.Progress("1", progress, total, None))


def _request(body: Any = None) -> Envelope:
    command = body or CallTool(tool="x", arguments={}, deadline_s=9.0)
    return Envelope(request_id="1", body=command, reply_to="caller")


def test_a_call_that_comes_twice_is_made_once() -> None:
    host = Host()
    assert host.calls.add(_request())
    assert not host.calls.add(_request())
    host.calls.answer("1", DONE)
    assert host.said == [DONE]
    assert not host.calls.add(_request()), "it crossed the answer in the mail"
    assert host.said == [DONE]
    host.pass_time(1.0)
    assert not host.calls.add(_request()), "the answer was lost"
    host.calls.ask_on(_request(AwaitCall()))
    assert host.said == [DONE, DONE, DONE]
    host.pass_time(60.0)
    assert not host.calls.add(_request())
    assert host.said[-1].outcome == "unknown"


def test_a_call_that_was_given_up_is_not_made_by_its_repetition() -> None:
    host = Host()
    host.calls.add(_request())
    host.tell(1)
    host.tell(2)
    assert host.calls.drop("1")
    assert not host.calls.drop("1")
    assert not host.calls.add(_request())
    host.pass_time(1.0)
    host.calls.answer("1", DONE)
    assert host.said == [Progress("1/10", 0.1)]


def test_a_call_that_comes_after_it_was_given_up_is_not_made() -> None:
    host = Host()
    assert not host.calls.drop("1")
    assert not host.calls.add(_request())


def test_a_result_that_is_there_stays_when_the_call_is_given_up_late() -> None:
    host = Host()
    host.calls.add(_request())
    host.calls.answer("1", DONE)
    assert not host.calls.drop("1")
    host.pass_time(1.0)
    host.calls.ask_on(_request(AwaitCall()))
    assert host.said == [DONE, DONE]


def test_progress_is_told_at_once_then_at_most_every_50_ms_and_the_last_before_the_result() -> None:
    host = Host()
    host.calls.add(_request())
    for number in range(1, 6):
        host.tell(number)
    assert host.said == [Progress("1/10", 0.1)]
    host.pass_time(0.05)
    assert host.said[1:] == [Progress("5/10", 0.5)]
    host.tell(6)
    host.tell(7)
    host.calls.answer("1", DONE)
    assert host.said[2:] == [Progress("7/10", 0.7), DONE]
    host.tell(8)
    host.pass_time(1.0)
    assert host.said[-1] == DONE


def test_a_flood_of_progress_sets_one_timer() -> None:
    host = Host()
    host.calls.add(_request())
    for number in range(1, 10_000):
        host.tell(number)
    assert len(host.timers) == 1


def test_a_lost_server_answers_every_call_once() -> None:
    host = Host()
    host.calls.add(_request())
    host.calls.answer_all(DONE)
    host.calls.answer_all(DONE)
    assert host.said == [DONE]
