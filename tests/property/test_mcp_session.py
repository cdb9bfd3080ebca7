"""McpSession under random servers: it never raises, and every call has exactly one ending."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.transports.mcp_session import (
    CallFailed,
    CallResult,
    Effect,
    Era,
    McpSession,
    Send,
    SessionLimits,
)

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}}
INITIALIZED = {"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}, "serverInfo": {}}
PAGE = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
RESULTS = [DISCOVERED, INITIALIZED, PAGE, {**PAGE, "nextCursor": ""}, {"content": []}, {}, None, 7]

ids = st.integers(1, 12) | st.integers(1, 12).map(str) | st.sampled_from([None, 3.0, "x", True, [1]])
answers = st.builds(lambda i, r: {"jsonrpc": "2.0", "id": i, "result": r}, ids, st.sampled_from(RESULTS))
errors = st.builds(
    lambda i, c: {"jsonrpc": "2.0", "id": i, "error": {"code": c, "message": "m"}},
    ids,
    st.sampled_from([-32601, -32602, -32022, -32020, 0]),
)
told = st.sampled_from(
    [
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 4, "progress": 1}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 3},
        {"level": "info"},
    ]
)
lines = (answers | errors | told | st.lists(answers, max_size=3)).map(lambda m: json.dumps(m).encode())
steps = st.one_of(
    st.tuples(st.just("line"), lines | st.binary(max_size=20)),
    st.tuples(st.just("good answer"), st.just(None)),
    st.tuples(st.just("good answer"), st.just(None)),
    st.tuples(st.just("call"), st.floats(0, 20)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.floats(0, 30)),
)
GOOD: dict[str, Any] = {
    "server/discover": DISCOVERED,
    "initialize": INITIALIZED,
    "tools/list": PAGE,
    "tools/call": {"content": []},
}


class Run:
    def __init__(self, era: Era) -> None:
        self.session = McpSession(era=era, limits=SessionLimits(max_calls=4))
        self.now, self.calls = 0.0, 0
        self.open: list[dict[str, Any]] = []
        self.endings: Counter[object] = Counter()
        self.take(self.session.start(self.now))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(data):
                    message = json.loads(data)
                    if "id" in message and "method" in message:
                        self.open.append(message)
                case CallResult() | CallFailed():
                    self.endings[effect.ref] += 1

    def step(self, kind: str, value: Any) -> None:
        session, now = self.session, self.now
        match kind:
            case "line":
                self.take(session.received(value, now))
            case "good answer" if self.open:
                message = self.open.pop(0)
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": GOOD.get(message["method"], {})}
                self.take(session.received(json.dumps(answer).encode(), now))
            case "call":
                self.calls += 1
                self.take(session.call_tool(self.calls - 1, "t", {}, now, value, progress=True))
            case "cancel":
                self.take(session.cancel(value, now))
            case "wait":
                self.now += value
                self.take(session.tick(self.now))


@given(st.sampled_from(Era), st.lists(steps, max_size=40))
def test_every_call_ends_exactly_once_whatever_the_server_does(
    era: Era, script: list[tuple[str, Any]]
) -> None:
    run = Run(era)
    for kind, value in script:
        run.step(kind, value)
        assert all(count == 1 for count in run.endings.values())
    run.take(run.session.closed("gone", run.now))
    assert run.endings == Counter(range(run.calls))
    assert run.session.next_deadline() is None


@given(st.sampled_from(Era), st.lists(steps, max_size=40))
def test_after_a_tick_no_deadline_lies_in_the_past(era: Era, script: list[tuple[str, Any]]) -> None:
    run = Run(era)
    for kind, value in script:
        run.step(kind, value)
        run.step("wait", 0.0)
        deadline = run.session.next_deadline()
        assert deadline is None or deadline > run.now
