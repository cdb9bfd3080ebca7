"""JSON-RPC round trips, and no line that raises."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.transports.jsonrpc import (
    Decoded,
    ErrorResponse,
    Notification,
    Request,
    Response,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=4)
IDS = st.integers(0, 2**53) | TEXT


@given(st.integers(1, 2**53), TEXT, OBJECTS)
def test_a_request_and_a_notification_come_back_as_they_were(
    request_id: int, method: str, params: dict[str, Any]
) -> None:
    line = encode_request(request_id, method, params)
    assert line.count(b"\n") == 1
    assert decode(line) == Decoded((Request(request_id, method, params),))
    assert decode(encode_notification(method, params)) == Decoded((Notification(method, params),))


@given(IDS, JSON, st.integers(-(2**31), 2**31), TEXT)
def test_an_answer_comes_back_as_it_was(answer_id: int | str, result: Any, code: int, message: str) -> None:
    assert decode(encode_response(answer_id, result)) == Decoded((Response(answer_id, result),))
    expected = ErrorResponse(answer_id, code, message)
    assert decode(encode_error(answer_id, code, message)) == Decoded((expected,))


@given(st.binary(max_size=200))
def test_no_bytes_raise(line: bytes) -> None:
    assert decode(line).messages


@given(JSON, st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), JSON)
def test_no_json_raises(value: Any, key: str, other: Any) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "result": value, key: other}
    assert decode(json.dumps(message).encode()).messages
    assert decode(json.dumps(value).encode()).messages


@given(TEXT.filter(lambda text: "\n" not in text and "{" not in text), JSON)
def test_a_banner_never_hides_a_message(banner: str, result: Any) -> None:
    line = banner.encode() + encode_response(5, result)
    assert Response(5, result) in decode(line).messages
