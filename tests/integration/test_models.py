"""The model's side of a whole system: limits shared by all model actors, the context window, models of one's own."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import callboard
from callboard.actors.events import ContextTrimmed, Event, StepFinished, TurnAnswered, TurnFailed
from callboard.actors.names import model_actor
from callboard.api import System
from callboard.config import load_config
from callboard.testing.model_server import RecordedRequest, Reply, ScriptedModelServer
from callboard.testing.turns import eventually

pytestmark = pytest.mark.integration

MODELS = """
from callboard.actors.chat_model import Capabilities, ModelError, ModelReply, ModelTextDelta

class Parrot:
    capabilities = Capabilities(tools=False)

    def __init__(self, mark):
        self.mark = mark

    async def chat(self, context, tools):
        said = context[-1].content[0].text
        if said == "raise":
            raise ZeroDivisionError("of all things")
        if said == "leave":
            raise SystemExit("goodbye")
        if said == "lie":
            yield "this is no event"
        if said == "sulk":
            raise ModelError("sulking", "not today", retryable=False)
        yield ModelTextDelta(said)
        yield ModelReply(text=said + self.mark)
"""


class Endpoint:
    """A rule for the scripted server that fails on demand and notes when it was asked."""

    def __init__(self, failing: Reply | None = None) -> None:
        self.failing = failing
        self.asked_at: list[float] = []

    def __call__(self, request: RecordedRequest) -> Reply:
        self.asked_at.append(time.monotonic())
        return self.failing or Reply(text="fine")


@pytest.fixture
def start_with(tmp_path: Path) -> Iterator[Callable[..., System]]:
    """Start a private system with these tables of a configuration file."""
    with ExitStack() as stack:

        def start(**tables: object) -> System:
            file = tmp_path / "callboard.json"
            file.write_text(json.dumps(tables), encoding="utf-8")
            return stack.enter_context(callboard.connect(config=load_config(file), private=True))

        yield start


def endpoint_table(server: ScriptedModelServer, **more: object) -> dict[str, object]:
    return {"kind": "openai", "base_url": server.base_url, "name": "scripted", **more}


def ask(system: System, text: str) -> list[Event]:
    return list(system.conversation(user="ann", team="red").ask(text))


def answer(events: list[Event]) -> str:
    assert isinstance(events[-1], TurnAnswered), events[-1]
    return events[-1].text


def failure(events: list[Event]) -> TurnFailed:
    assert isinstance(events[-1], TurnFailed), events[-1]
    return events[-1]


def test_the_wish_to_be_left_alone_holds_back_every_conversation(start_with: Callable[..., System]) -> None:
    endpoint = Endpoint(Reply(status=429, retry_after="1.5"))
    with ScriptedModelServer(rule=endpoint) as server:
        system = start_with(model=endpoint_table(server))
        first = threading.Thread(target=ask, args=(system, "first"))
        first.start()
        eventually(lambda: endpoint.asked_at, what="the first request")
        endpoint.failing = None
        time.sleep(0.1)
        answers = [answer(ask(system, f"other {n}")) for n in range(4)]
        first.join(20)
    assert answers == ["fine"] * 4
    assert endpoint.asked_at[1] - endpoint.asked_at[0] > 1.3, "somebody did not wait"


def test_an_endpoint_that_fails_again_and_again_is_spared_and_tried_again(
    start_with: Callable[..., System],
) -> None:
    endpoint = Endpoint(Reply(status=500))
    with ScriptedModelServer(rule=endpoint) as server:
        system = start_with(model=endpoint_table(server))
        assert failure(ask(system, "one")).reason == "model_server_error"
        two = ask(system, "two")
        assert len(endpoint.asked_at) <= 7, "5 failures open it, and a probe or two may follow"
        assert failure(two).reason in ("model_server_error", "model_unavailable")
        endpoint.failing = None
        assert answer(ask(system, "three")) == "fine"
        before = time.monotonic()
        assert answer(ask(system, "four")) == "fine"
    assert time.monotonic() - before < 2.0, "it is closed again for all"


def test_without_the_limits_actor_calls_go_on(start_with: Callable[..., System]) -> None:
    with ScriptedModelServer(rule=Endpoint()) as server:
        system = start_with(model=endpoint_table(server))
        (row,) = [row for row in system.tree() if row.id == "limits"]
        assert row.pid is not None
        os.kill(row.pid, signal.SIGSTOP)
        assert answer(ask(system, "while it is stopped")) == "fine"
        os.kill(row.pid, signal.SIGKILL)
        assert answer(ask(system, "while it is dead")) == "fine"
        eventually(lambda: [r.state for r in system.tree() if r.id == "limits"] == ["running"])
        assert answer(ask(system, "when it is back")) == "fine"


def test_an_endpoint_that_cannot_stream_serves_a_whole_turn_and_usage_is_recorded_per_step(
    start_with: Callable[..., System],
) -> None:
    with ScriptedModelServer() as server:
        system = start_with(model=endpoint_table(server, stream=False))
        events = ask(system, 'call calculate {"expression": "2+2"}')
        assert [request.body["stream"] for request in server.requests] == [False, False]
    assert answer(events).startswith("done: ")
    steps = [event for event in events if isinstance(event, StepFinished)]
    assert len(steps) == 2
    assert all(step.usage.input_tokens > 0 and step.usage.output_tokens > 0 for step in steps)


def test_a_conversation_longer_than_the_window(start_with: Callable[..., System]) -> None:
    plain = {"tools": [], "system_prompt": "Be brief."}
    templates = {"error": plain | {"context_policy": "error"}, "trim": plain}
    with ScriptedModelServer() as server:
        table = endpoint_table(server, context_tokens=1000, reserve_tokens=100)
        system = start_with(model=table, templates=templates)
        last = {}
        for template in templates:
            conversation = system.conversation(user="ann", team="red", template=template)
            for number in range(4):
                last[template] = list(conversation.ask(f"{number}: " + "word " * 150))
        asked = server.requests
    assert failure(last["error"]).reason == "context_window"
    assert answer(last["trim"]).startswith("you said: 3: word")
    (trimmed,) = [event for event in last["trim"] if isinstance(event, ContextTrimmed)]
    assert (trimmed.step, trimmed.limit) < (2, 1000)
    assert trimmed.left_out_items == 8 - len(asked[-1].messages)
    assert [message["role"] for message in asked[-1].messages][:2] == ["system", "user"]
    kinds = [event.type for event in last["trim"] if event.seq is not None]
    assert kinds.index("context_trimmed") + 1 == kinds.index("step_finished")


def test_a_model_of_ones_own(start_with: Callable[..., System], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(MODELS, encoding="utf-8")
    system = start_with(model={"class": "./own.py:Parrot", "options": {"mark": "!"}})
    assert answer(ask(system, "hello")) == "hello!"
    for said, reason, says in [
        ("raise", "model_bug", "ZeroDivisionError: of all things"),
        ("leave", "model_bug", "SystemExit: goodbye"),
        ("lie", "model_bug", "expected ModelTextDelta"),
        ("sulk", "model_sulking", "not today"),
    ]:
        failed = failure(ask(system, said))
        assert failed.reason == reason
        assert says in failed.message
    pids = {row.id: row.restarts for row in system.tree() if row.id in (model_actor(0), model_actor(1))}
    assert set(pids.values()) == {0}, "no bug in a model ends its actor"
    assert answer(ask(system, "still there")) == "still there!"


def test_a_model_that_cannot_be_loaded_fails_turns_and_says_why(
    start_with: Callable[..., System], tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(MODELS, encoding="utf-8")
    system = start_with(model={"class": "./own.py:Parrot"})
    failed = failure(ask(system, "hello"))
    assert failed.reason == "model_not_loaded"
    assert "missing 1 required positional argument: 'mark'" in failed.message


def test_a_model_that_cannot_be_had_is_replaced_by_its_fallback_and_asked_again_later(
    start_with: Callable[..., System],
) -> None:
    first, second = Endpoint(Reply(status=503, text="busy")), Endpoint()
    with ScriptedModelServer(rule=first) as model, ScriptedModelServer(rule=second) as spare:
        fallback = {"base_url": spare.base_url, "name": "spare"}
        system = start_with(model=endpoint_table(model, fallback=fallback))
        events = ask(system, "hello")
        assert answer(events) == "fine"
        assert (len(first.asked_at), len(second.asked_at)) == (1, 1), "without a retry between them"
        first.failing = None
        assert answer(ask(system, "again")) == "fine"
        assert (len(first.asked_at), len(second.asked_at)) == (2, 1)


def test_a_request_that_the_model_rejects_is_not_tried_on_the_fallback(
    start_with: Callable[..., System],
) -> None:
    second = Endpoint()
    with (
        ScriptedModelServer(rule=Endpoint(Reply(status=401, text="no key"))) as model,
        ScriptedModelServer(rule=second) as spare,
    ):
        fallback = {"base_url": spare.base_url, "name": "spare"}
        system = start_with(model=endpoint_table(model, fallback=fallback))
        assert failure(ask(system, "hello")).reason == "model_rejected"
    assert not second.asked_at
