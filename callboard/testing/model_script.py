"""What the scripted model says: replies as data, and the rule that picks one for a request.

Decides which reply a request gets and which stream chunks it becomes. Pure: no socket, no clock, no thread.
The server that speaks them over HTTP is ``callboard.testing.model_server``; tests and examples build the
scripts.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

DEFAULT_CHUNK_CHARS = 8
MODEL_NAME = "scripted"


class ScriptError(ValueError):
    """A model script is not well formed; the message names the reply and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call that the model asks for. ``arguments`` is JSON text, sent as it stands, valid or not."""

    name: str
    arguments: str = "{}"
    call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply, or one way of failing.

    ``status`` other than 200 sends an error with ``error`` as its message, ``error_code`` and ``error_type``
    beside it, and ``retry_after`` as the header. ``delay_s`` passes before anything is sent, ``gap_s`` between
    chunks (None: the server's own).
    Counted in chunks already sent: ``cut_after`` closes the connection, ``error_after`` sends the error as
    an event in the stream, ``hang_after`` sends nothing more until the client leaves; 0 does so straight
    after the headers. A reply that is not streamed, having no chunks, is cut in the middle of its body, is
    the error in a 200, or hangs before its body. ``raw_chunks`` replaces the chunks made from ``text`` and
    ``calls`` by objects sent as they are. ``whole`` answers a request for a stream by one object;
    ``usage=False`` reports none.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    status: int = 200
    error: str = "scripted error"
    error_code: str | int | None = None
    error_type: str = "scripted"
    retry_after: str | None = None
    delay_s: float = 0.0
    gap_s: float | None = None
    cut_after: int | None = None
    error_after: int | None = None
    hang_after: int | None = None
    finish_reason: str | None = None
    raw_chunks: tuple[Mapping[str, Any], ...] | None = None
    whole: bool = False
    usage: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRequest:
    """A chat request as it came in; header names are in lower case."""

    body: JsonObject
    headers: Mapping[str, str]

    @property
    def messages(self) -> list[JsonObject]:
        """Give the messages of the request."""
        return list(self.body.get("messages") or [])

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Give the names of the tools that were offered."""
        return tuple(tool["function"]["name"] for tool in self.body.get("tools") or [])

    @property
    def last_user_text(self) -> str:
        """Give the text of the last user message, "" where there is none."""
        texts = [message_text(m) for m in self.messages if m.get("role") == "user"]
        return texts[-1] if texts else ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """Give the texts of the tool messages since the last user message, in order."""
        results: list[str] = []
        for message in self.messages:
            if message.get("role") == "user":
                results.clear()
            elif message.get("role") == "tool":
                results.append(message_text(message))
        return tuple(results)


Rule: TypeAlias = Callable[[RecordedRequest], Reply]


def obey(request: RecordedRequest) -> Reply:
    """Do what the user's text says: the rule of a server without a script.

    Each line ``call NAME {json}`` asks for the tool if it is offered, ``force NAME {json}`` even if it is
    not; all of them in parallel, in the first step. The next step answers ``done: `` and the results,
    joined by `` | ``. A text without such lines is answered ``you said: `` and the text.
    """
    if request.tool_results:
        return Reply(text="done: " + " | ".join(request.tool_results))
    calls = tuple(_commanded_calls(request.last_user_text, request.tool_names))
    return Reply(calls=calls) if calls else Reply(text="you said: " + request.last_user_text)


class ModelScript:
    """Picks each request's reply: the listed ones in order, then those of ``rule``. Safe between threads."""

    def __init__(self, replies: Sequence[Reply] = (), rule: Rule = obey) -> None:
        self._replies = iter(tuple(replies))
        self._rule = rule
        self._lock = threading.Lock()

    def reply_to(self, request: RecordedRequest) -> Reply:
        """Give the next listed reply, or ask the rule when all are used up."""
        with self._lock:
            listed = next(self._replies, None)
        return listed if listed is not None else self._rule(request)

    @classmethod
    def from_json(cls, value: Any) -> ModelScript:
        """Read ``{"replies": [...]}`` or the bare list; each reply has Reply's fields, each call Call's.

        Raises ScriptError. After the listed replies the script obeys the user's text.
        """
        replies = value.get("replies") if isinstance(value, Mapping) else value
        if not isinstance(replies, list):
            raise ScriptError('a model script is a list of replies, or an object with "replies"')
        return cls([_reply_from_json(reply, position) for position, reply in enumerate(replies)])


def stream_chunks(
    request: RecordedRequest, reply: Reply, reply_id: str, chunk_chars: int
) -> Iterator[Mapping[str, Any]]:
    """Give the chunks of a streamed reply: role, text in pieces, calls in fragments, finish reason, usage.

    The usage chunk comes only when the request asks for it; ``raw_chunks`` are given as they are, alone.
    """
    if reply.raw_chunks is not None:
        yield from reply.raw_chunks
        return
    for delta in _deltas(reply, reply_id, chunk_chars):
        yield _envelope(request, reply_id, [{"index": 0, "delta": delta, "finish_reason": None}])
    finish = [{"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}]
    yield _envelope(request, reply_id, finish)
    if reply.usage and (request.body.get("stream_options") or {}).get("include_usage"):
        yield _envelope(request, reply_id, []) | {"usage": usage_of(request, reply)}


def completion(request: RecordedRequest, reply: Reply, reply_id: str) -> JsonObject:
    """Give the reply as one object, for a request that does not stream."""
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_call_json(call, reply_id, n) for n, call in enumerate(reply.calls)]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    whole = _envelope(request, reply_id, [choice]) | {"object": "chat.completion"}
    return whole | ({"usage": usage_of(request, reply)} if reply.usage else {})


def error_object(reply: Reply) -> JsonObject:
    """Give the reply's error as endpoints send it."""
    return {"error": {"message": reply.error, "type": reply.error_type, "code": reply.error_code}}


def usage_of(request: RecordedRequest, reply: Reply) -> JsonObject:
    """Count tokens roughly, four characters each; the same request and reply always give the same counts."""
    prompt = sum(len(message_text(message)) for message in request.messages) // 4 + 1
    answer = (len(reply.text) + sum(len(call.arguments) + len(call.name) for call in reply.calls)) // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def message_text(message: Mapping[str, Any]) -> str:
    """Give a message's text, whether its content is a string or a list of parts."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _commanded_calls(text: str, offered: Sequence[str]) -> Iterator[Call]:
    for line in text.splitlines():
        verb, _, rest = line.strip().partition(" ")
        name, _, arguments = rest.strip().partition(" ")
        if (verb == "call" and name in offered) or (verb == "force" and name):
            yield Call(name=name, arguments=arguments.strip() or "{}")


def _deltas(reply: Reply, reply_id: str, chunk_chars: int) -> Iterator[JsonObject]:
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(reply.text, chunk_chars):
        yield {"content": piece}
    for position, call in enumerate(reply.calls):
        opening = _call_json(call, reply_id, position)
        opening["function"]["arguments"] = ""
        yield {"tool_calls": [{"index": position, **opening}]}
        for piece in _pieces(call.arguments, chunk_chars):
            yield {"tool_calls": [{"index": position, "function": {"arguments": piece}}]}


def _call_json(call: Call, reply_id: str, position: int) -> JsonObject:
    call_id = call.call_id if call.call_id is not None else f"{reply_id}-call-{position + 1}"
    return {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _envelope(request: RecordedRequest, reply_id: str, choices: list[JsonObject]) -> JsonObject:
    model = str(request.body.get("model") or MODEL_NAME)
    kind = "chat.completion.chunk"
    return {"id": reply_id, "object": kind, "created": 0, "model": model, "choices": choices}


def _finish_reason(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def _pieces(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _reply_from_json(value: Any, position: int) -> Reply:
    where = f"reply {position + 1} of the model script"
    fields = _known_fields(value, Reply, where)
    if "calls" in fields:
        fields["calls"] = tuple(_call_from_json(call, where) for call in fields["calls"])
    if fields.get("raw_chunks") is not None:
        fields["raw_chunks"] = tuple(fields["raw_chunks"])
    return Reply(**fields)


def _call_from_json(value: Any, where: str) -> Call:
    fields = _known_fields(value, Call, f"a call of {where}")
    if "name" not in fields:
        raise ScriptError(f"a call of {where} lacks its name")
    if not isinstance(fields.get("arguments", ""), str):
        fields["arguments"] = json.dumps(fields["arguments"])
    return Call(**fields)


def _known_fields(value: Any, kind: type[Reply] | type[Call], where: str) -> JsonObject:
    if not isinstance(value, Mapping):
        raise ScriptError(f"{where} is not an object")
    names = [field.name for field in dataclasses.fields(kind)]
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise ScriptError(f"{where} has unknown fields {unknown}; known are {names}")
    return dict(value)
