"""JSON-RPC: every odd line has a meaning, and none raises."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from callboard.transports.errors import NotSerialisable
from callboard.transports.jsonrpc import (
    MAX_BATCH,
    MAX_DEPTH,
    Decoded,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    own_id,
)


def only(line: bytes | str) -> Message:
    (message,) = decode(line.encode() if isinstance(line, str) else line).messages
    return message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}',
            Request(id=1, method="m", params={"a": 1}),
        ),
        ('{"jsonrpc":"2.0","id":"x","method":"m"}', Request(id="x", method="m", params={})),
        ('{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', Request(id=1, method="m", params={})),
        ('{"jsonrpc":"2.0","method":"m","params":null}', Notification("m", {})),
        ('{"jsonrpc":"2.0","id":1,"result":{"a":[]}}', Response(1, {"a": []})),
        ('{"id":"3","result":null,"jsonrpc":"2.0"}', Response("3", None)),
        ('{"jsonrpc":"2.0","id":1,"error":null,"result":2}', Response(1, 2)),
        (
            '{"jsonrpc":"2.0","id":1,"error":{"code":-5,"message":"no","data":[7]}}',
            ErrorResponse(1, -5, "no", [7]),
        ),
        (
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}',
            ErrorResponse(None, -32700, "?"),
        ),
        ('{"jsonrpc":"2.0","error":{"code":"odd","message":7}}', ErrorResponse(None, -32603, "")),
        ('{"jsonrpc":"2.0","id":1,"error":"bad luck"}', ErrorResponse(1, -32603, "bad luck")),
        ('  {"jsonrpc":"2.0","id":1,"result":"tab\there"}  ', Response(1, "tab\there")),
    ],
)
def test_a_message_is_read(line: str, message: Message) -> None:
    assert decode(line.encode()) == Decoded((message,))


@pytest.mark.parametrize(
    ("line", "reason", "answers"),
    [
        (b"Server listening", "not JSON", None),
        (b'{"level":"info"}', "not a JSON-RPC 2.0 message", None),
        (b"null", "not a JSON-RPC 2.0 message", None),
        (b"123", "not a JSON-RPC 2.0 message", None),
        (b"[]", "not a JSON-RPC 2.0 message", None),
        (b'"text"', "not a JSON-RPC 2.0 message", None),
        (b'{"jsonrpc":"1.0","id":1,"result":1}', "not a JSON-RPC 2.0 message", None),
        (b'{"jsonrpc":"2.0","id":true,"result":1}', "an id that is neither", None),
        (b'{"jsonrpc":"2.0","id":[1],"result":1}', "an id that is neither", None),
        (b'{"jsonrpc":"2.0","id":null,"result":1}', "a result without an id", None),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', "a request whose id is null", None),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', "a method that is not a string", None),
        (b'{"jsonrpc":"2.0","id":7}', "neither method, result nor error", 7),
        (b'{"jsonrpc":"2.0","id":7,"result":"\xff"}', "not UTF-8: byte 0xff at offset 34", 7),
        (b'{"jsonrpc":"2.0","method":"\xff"}', "not UTF-8", None),
        (b'{"jsonrpc":"2.0","id":7,"result":' + b"[" * 300 + b"]" * 300 + b"}", "nested deeper", 7),
        (b"[" * 1_000_000, "nested deeper", None),
        (b'{"a":' * 1_000_000, "nested deeper", None),
        (b'{"jsonrpc":"2.0","id":7,"result":' + b"9" * 10_000 + b"}", "not JSON", None),
        (b'{"jsonrpc":"2.0","id":7,"result"', "not JSON", None),
    ],
)
def test_what_is_no_message_is_malformed_and_says_why(line: bytes, reason: str, answers: Any) -> None:
    message = only(line)
    assert isinstance(message, Malformed)
    assert message.reason.startswith(reason)
    assert message.answers == answers
    assert len(message.excerpt) <= 201


def test_nesting_up_to_the_bound_passes() -> None:
    brackets = MAX_DEPTH - 1
    assert isinstance(
        only('{"jsonrpc":"2.0","id":7,"result":' + "[" * brackets + "]" * brackets + "}"), Response
    )
    assert isinstance(
        only('{"jsonrpc":"2.0","id":7,"result":' + "[" * MAX_DEPTH + "]" * MAX_DEPTH + "}"), Malformed
    )


@pytest.mark.parametrize(
    ("line", "messages", "garbage"),
    [
        ('Listening {"jsonrpc":"2.0","id":1,"result":2}', (Response(1, 2),), "Listening "),
        ('Listening {"result":2,"jsonrpc":"2.0","id":1}', (Response(1, 2),), "Listening "),
        ('{"jsonrpc":"2.0","id":1,"res{"jsonrpc":"2.0","id":1,"result":2}', (Response(1, 2),), None),
        (
            '{"jsonrpc":"2.0","id":1,"result":2}{"jsonrpc":"2.0","method":"m"}',
            (Response(1, 2), Notification("m", {})),
            "",
        ),
        ('{"jsonrpc":"2.0","id":1,"result":2} done', (Response(1, 2),), " done"),
    ],
)
def test_a_message_glued_to_other_text_is_saved(
    line: str, messages: tuple[Message, ...], garbage: str | None
) -> None:
    decoded = decode(line.encode())
    assert decoded.messages == messages
    assert garbage is None or decoded.garbage == garbage


def test_our_own_request_in_a_log_line_on_stdout_is_not_taken_for_one_of_the_server() -> None:
    assert isinstance(only('DEBUG got {"jsonrpc":"2.0","id":1,"method":"tools/call"}'), Malformed)


def test_a_batch_is_read_in_order_with_its_bad_members() -> None:
    decoded = decode(b'[{"jsonrpc":"2.0","id":1,"result":2},7,{"jsonrpc":"2.0","method":"m"}]')
    assert decoded.batch
    first, bad, last = decoded.messages
    assert first == Response(1, 2) and last == Notification("m", {})
    assert isinstance(bad, Malformed)


def test_a_batch_without_end_is_refused() -> None:
    (message,) = decode(b"[" + b"1," * MAX_BATCH + b"1]").messages
    assert isinstance(message, Malformed) and "batch" in message.reason


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", None),
        ("[Infinity,-Infinity]", [None, None]),
        ("1e999", None),
        ("1.5e3", 1500.0),
        (r'"\ud800"', "\ufffd"),
        (r'"a\udc00b"', "a\ufffdb"),
        (r'"\ud83d\ude00"', "😀"),
        (r'"\\ud800"', r"\ud800"),
        (r'"\ud800\ud83d\ude00"', "\ufffd😀"),
    ],
)
def test_what_json_cannot_carry_on_is_mended(text: str, value: Any) -> None:
    assert only('{"jsonrpc":"2.0","id":1,"result":' + text + "}") == Response(1, value)


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (3, 3),
        ("3", 3),
        (3.0, 3),
        (3.5, None),
        ("x", None),
        ("", None),
        ("³", None),
        ("-3", None),
        (None, None),
        (True, None),
        (math.inf, None),
        ("9" * 10_000, None),
    ],
)
def test_ids_are_matched_leniently(given: Any, ours: int | None) -> None:
    assert own_id(given) == ours


def test_messages_are_written_as_one_compact_line() -> None:
    assert encode_request(1, "m", {"é": "\n"}) == (
        '{"jsonrpc":"2.0","id":1,"method":"m","params":{"é":"\\n"}}\n'.encode()
    )
    assert encode_request(1, "m") == b'{"jsonrpc":"2.0","id":1,"method":"m"}\n'
    assert encode_notification("n", {}) == b'{"jsonrpc":"2.0","method":"n","params":{}}\n'
    assert encode_response("x", {}) == b'{"jsonrpc":"2.0","id":"x","result":{}}\n'
    assert json.loads(encode_error(None, -1, "no"))["error"] == {"code": -1, "message": "no"}


def test_a_lone_surrogate_is_not_sent() -> None:
    assert json.loads(encode_response(1, "a\ud800b"))["result"] == "a?b"


@pytest.mark.parametrize("value", [math.nan, math.inf, {1, 2}, b"bytes", object()])
def test_what_has_no_json_form_is_refused_by_name(value: Any) -> None:
    with pytest.raises(NotSerialisable):
        encode_response(1, value)


def test_a_cycle_is_refused_by_name() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(NotSerialisable):
        encode_response(1, cycle)
