"""Puts one reply together from the pieces of a chat-completion stream.

Decides which fragment belongs to which tool call, what counts as a whole reply, and which ids calls get. It
follows what endpoints really send (missing or reused indexes, repeated or empty ids, names in pieces,
``null`` arguments), not only what their specification says. Pure: no clock, no network, no openai;
``actors/openai_model.py`` feeds it. It never judges whether a tool exists or its arguments are valid: that
is the turn's business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard.actors.chat_model import ModelError, ModelReply, Usage
from callboard.actors.endpoint_errors import error_of_object, text_of
from callboard.actors.items import FunctionCall

MAX_REPLY_CHARS = 8 * 1024 * 1024
MAX_CALLS = 128
# Arguments of which nothing came before the reply was cut off: no JSON, so no turn runs them.
_CUT_OFF = "{"


@dataclass(slots=True)
class _OpenCall:
    index: int | None
    call_id: str
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def has_whole_arguments(self) -> bool:
        return self.pieces != [] and _is_json_object(self.arguments)


@dataclass(frozen=True, slots=True)
class _Fragment:
    index: int | None
    call_id: str
    name: str
    arguments: str


class StreamAssembly:
    """Assemble one reply: feed every chunk in order, then ask for the reply once.

    ``known_names`` are the tools that were offered: they settle whether a second name is a new call or the
    rest of the first name. ``taken_ids`` are call ids that the conversation has used; no call of this reply
    gets one of them. Not thread-safe; one instance serves one stream.
    """

    def __init__(self, known_names: Collection[str] = (), taken_ids: Collection[str] = ()) -> None:
        self._known_names = frozenset(known_names)
        self._taken_ids = set(taken_ids)
        self._text: list[str] = []
        self._calls: list[_OpenCall] = []
        self._chars = 0
        self._usage = Usage()
        self._model = ""
        self._finish_reason: str | None = None
        self._closing_usage_seen = False

    def feed(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk (a ``chat.completion.chunk`` object, or a whole ``chat.completion``); give its text.

        The text is "" where the chunk has none. Raises ModelError when the chunk is an error object, or
        when the reply grows beyond its bounds.
        """
        _raise_error_object(chunk)
        self._model = text_of(chunk.get("model")) or self._model
        choices = _mappings(chunk.get("choices"))
        self._take_usage(chunk.get("usage"), closing=not choices)
        if not choices:
            return ""
        choice = choices[0]
        self._finish_reason = text_of(choice.get("finish_reason")) or self._finish_reason
        delta = choice.get("delta") or choice.get("message")
        return self._take_delta(delta) if isinstance(delta, Mapping) else ""

    def finish(self) -> ModelReply:
        """Give the whole reply. Called once, after the stream's end.

        Raises ModelError: ``interrupted`` when the stream ended without a finish reason, ``bad_reply`` when
        a call has arguments and no name, ``rejected`` when a content filter left nothing. A stream without
        a finish reason still counts as whole when it closed with a usage chunk (no choices, only usage):
        endpoints send that one last, so nothing was cut off.
        """
        self._check_ending()
        return ModelReply(
            text="".join(self._text),
            calls=self._finished_calls(),
            usage=self._usage,
            model=self._model,
        )

    def _check_ending(self) -> None:
        if self._finish_reason is None and not self._closing_usage_seen:
            raise ModelError("interrupted", "the reply's stream ended before the reply did", retryable=True)
        if self._finish_reason == "error":
            raise ModelError("server_error", "the endpoint ended the reply with an error", retryable=True)
        if self._finish_reason == "content_filter" and not self._text and not self._calls:
            raise ModelError("rejected", "the endpoint's content filter withheld the reply", retryable=False)

    def _take_usage(self, usage: Any, closing: bool) -> None:
        if not isinstance(usage, Mapping):
            return
        self._usage = Usage(
            input_tokens=_count(usage.get("prompt_tokens")),
            output_tokens=_count(usage.get("completion_tokens")),
        )
        self._closing_usage_seen = closing

    def _take_delta(self, delta: Mapping[str, Any]) -> str:
        text = text_of(delta.get("content")) or text_of(delta.get("refusal"))
        if text:
            self._grow(len(text))
            self._text.append(text)
        entries = _mappings(delta.get("tool_calls"))
        for position, entry in enumerate(entries):
            fragment = _read_fragment(entry, position if len(entries) > 1 else None)
            self._take_fragment(fragment)
        return text

    def _take_fragment(self, fragment: _Fragment) -> None:
        call = self._call_for(fragment)
        if call is None:
            call = self._open_call(fragment)
        elif fragment.name != call.name:
            call.name += fragment.name
        call.call_id = call.call_id or fragment.call_id
        if fragment.arguments:
            self._grow(len(fragment.arguments))
            call.pieces.append(fragment.arguments)

    def _open_call(self, fragment: _Fragment) -> _OpenCall:
        if len(self._calls) >= MAX_CALLS:
            raise ModelError(
                "bad_reply", f"the reply asks for more than {MAX_CALLS} tool calls", retryable=True
            )
        call = _OpenCall(fragment.index, fragment.call_id, fragment.name)
        self._calls.append(call)
        return call

    def _call_for(self, fragment: _Fragment) -> _OpenCall | None:
        """Find the open call that the fragment continues; None when it begins a new one."""
        candidate = self._latest(fragment)
        if candidate is None or self._begins_anew(candidate, fragment):
            return None
        return candidate

    def _latest(self, fragment: _Fragment) -> _OpenCall | None:
        index, call_id = fragment.index, fragment.call_id
        if not call_id:
            return self._last(lambda call: index is None or call.index == index)
        named_by_id = self._last(
            lambda call: call.call_id == call_id and (None in (index, call.index) or call.index == index)
        )
        # An unknown id is a new call, unless the call at hand still waits for its id or the fragment has no
        # name.
        return named_by_id or self._last(
            lambda call: call.index == index and (not call.call_id or not fragment.name)
        )

    def _last(self, fits: Callable[[_OpenCall], bool]) -> _OpenCall | None:
        return next((call for call in reversed(self._calls) if fits(call)), None)

    def _begins_anew(self, call: _OpenCall, fragment: _Fragment) -> bool:
        if not fragment.name or not call.name:
            return False
        if call.has_whole_arguments:
            return fragment.arguments.strip() != "" or fragment.name != call.name
        if fragment.name == call.name:
            return False
        both_known = call.name in self._known_names and fragment.name in self._known_names
        return call.arguments != "" or both_known

    def _finished_calls(self) -> tuple[FunctionCall, ...]:
        finished: list[FunctionCall] = []
        cut_call = self._calls[-1] if self._calls and self._finish_reason == "length" else None
        for call in self._calls:
            blank = not call.arguments.strip()
            if not call.name and blank:
                continue
            if not call.name:
                raise ModelError("bad_reply", "the reply has a tool call without a name", retryable=True)
            finished.append(
                FunctionCall(
                    call_id=self._unused_id(call.call_id, len(finished) + 1),
                    tool=call.name,
                    arguments=_CUT_OFF if call is cut_call and blank else _or_empty_object(call.arguments),
                )
            )
        return tuple(finished)

    def _unused_id(self, wanted: str, position: int) -> str:
        call_id = stem = wanted or f"call_{position}"
        suffix = 2
        while call_id in self._taken_ids:
            call_id = f"{stem}_{suffix}"
            suffix += 1
        self._taken_ids.add(call_id)
        return call_id

    def _grow(self, chars: int) -> None:
        self._chars += chars
        if self._chars > MAX_REPLY_CHARS:
            raise ModelError(
                "bad_reply", f"the reply is longer than {MAX_REPLY_CHARS} characters", retryable=False
            )


def _raise_error_object(chunk: Mapping[str, Any]) -> None:
    if chunk.get("error"):
        raise error_of_object(chunk["error"])
    if "error" in (chunk.get("object"), chunk.get("type")):
        raise error_of_object(chunk)


def _read_fragment(entry: Mapping[str, Any], position: int | None) -> _Fragment:
    function = entry.get("function")
    if not isinstance(function, Mapping):
        function = {}
    index = entry.get("index")
    call_id = text_of(entry.get("id"))
    has_index = isinstance(index, int) and not isinstance(index, bool)
    return _Fragment(
        index=index if has_index else (None if call_id else position),
        call_id=call_id,
        name=text_of(function.get("name")),
        arguments=_arguments_text(function.get("arguments")),
    )


def _arguments_text(arguments: Any) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))


def _or_empty_object(arguments: str) -> str:
    return "{}" if arguments.strip() in ("", "null") else arguments


def _is_json_object(text: str) -> bool:
    if not text.rstrip().endswith("}"):
        return False
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
