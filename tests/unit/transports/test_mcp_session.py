"""McpSession, event by event, against a scripted server that is only a list of lines."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from callboard.transports.mcp_session import (
    CallFailed,
    CallResult,
    Effect,
    Era,
    Failed,
    McpSession,
    NeedsRespawn,
    Note,
    Progress,
    Ready,
    Send,
    SessionLimits,
    ToolsChanged,
)

META = "io.modelcontextprotocol/"
TOOL = {"name": "t", "inputSchema": {"type": "object"}}
OTHER = {"name": "u", "inputSchema": {"type": "object"}}
UNKNOWN = {"code": -32601, "message": "Method not found"}


class Script:
    """A session and everything it said; ``say`` plays the server."""

    def __init__(self, era: Era = Era.AUTO, **limits: Any) -> None:
        self.session = McpSession(era=era, limits=SessionLimits(**limits))
        self.now = 100.0
        self.sent: list[dict[str, Any]] = []
        self.other: list[Effect] = []
        self.take(self.session.start(self.now))

    def take(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.data.endswith(b"\n") and effect.data.count(b"\n") == 1
                self.sent.append(json.loads(effect.data))
        new = [effect for effect in effects if not isinstance(effect, Send)]
        self.other += new
        return [effect for effect in new if not isinstance(effect, Note)]

    def say(self, message: Any) -> list[Effect]:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        return self.take(self.session.received(line, self.now))

    def result(self, result: Any, request_id: Any = None) -> list[Effect]:
        return self.say(
            {"jsonrpc": "2.0", "id": self.last_id if request_id is None else request_id, "result": result}
        )

    def error(self, error: Any, request_id: Any = None) -> list[Effect]:
        return self.say(
            {"jsonrpc": "2.0", "id": self.last_id if request_id is None else request_id, "error": error}
        )

    def notify(self, method: str, **params: Any) -> list[Effect]:
        return self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def wait(self, seconds: float) -> list[Effect]:
        self.now += seconds
        return self.take(self.session.tick(self.now))

    def call(self, ref: str, arguments: Any = None, deadline_s: float = 60.0, **more: Any) -> list[Effect]:
        return self.take(self.session.call_tool(ref, "t", arguments or {}, self.now, deadline_s, **more))

    @property
    def last_id(self) -> int:
        return int(next(message["id"] for message in reversed(self.sent) if "id" in message))

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "answer") for message in self.sent]

    @property
    def notes(self) -> list[str]:
        return [effect.text for effect in self.other if isinstance(effect, Note)]


def initialized(version: str = "2025-11-25", **more: Any) -> dict[str, Any]:
    capabilities = {"tools": {"listChanged": True}}
    return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "s"}, **more}


def discovered(**more: Any) -> dict[str, Any]:
    return {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "_meta": {META + "serverInfo": {"name": "s"}},
        **more,
    }


def legacy(version: str = "2025-11-25", **limits: Any) -> Script:
    script = Script(**limits)
    script.error(UNKNOWN)
    script.result(initialized(version))
    (ready,) = script.result({"tools": [TOOL]})
    assert isinstance(ready, Ready)
    return script


def modern(**limits: Any) -> Script:
    script = Script(**limits)
    script.result(discovered())
    (ready,) = script.result({"tools": [TOOL]})
    assert isinstance(ready, Ready)
    return script


def test_a_legacy_server_is_probed_then_initialized_then_listed() -> None:
    script = Script()
    script.error(UNKNOWN)
    script.result(initialized(instructions="Do."))
    ready = script.result({"tools": [TOOL]})
    assert ready == [Ready((TOOL,), {"name": "s"}, "2025-11-25", "Do.")]
    assert script.methods == ["server/discover", "initialize", "notifications/initialized", "tools/list"]
    assert script.sent[1]["params"]["protocolVersion"] == "2025-11-25"
    assert "_meta" not in script.sent[1]["params"] and "_meta" not in script.sent[3]["params"]
    assert script.session.era is Era.LEGACY and script.session.ready


def test_a_modern_server_gets_no_handshake_and_meta_on_every_request() -> None:
    script = modern()
    script.call("a")
    assert script.methods == ["server/discover", "tools/list", "tools/call"]
    assert all(
        message["params"]["_meta"][META + "protocolVersion"] == "2026-07-28" for message in script.sent
    )
    assert script.session.era is Era.MODERN


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_the_four_legacy_versions_are_accepted(version: str) -> None:
    assert legacy(version).session.ready


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", None, 7])
def test_another_version_in_initialize_fails(version: Any) -> None:
    script = Script()
    script.error(UNKNOWN)
    (failed,) = script.result(initialized(version))
    assert isinstance(failed, Failed)


def test_silence_on_the_probe_falls_back_and_is_noted() -> None:
    script = Script(probe_s=10)
    assert script.session.next_deadline() == 110.0
    script.wait(9.9)
    assert script.methods == ["server/discover"]
    script.wait(0.2)
    assert script.methods == ["server/discover", "initialize"]
    assert any("within 10 s" in note for note in script.notes)


def test_a_late_discovery_is_honoured_and_the_refused_initialize_ignored() -> None:
    script = Script()
    script.wait(10)
    script.result(discovered(), request_id=1)
    script.error({"code": -32022, "message": "modern"}, request_id=2)
    (ready,) = script.result({"tools": []})
    assert isinstance(ready, Ready) and ready.protocol_version == "2026-07-28"


def test_initialize_answered_first_wins_over_a_later_discovery() -> None:
    script = Script()
    script.wait(10)
    script.result(initialized())
    script.result(discovered(), request_id=1)
    (ready,) = script.result({"tools": []})
    assert isinstance(ready, Ready) and ready.protocol_version == "2025-11-25"
    assert script.session.counts["unmatched"] == 1


def test_a_refused_initialize_with_the_modern_code_goes_modern() -> None:
    script = Script()
    script.wait(10)
    script.error({"code": -32022, "message": "modern", "data": {"supported": ["2026-07-28"]}})
    assert script.methods[-1] == "server/discover"
    script.result(discovered())
    (ready,) = script.result({"tools": []})
    assert isinstance(ready, Ready)


def test_exit_on_the_probe_asks_for_a_fresh_legacy_process() -> None:
    script = Script()
    (again,) = script.take(script.session.closed("exit code 1", script.now))
    assert again == NeedsRespawn(Era.LEGACY, "exit code 1")
    fresh = Script(era=Era.LEGACY)
    assert fresh.methods == ["initialize"]
    assert fresh.take(fresh.session.closed("exit code 1", fresh.now)) == [Failed("exit code 1")]


def test_exit_after_the_fallback_asks_for_a_fresh_process_too() -> None:
    script = Script()
    script.error(UNKNOWN)
    (again,) = script.take(script.session.closed("gone", script.now))
    assert isinstance(again, NeedsRespawn)


def test_exit_while_listing_fails() -> None:
    script = Script(era=Era.LEGACY)
    script.result(initialized())
    assert script.take(script.session.closed("gone", script.now)) == [Failed("gone")]


def test_an_initialize_without_answer_fails_and_tells_of_prints_on_stdout() -> None:
    script = Script(era=Era.LEGACY, startup_s=60)
    script.say(b"Hello from my server!")
    (failed,) = script.wait(60)
    assert isinstance(failed, Failed)
    assert "within 60 s" in failed.reason and "Hello from my server!" in failed.reason
    assert "notifications/cancelled" not in script.methods


def test_an_error_without_id_ends_the_probe_at_once() -> None:
    script = Script()
    script.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "invalid"}})
    assert script.methods == ["server/discover", "initialize"]


def test_a_server_without_the_tools_capability_is_not_asked_for_tools() -> None:
    script = Script(era=Era.LEGACY)
    (ready,) = script.result(initialized(capabilities={"prompts": {}}))
    assert isinstance(ready, Ready) and ready.tools == ()
    assert "tools/list" not in script.methods


def test_all_pages_are_read_and_the_empty_cursor_is_sent() -> None:
    script = Script(era=Era.LEGACY)
    script.result(initialized())
    script.result({"tools": [TOOL], "nextCursor": ""})
    assert script.sent[-1]["params"] == {"cursor": ""}
    (ready,) = script.result({"tools": [OTHER]})
    assert isinstance(ready, Ready) and ready.tools == (TOOL, OTHER)


def test_an_expired_cursor_restarts_the_list_a_bounded_number_of_times() -> None:
    script = Script(era=Era.LEGACY)
    script.result(initialized())
    expired = {"code": -32602, "message": "bad cursor"}
    for _ in range(3):
        script.result({"tools": [TOOL], "nextCursor": "x"})
        assert script.error(expired) == []
        assert script.sent[-1]["params"] == {}
    script.result({"tools": [TOOL], "nextCursor": "x"})
    (failed,) = script.error(expired)
    assert isinstance(failed, Failed)


def test_a_refused_or_silent_or_senseless_first_list_fails() -> None:
    for way in ("error", "silence", "nonsense"):
        script = Script(era=Era.LEGACY, list_s=30)
        script.result(initialized())
        match way:
            case "error":
                (failed,) = script.error(UNKNOWN)
            case "silence":
                (failed,) = script.wait(30)
            case _:
                (failed,) = script.result({"tools": None})
        assert isinstance(failed, Failed) and "tools/list failed" in failed.reason


def test_a_bad_tool_is_dropped_with_a_note() -> None:
    script = Script(era=Era.LEGACY)
    script.result(initialized())
    (ready,) = script.result({"tools": [TOOL, {"name": "bad", "inputSchema": None}, OTHER, TOOL]})
    assert isinstance(ready, Ready) and ready.tools == (TOOL, OTHER)
    assert any("'bad'" in note for note in script.notes)
    assert any("second tool named 't'" in note for note in script.notes)


def test_list_changed_relists_once_however_often_it_comes() -> None:
    script = legacy(relist_delay_s=0.2)
    before = script.methods.count("tools/list")
    for _ in range(5):
        script.notify("notifications/tools/list_changed")
    assert script.session.next_deadline() == pytest.approx(script.now + 0.2)
    script.wait(0.2)
    for _ in range(5):
        script.notify("notifications/tools/list_changed")
    script.wait(0.2)
    assert script.methods.count("tools/list") == before + 1
    assert script.result({"tools": [TOOL, OTHER]}) == [ToolsChanged((TOOL, OTHER))]
    script.wait(0.2)
    assert script.methods.count("tools/list") == before + 2
    assert script.result({"tools": [TOOL, OTHER]}) == []


def test_a_failed_relist_keeps_the_tools_and_the_session() -> None:
    script = legacy()
    script.notify("notifications/tools/list_changed")
    script.wait(1)
    assert script.error(UNKNOWN) == []
    assert script.session.ready and "tools known before stay" in script.notes[-1]


def test_a_modern_server_that_announces_changes_is_listened_to() -> None:
    script = Script()
    script.result(discovered(capabilities={"tools": {"listChanged": True}}))
    script.result({"tools": [TOOL]})
    assert script.sent[-1]["method"] == "subscriptions/listen"
    assert script.sent[-1]["params"]["notifications"] == {"toolsListChanged": True}
    assert script.session.next_deadline() is None
    script.notify("notifications/tools/list_changed", _meta={META + "subscriptionId": script.last_id})
    script.wait(1)
    assert script.result({"tools": [OTHER]}) == [ToolsChanged((OTHER,))]


def test_a_call_has_its_result() -> None:
    script = legacy()
    script.call("a", {"x": 1})
    assert script.sent[-1]["params"] == {"name": "t", "arguments": {"x": 1}}
    content = [{"type": "text", "text": "hi"}]
    result = {"content": content, "structuredContent": {"a": 1}}
    assert script.result(result) == [CallResult("a", tuple(content), {"a": 1}, False)]
    assert script.session.next_deadline() is None


def test_calls_are_matched_by_id_in_any_order_and_any_spelling() -> None:
    script = legacy()
    ids = {}
    for ref in ("a", "b", "c"):
        script.call(ref)
        ids[ref] = script.last_id
    for ref, spelt in (("c", str(ids["c"])), ("a", float(ids["a"])), ("b", ids["b"])):
        (result,) = script.result({"content": []}, request_id=spelt)
        assert isinstance(result, CallResult) and result.ref == ref


def test_late_double_and_unknown_answers_are_dropped_and_counted() -> None:
    script = legacy()
    script.call("a")
    assert len(script.result({"content": []})) == 1
    assert script.result({"content": []}) == []
    assert script.error(UNKNOWN, request_id=999) == []
    assert script.result({}, request_id="odd") == []
    assert script.session.counts["unmatched"] == 3


def test_a_protocol_error_rejects_the_call() -> None:
    script = legacy()
    script.call("a")
    assert script.error({"code": -32602, "message": "Unknown tool: t"}) == [
        CallFailed("a", "rejected", "Unknown tool: t (code -32602)")
    ]


@pytest.mark.parametrize("make", [legacy, modern])
def test_a_deadline_cancels_at_the_server_and_fails_the_call_once(make: Any) -> None:
    script = make()
    script.call("a", deadline_s=5)
    request_id = script.last_id
    assert script.wait(4.9) == []
    (failed,) = script.wait(0.2)
    assert isinstance(failed, CallFailed) and (failed.ref, failed.kind) == ("a", "deadline")
    assert script.sent[-1]["method"] == "notifications/cancelled"
    assert script.sent[-1]["params"]["requestId"] == request_id
    assert script.result({"content": []}, request_id=request_id) == []


def test_cancel_tells_the_server_and_ends_the_call_once() -> None:
    script = legacy()
    script.call("a")
    request_id = script.last_id
    (failed,) = script.take(script.session.cancel("a", script.now))
    assert isinstance(failed, CallFailed) and failed.kind == "cancelled"
    assert script.sent[-1]["params"]["requestId"] == request_id
    assert script.take(script.session.cancel("a", script.now)) == []
    assert script.methods.count("notifications/cancelled") == 1


def test_no_time_left_sends_nothing() -> None:
    script = legacy()
    before = len(script.sent)
    (failed,) = script.call("a", deadline_s=0)
    assert isinstance(failed, CallFailed) and failed.kind == "deadline" and len(script.sent) == before


@pytest.mark.parametrize("arguments", [{"a": math.nan}, {"a": {1}}, {"a": b""}])
def test_arguments_without_json_form_fail_the_call_unsent(arguments: Any) -> None:
    script = legacy()
    before = len(script.sent)
    (failed,) = script.call("a", arguments)
    assert isinstance(failed, CallFailed) and failed.kind == "bad_arguments"
    assert len(script.sent) == before and script.session.next_deadline() is None


def test_a_call_before_ready_and_one_above_the_bound_are_unavailable() -> None:
    (failed,) = Script().call("a")
    assert isinstance(failed, CallFailed) and failed.kind == "unavailable"
    script = legacy(max_calls=2)
    script.call("a")
    script.call("b")
    (failed,) = script.call("c")
    assert isinstance(failed, CallFailed) and failed.kind == "unavailable"


def test_a_ref_in_flight_may_not_be_used_again_but_a_finished_one_may() -> None:
    script = legacy()
    script.call("a")
    with pytest.raises(ValueError, match="in flight"):
        script.call("a")
    script.result({"content": []})
    assert script.call("a") == []


def test_an_answer_that_cannot_be_read_fails_its_call_at_once() -> None:
    script = legacy()
    script.call("a")
    line = b'{"jsonrpc":"2.0","id":%d,"result":{"content":["\xff"]}}' % script.last_id
    (failed,) = script.say(line)
    assert isinstance(failed, CallFailed) and failed.kind == "bad_result" and "not UTF-8" in failed.message


def test_garbage_costs_its_line_and_notes_are_bounded() -> None:
    script = legacy(max_notes=10)
    script.call("a")
    for _ in range(100):
        script.say(b"DEBUG \xff")
        script.notify("notifications/message", level="info", data="x" * 10_000)
    assert len(script.notes) <= 10 and all(len(note) <= 1000 for note in script.notes)
    assert script.session.counts["garbage"] == 100
    assert len(script.result({"content": []})) == 1


def test_inbound_requests_are_answered_in_the_legacy_era_only() -> None:
    script = legacy()
    script.say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
    assert script.sent[-1] == {"jsonrpc": "2.0", "id": "p", "result": {}}
    script.say({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage", "params": {}})
    assert script.sent[-1]["id"] == 7 and script.sent[-1]["error"]["code"] == -32601
    script = modern()
    before = len(script.sent)
    script.say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
    assert len(script.sent) == before


def test_notifications_are_never_answered() -> None:
    script = legacy()
    before = len(script.sent)
    for method in ("notifications/cancelled", "notifications/odd", "notifications/progress", "x"):
        assert script.notify(method) == []
    assert len(script.sent) == before


def test_progress_reaches_who_asked_increases_and_stops_with_the_call() -> None:
    script = legacy()
    script.call("quiet")
    quiet = script.last_id
    script.call("a", progress=True)
    token = script.sent[-1]["params"]["_meta"]["progressToken"]
    assert token == script.last_id
    assert script.notify("notifications/progress", progressToken=token, progress=1, total=3) == [
        Progress("a", 1.0, 3.0, None)
    ]
    assert script.notify("notifications/progress", progressToken=token, progress=1) == []
    assert script.notify("notifications/progress", progressToken=str(token), progress=2) != []
    assert script.notify("notifications/progress", progressToken=quiet, progress=1) == []
    assert script.notify("notifications/progress", progressToken=[1], progress=1) == []
    script.result({"content": []})
    assert script.notify("notifications/progress", progressToken=token, progress=3) == []
    assert script.session.counts["progress_dropped"] == 4


def test_progress_of_a_modern_call_keeps_the_protocols_meta() -> None:
    script = modern()
    script.call("a", progress=True)
    meta = script.sent[-1]["params"]["_meta"]
    assert meta["progressToken"] == script.last_id and META + "protocolVersion" in meta


@pytest.mark.parametrize(("version", "noted"), [("2025-03-26", False), ("2025-11-25", True)])
def test_a_batch_is_read_and_noted_where_the_version_has_none(version: str, noted: bool) -> None:
    script = legacy(version)
    script.call("a")
    first = script.last_id
    script.call("b")
    batch = [{"jsonrpc": "2.0", "id": i, "result": {"content": []}} for i in (first, script.last_id)]
    assert [e.ref for e in script.say(batch) if isinstance(e, CallResult)] == ["a", "b"]
    assert any("batch" in note for note in script.notes) is noted


def test_the_end_of_the_connection_fails_every_call_and_silences_the_session() -> None:
    script = legacy()
    script.call("a")
    script.call("b")
    ended = script.take(script.session.closed("killed by SIGKILL", script.now))
    assert ended == [CallFailed(ref, "closed", "killed by SIGKILL") for ref in ("a", "b")]
    assert script.session.next_deadline() is None and not script.session.ready
    assert script.notify("notifications/tools/list_changed") == []
    assert script.wait(1000) == []
    assert script.take(script.session.closed("again", script.now)) == []
    (failed,) = script.call("c")
    assert isinstance(failed, CallFailed) and failed.kind == "unavailable"


def test_a_session_starts_once() -> None:
    script = Script()
    with pytest.raises(ValueError, match="starts once"):
        script.session.start(0.0)
