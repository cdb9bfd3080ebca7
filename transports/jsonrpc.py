"""JSON-RPC 2.0 messages: from a line to a value, and from a value to a line.

It decides what a line means, however odd the line is: nothing that a peer sends raises here. It keeps no
state and matches no ids; the MCP session does. What it mends, so that it cannot poison what stores it later:
NaN and infinite numbers become null, lone surrogates become U+FFFD.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.transports.errors import NotSerialisable

MAX_DEPTH = 200
MAX_BATCH = 1000
EXCERPT_CHARS = 200

JsonId: TypeAlias = str | int | float

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603


@dataclass(frozen=True, slots=True)
class Request:
    """The peer asks, and must be answered under the same ``id``."""

    id: JsonId
    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """The peer tells, and must not be answered."""

    method: str
    params: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Response:
    """The peer's good answer. ``id`` is as the peer wrote it; compare with ``own_id``."""

    id: JsonId
    result: Any


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The peer's error. ``id`` is None where the peer could not read ours."""

    id: JsonId | None
    code: int
    message: str
    data: Any = None


@dataclass(frozen=True, slots=True)
class Malformed:
    """Not a message. ``answers`` is the id that it seems to answer, so that its request can fail at once."""

    reason: str
    excerpt: str
    answers: JsonId | None = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse | Malformed


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one line held: its messages in order; if they came as a batch; what else stood on the line."""

    messages: tuple[Message, ...]
    batch: bool = False
    garbage: str = ""


def decode(line: bytes) -> Decoded:
    """Read one line. Never raises: what cannot be read is a ``Malformed`` value."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as fault:
        return _undecodable(line, fault)
    text = _mend_surrogates(text)
    try:
        value = _parse(text)
    except _TooDeep as fault:
        return _malformed(str(fault), text, _message(fault.value, text))
    except RecursionError:
        return _malformed(f"nested deeper than {MAX_DEPTH} levels", text)
    except ValueError as fault:
        return _salvage(text, f"not JSON: {fault}")
    if isinstance(value, list) and value:
        return _batch(value, text)
    return Decoded((_message(value, text),))


def own_id(value: JsonId | None) -> int | None:
    """Give the integer id that ``value`` stands for, or None: peers return our 3 as 3, "3" or 3.0."""
    match value:
        case bool() | None:
            return None
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if value.isascii() and value.isdigit() and len(value) <= 18:
            return int(value)
    return None


def encode_request(request_id: int, method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Write a request as one line with its end; raises NotSerialisable."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, **_with_params(params)})


def encode_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """Write a notification as one line with its end; raises NotSerialisable."""
    return _encode({"jsonrpc": "2.0", "method": method, **_with_params(params)})


def encode_response(request_id: JsonId, result: Any) -> bytes:
    """Write the answer to the peer's request, echoing its id as it came; raises NotSerialisable."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: JsonId | None, code: int, message: str) -> bytes:
    """Write an error answer to the peer's request."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def excerpt(text: str) -> str:
    """Shorten text from a peer for a log line: bounded, without what could steer a terminal."""
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:EXCERPT_CHARS])
    return shown + "…" if len(text) > EXCERPT_CHARS else shown


def _with_params(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if params is None else {"params": params}


def _encode(message: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as fault:
        raise NotSerialisable(f"not a JSON value: {fault}") from fault
    return text.encode("utf-8", "replace") + b"\n"


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class _TooDeep(ValueError):
    def __init__(self, value: Any) -> None:
        super().__init__(f"nested deeper than {MAX_DEPTH} levels")
        self.value = value


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=lambda _: None)


def _mend_surrogates(text: str) -> str:
    if "\\ud" not in text and "\\uD" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\\ufffd" if found["lone"] else found[0], text)


def _parse(text: str) -> Any:
    value: Any = _DECODER.decode(text)
    if text.count("[") + text.count("{") > MAX_DEPTH and not _is_shallow(value):
        raise _TooDeep(value)
    return value


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node) if isinstance(child, (dict, list))]
        if not level:
            return True
    return False


def _children(node: Any) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def _batch(values: list[Any], text: str) -> Decoded:
    if len(values) > MAX_BATCH:
        return Decoded((Malformed(f"a batch of more than {MAX_BATCH} messages", excerpt(text)),), batch=True)
    return Decoded(tuple(_message(value, text) for value in values), batch=True)


def _message(value: Any, text: str) -> Message:
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return Malformed("not a JSON-RPC 2.0 message", excerpt(text))
    message_id = value.get("id")
    if not _is_id(message_id):
        return Malformed("an id that is neither string nor number", excerpt(text))
    if "method" in value:
        return _call(value, message_id, text)
    if value.get("error") is not None:
        return _error(value["error"], message_id)
    if message_id is None:
        return Malformed("a result without an id", excerpt(text))
    if "result" in value:
        return Response(message_id, value["result"])
    return Malformed("neither method, result nor error", excerpt(text), answers=message_id)


def _is_id(value: Any) -> bool:
    return value is None or (isinstance(value, (str, int, float)) and not isinstance(value, bool))


def _call(value: dict[str, Any], message_id: JsonId | None, text: str) -> Message:
    method, params = value["method"], value.get("params")
    if not isinstance(method, str):
        return Malformed("a method that is not a string", excerpt(text))
    if not isinstance(params, dict):
        params = {}
    if "id" not in value:
        return Notification(method, params)
    if message_id is None:
        return Malformed("a request whose id is null", excerpt(text))
    return Request(message_id, method, params)


def _error(error: Any, message_id: JsonId | None) -> ErrorResponse:
    if not isinstance(error, dict):
        return ErrorResponse(message_id, INTERNAL_ERROR, excerpt(str(error)))
    code, message = error.get("code"), error.get("message")
    return ErrorResponse(
        message_id,
        code if isinstance(code, int) and not isinstance(code, bool) else INTERNAL_ERROR,
        message if isinstance(message, str) else "",
        error.get("data"),
    )


def _undecodable(line: bytes, fault: UnicodeDecodeError) -> Decoded:
    text = line.decode("utf-8", "replace")
    reason = f"not UTF-8: byte 0x{line[fault.start]:02x} at offset {fault.start}"
    return _malformed(reason, text, decode(text.encode("utf-8")).messages[0])


def _malformed(reason: str, text: str, seen: Message | None = None) -> Decoded:
    answers = seen.id if isinstance(seen, (Response, ErrorResponse)) else None
    return Decoded((Malformed(reason, excerpt(text), answers),))


_MESSAGE_START = re.compile(r'\{\s*"(?:jsonrpc|id|method|params|result|error)"')
_SALVAGE_ATTEMPTS = 8


def _salvage(text: str, reason: str) -> Decoded:
    # A banner without an end of line glues itself to the first message; two writers may glue two messages.
    # Requests are left out: a server that logs to stdout what it received would have us answer ourselves.
    found: list[Message] = []
    garbage, position = "", 0
    for _ in range(_SALVAGE_ATTEMPTS):
        candidate = _MESSAGE_START.search(text, position)
        if candidate is None:
            break
        message, end = _message_at(text, candidate.start())
        if message is None:
            end = candidate.start() + 1
        else:
            found.append(message)
        garbage += text[position : candidate.start() if message else end][:EXCERPT_CHARS]
        position = end
    if not found:
        return _malformed(reason, text)
    return Decoded(tuple(found), garbage=excerpt(garbage + text[position : position + EXCERPT_CHARS]))


def _message_at(text: str, start: int) -> tuple[Message | None, int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    message = _message(value, text)
    if isinstance(message, (Request, Malformed)) or not _is_shallow(value):
        return None, start
    return message, end
