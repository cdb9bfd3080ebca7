from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from callboard.testing.model_script import ScriptError, obey
from callboard.testing.model_server import (
    Call,
    ModelScript,
    ModelServerError,
    RecordedRequest,
    Reply,
    ScriptedModelServer,
)

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("echo", "now")]


def request(*messages: tuple[str, Any], tools: Any = TOOLS) -> RecordedRequest:
    listed = [{"role": role, "content": content} for role, content in messages]
    return RecordedRequest(body={"messages": listed, "tools": tools}, headers={})


def post(base_url: str, body: Any, key: str = "k") -> tuple[int, dict[str, str], str]:
    """Post a chat request; give status, headers and body."""
    parts = urlsplit(base_url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=5)
    try:
        content = body if isinstance(body, bytes) else json.dumps(body)
        headers = {"authorization": f"Bearer {key}"}
        connection.request("POST", f"{parts.path}/chat/completions", content, headers)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read().decode()
    finally:
        connection.close()


def chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def test_offered_tools_that_the_text_names_are_called_in_parallel() -> None:
    reply = obey(request(("user", 'please\ncall echo {"a": 1}\n call now \ncall missing {}')))
    assert reply.calls == (Call(name="echo", arguments='{"a": 1}'), Call(name="now", arguments="{}"))


def test_a_tool_that_is_not_offered_is_called_only_by_force() -> None:
    assert obey(request(("user", "call missing"), tools=None)).text == "you said: call missing"
    assert obey(request(("user", "force missing [broken"), tools=None)).calls == (
        Call(name="missing", arguments="[broken"),
    )


def test_results_are_answered_and_then_forgotten() -> None:
    seen = [("user", "call echo"), ("assistant", None), ("tool", "one"), ("tool", "two")]
    assert obey(request(*seen)).text == "done: one | two"
    assert obey(request(*seen, ("assistant", "done"), ("user", "hello"))).text == "you said: hello"


def test_text_in_parts_is_read_too() -> None:
    assert obey(request(("user", [{"type": "text", "text": "hi"}]))).text == "you said: hi"
    assert obey(request()).text == "you said: "


def test_listed_replies_come_in_order_and_then_the_rule() -> None:
    script = ModelScript([Reply(text="1"), Reply(text="2")], rule=lambda request: Reply(text="rule"))
    assert [script.reply_to(request()).text for _ in range(4)] == ["1", "2", "rule", "rule"]


def test_a_script_is_read_from_json() -> None:
    calls = [{"name": "echo", "arguments": {"a": 1}}, {"name": "now"}]
    script = ModelScript.from_json({"replies": [{"calls": calls}, {"status": 429, "retry_after": "1"}]})
    assert script.reply_to(request()).calls == (
        Call(name="echo", arguments='{"a": 1}'),
        Call(name="now", arguments="{}"),
    )
    assert script.reply_to(request()).status == 429


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (7, "list of replies"),
        ({"answers": []}, "list of replies"),
        (["hi"], "reply 1 of the model script is not an object"),
        ([{}, {"txet": "hi"}], r"reply 2 .* unknown fields \['txet'\]; known are"),
        ([{"calls": [{"arguments": {}}]}], "lacks its name"),
    ],
)
def test_a_bad_script_is_named(value: Any, complaint: str) -> None:
    with pytest.raises(ScriptError, match=complaint):
        ModelScript.from_json(value)


def test_a_stream_is_events_with_a_done_at_the_end() -> None:
    with ScriptedModelServer([Reply(text="hello world")], chunk_chars=4) as server:
        options = {"stream": True, "stream_options": {"include_usage": True}}
        status, headers, body = post(server.base_url, chat("hi", **options))
    events = [line.removeprefix("data: ") for line in body.splitlines() if line]
    chunks = [json.loads(event) for event in events[:-1]]
    texts = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
    assert (status, headers["content-type"], events[-1]) == (200, "text/event-stream", "[DONE]")
    assert texts == ["", "hell", "o wo", "rld", ""]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_a_request_that_does_not_stream_gets_one_object() -> None:
    with ScriptedModelServer([Reply(text="hi", calls=(Call(name="echo"),))]) as server:
        whole = json.loads(post(server.base_url, chat("x"))[2])
    message = whole["choices"][0]["message"]
    assert (whole["object"], message["content"]) == ("chat.completion", "hi")
    assert message["tool_calls"][0]["function"] == {"name": "echo", "arguments": "{}"}


def test_an_error_reply_has_status_header_and_message() -> None:
    with ScriptedModelServer([Reply(status=429, retry_after="2", error="slow down")]) as server:
        status, headers, body = post(server.base_url, chat("x"))
    assert (status, headers["retry-after"]) == (429, "2")
    assert json.loads(body)["error"]["message"] == "slow down"


def test_requests_are_recorded() -> None:
    with ScriptedModelServer() as server:
        post(server.base_url, chat("one", tools=TOOLS))
        post(server.base_url, chat("two"), key="other")
        first, second = server.requests
    assert (first.last_user_text, first.tool_names) == ("one", ("echo", "now"))
    assert (second.last_user_text, second.headers["authorization"]) == ("two", "Bearer other")


def test_a_wrong_key_a_wrong_path_and_a_broken_body_are_refused() -> None:
    with ScriptedModelServer(api_key="k") as server:
        assert post(server.base_url, chat("x"), key="wrong")[0] == 401
        assert post(server.base_url + "/nowhere", chat("x"))[0] == 404
        assert post(server.base_url, b"{broken")[0] == 400
        assert post(server.base_url, chat("x"))[0] == 200
        assert len(server.requests) == 1


def test_what_is_not_http_is_refused_and_the_server_lives_on() -> None:
    with ScriptedModelServer() as server:
        port = urlsplit(server.base_url).port
        with socket.create_connection(("127.0.0.1", port), timeout=5) as raw:
            raw.sendall(b"garbage\r\n\r\n")
            assert b" 400 " in raw.recv(1000)
        assert post(server.base_url, chat("x"))[0] == 200


def test_stopping_ends_hanging_streams_and_the_thread() -> None:
    with ScriptedModelServer([Reply(hang_after=0)]) as server:
        port = urlsplit(server.base_url).port
        raw = socket.create_connection(("127.0.0.1", port), timeout=5)
        body = json.dumps(chat("x", stream=True)).encode()
        raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert b" 200 " in raw.recv(1000)
        started = time.monotonic()
    with raw:
        assert raw.recv(1000) == b""
    assert time.monotonic() - started < 2
    assert "scripted-model" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_port_that_is_taken_is_an_error_of_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = ScriptedModelServer(port=taken.getsockname()[1])
        with pytest.raises(ModelServerError, match="did not start"), server:
            raise AssertionError("it started")


def test_the_command_prints_its_url_writes_the_ready_file_and_ends_at_a_signal(tmp_path: Path) -> None:
    script, ready = tmp_path / "script.json", tmp_path / "ready"
    script.write_text(json.dumps([{"text": "scripted"}]))
    command = [sys.executable, "-m", "callboard.testing.model_server"]
    command += ["--script", str(script), "--ready-file", str(ready)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            base_url = server.stdout.readline().strip()
            assert "scripted" in post(base_url, chat("x"))[2]
            assert "you said: x" in post(base_url, chat("x"))[2]
            assert ready.read_text().strip() == base_url
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(10) == 0


def test_the_command_names_a_script_that_it_cannot_use(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"txet": "hi"}]')
    command = [sys.executable, "-m", "callboard.testing.model_server", "--script", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert str(script) in done.stderr and "txet" in done.stderr
