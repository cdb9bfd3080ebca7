"""Every way in which endpoints report a failure, and what it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.endpoint_errors import error_of_object, error_of_status, retry_after_s

OBJECTS: dict[str, tuple[Any, str, bool]] = {
    "a rate limit by type": ({"message": "m", "type": "rate_limit_error"}, "rate_limited", True),
    "a rate limit by number": ({"message": "m", "code": 429}, "rate_limited", True),
    "a spent quota": ({"message": "m", "code": "insufficient_quota"}, "rate_limited", False),
    "overloaded by type": ({"message": "m", "type": "overloaded_error"}, "overloaded", True),
    "overloaded by number": ({"message": "m", "code": 503}, "overloaded", True),
    "a bad request": ({"message": "m", "type": "invalid_request_error"}, "rejected", False),
    "a wrong key": ({"message": "m", "code": 401}, "rejected", False),
    "a server error": ({"message": "m", "type": "server_error"}, "server_error", True),
    "a text": ("it broke", "server_error", True),
    "nothing known": ({}, "server_error", True),
    "too long, OpenAI": (
        {"message": "m", "type": "invalid_request_error", "code": "context_length_exceeded"},
        "context_window",
        False,
    ),
    "too long, llama.cpp": (
        {"code": 400, "message": "m", "type": "exceed_context_size_error", "n_ctx": 4096},
        "context_window",
        False,
    ),
    "too long, in words": (
        {"message": "prompt is too long: 9000 tokens > 8192 maximum"},
        "context_window",
        False,
    ),
}


@pytest.mark.parametrize(("error", "kind", "retryable"), OBJECTS.values(), ids=OBJECTS.keys())
def test_an_error_object_has_its_kind(error: Any, kind: str, retryable: bool) -> None:
    found = error_of_object(error)
    assert (found.kind, found.retryable) == (kind, retryable)


STATUSES = [
    (400, {}, "rejected", False),
    (400, {"message": "This model's maximum context length is 8192 tokens."}, "context_window", False),
    (401, {}, "rejected", False),
    (403, {}, "rejected", False),
    (404, {}, "rejected", False),
    (408, {}, "timeout", True),
    (413, {"message": "input is too long"}, "context_window", False),
    (429, {}, "rate_limited", True),
    (429, {"code": "insufficient_quota"}, "rate_limited", False),
    (429, {"type": "insufficient_quota"}, "rate_limited", False),
    (500, {}, "server_error", True),
    (502, {}, "server_error", True),
    (503, {}, "overloaded", True),
    (529, {}, "overloaded", True),
]


@pytest.mark.parametrize(("status", "body", "kind", "retryable"), STATUSES)
def test_a_status_has_its_kind(status: int, body: dict[str, Any], kind: str, retryable: bool) -> None:
    found = error_of_status(status, body, "said", {}, 0.0)
    assert (found.kind, found.retryable) == (kind, retryable)
    assert str(status) in found.message


@pytest.mark.parametrize(
    ("message", "size"),
    [
        ("This model's maximum context length is 8192 tokens. However, you requested 9000.", 8192),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200000),
        ("context length exceeded", None),
    ],
)
def test_the_window_is_read_from_what_the_endpoint_says(message: str, size: int | None) -> None:
    found = error_of_object({"message": message, "code": 400})
    assert (found.kind, found.context_tokens) == ("context_window", size)


def test_a_window_stated_as_a_number_is_believed() -> None:
    error = {"code": 400, "message": "m", "type": "exceed_context_size_error", "n_ctx": 4096}
    assert error_of_object(error).context_tokens == 4096


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 90.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers, wall_now_s=10.0) == seconds
    assert error_of_status(429, {}, "", headers, 10.0).retry_after_s == seconds


@pytest.mark.parametrize(
    ("message", "seconds"),
    [("Rate limit reached. Please try again in 1.5s.", 1.5), ("try again in 250ms", 0.25), ("later", None)],
)
def test_a_wish_in_words_counts_where_there_is_no_header(message: str, seconds: float | None) -> None:
    assert error_of_object({"message": message, "code": 429}).retry_after_s == seconds
    assert error_of_status(429, {"message": message}, "", {}, 0.0).retry_after_s == seconds
    assert error_of_status(429, {"message": message}, "", {"retry-after": "9"}, 0.0).retry_after_s == 9.0


def test_a_message_is_bounded() -> None:
    assert len(error_of_object({"message": "x" * 10_000}).message) < 600
    assert len(error_of_status(500, {"message": "x" * 10_000}, "", {}, 0.0).message) < 600
