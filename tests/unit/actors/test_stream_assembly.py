from __future__ import annotations

from typing import Any

import pytest

from callboard.actors import stream_assembly
from callboard.actors.chat_model import ModelError, ModelReply, Usage
from callboard.actors.endpoint_errors import error_of_object
from callboard.actors.stream_assembly import StreamAssembly

Fragment = dict[str, Any]


def part(
    arguments: Any = None, name: str | None = None, call_id: str | None = None, index: int | None = None
) -> Fragment:
    """A tool-call fragment with only the fields that are given."""
    function = {"name": name, "arguments": arguments}
    entry: Fragment = {"function": {key: value for key, value in function.items() if value is not None}}
    if call_id is not None:
        entry["id"] = call_id
    if index is not None:
        entry["index"] = index
    return entry


def delta_chunk(**delta: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def finish_chunk(reason: str = "tool_calls") -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def usage_chunk(prompt: int, completion: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}


def assemble(*chunks: dict[str, Any], known: tuple[str, ...] = (), taken: tuple[str, ...] = ()) -> ModelReply:
    assembly = StreamAssembly(known_names=known, taken_ids=taken)
    for chunk in chunks:
        assembly.feed(chunk)
    return assembly.finish()


def calls_of(
    *fragments: Fragment | list[Fragment], known: tuple[str, ...] = ()
) -> list[tuple[str, str, str]]:
    """Feed each fragment, or list of them, as a chunk; give (id, tool, arguments) of the calls."""
    chunks = [delta_chunk(tool_calls=f if isinstance(f, list) else [f]) for f in fragments]
    reply = assemble(*chunks, finish_chunk(), known=known)
    return [(call.call_id, call.tool, call.arguments) for call in reply.calls]


A, B = ("x", "a", '{"n":1}'), ("y", "b", '{"n":2}')
STREAMS: dict[str, tuple[list[Fragment | list[Fragment]], list[tuple[str, str, str]]]] = {
    "one call whole": ([part('{"n":1}', "a", "x", 0)], [A]),
    "arguments in fragments": (
        [part("", "a", "x", 0), part('{"n"', index=0), part(":1", index=0), part("}", index=0)],
        [A],
    ),
    "interleaved by index": (
        [
            part("", "a", "x", 0),
            part("", "b", "y", 1),
            part('{"n":', index=0),
            part('{"n":', index=1),
            part("1}", index=0),
            part("2}", index=1),
        ],
        [A, B],
    ),
    "interleaved by id, without indexes": (
        [
            part('{"n":', "a", "x"),
            part('{"n":', "b", "y"),
            part("1}", call_id="x"),
            part("2}", call_id="y"),
        ],
        [A, B],
    ),
    "two whole calls in one chunk": ([[part('{"n":1}', "a", "x", 0), part('{"n":2}', "b", "y", 1)]], [A, B]),
    "two fragments of one call in one chunk": ([[part('{"n":', "a", "x", 0), part("1}", index=0)]], [A]),
    "one index for two ids": ([part('{"n":1}', "a", "x", 0), part('{"n":2}', "b", "y", 0)], [A, B]),
    "one index for two ids, in fragments": (
        [part('{"n":', "a", "x", 0), part("1}", index=0), part('{"n":', "b", "y", 0), part("2}", index=0)],
        [A, B],
    ),
    "one index, no ids, two whole calls": (
        [part('{"n":1}', "a", index=0), part('{"n":2}', "b", index=0)],
        [("call_1", "a", '{"n":1}'), ("call_2", "b", '{"n":2}')],
    ),
    "the same tool twice, no ids, no indexes": (
        [part('{"n":1}', "a"), part('{"n":2}', "a")],
        [("call_1", "a", '{"n":1}'), ("call_2", "a", '{"n":2}')],
    ),
    "two calls in one chunk without index or id": (
        [[part("", "a"), part("", "b")]],
        [("call_1", "a", "{}"), ("call_2", "b", "{}")],
    ),
    "no index, fragments": ([part('{"n":', "a", "x"), part("1}")], [A]),
    "id and name repeated in every fragment": (
        [part('{"n":', "a", "x", 0), part("1", "a", "x", 0), part("}", "a", "x", 0)],
        [A],
    ),
    "id comes after the name": ([part("", "a", index=0), part('{"n":1}', call_id="x", index=0)], [A]),
    "a new id for every fragment without a name": (
        [part('{"n":', "a", "x", 0), part("1}", call_id="other", index=0)],
        [A],
    ),
    "name in two pieces": (
        [part("", "get_", "x", 0), part("", "weather", index=0), part("{}", index=0)],
        [("x", "get_weather", "{}")],
    ),
    "name in two pieces without an index": (
        [part("", "get_", "x"), part("", "weather"), part("{}")],
        [("x", "get_weather", "{}")],
    ),
    "the same id twice in one turn": (
        [part('{"n":1}', "a", "x", 0), part('{"n":2}', "b", "x", 1)],
        [A, ("x_2", "b", '{"n":2}')],
    ),
    "the same id twice, without indexes": (
        [part('{"n":1}', "a", "x"), part('{"n":2}', "a", "x")],
        [A, ("x_2", "a", '{"n":2}')],
    ),
    "empty ids": (
        [part("{}", "a", "", 0), part("{}", "b", "", 1)],
        [("call_1", "a", "{}"), ("call_2", "b", "{}")],
    ),
    "a made-up id that is taken by the next call": (
        [part("{}", "a", "call_2", 0), part("{}", "b", "", 1)],
        [("call_2", "a", "{}"), ("call_2_2", "b", "{}")],
    ),
    "no arguments": ([part(None, "a", "x", 0)], [("x", "a", "{}")]),
    "empty arguments": ([part("", "a", "x", 0)], [("x", "a", "{}")]),
    "blank arguments": ([part("  ", "a", "x", 0)], [("x", "a", "{}")]),
    "null as text": ([part("null", "a", "x", 0)], [("x", "a", "{}")]),
    "arguments as an object": ([part({"n": 1}, "a", "x", 0)], [A]),
    "broken arguments are kept": ([part('{"n":', "a", "x", 0)], [("x", "a", '{"n":')]),
    "an entry with nothing in it": ([part(index=0), part('{"n":1}', "a", "x", 1)], [A]),
}


@pytest.mark.parametrize(("fragments", "expected"), STREAMS.values(), ids=STREAMS.keys())
def test_calls_come_out_whole(fragments: list[Any], expected: list[tuple[str, str, str]]) -> None:
    assert calls_of(*fragments) == expected


def test_a_second_known_name_is_a_new_call_and_not_the_rest_of_the_first() -> None:
    fragments = [part("", "now"), part('{"n":1}', "echo")]
    assert [tool for _, tool, _ in calls_of(*fragments, known=("now", "echo"))] == ["now", "echo"]
    assert [tool for _, tool, _ in calls_of(*fragments)] == ["nowecho"]


def test_ids_that_the_conversation_has_used_are_not_used_again() -> None:
    chunk = delta_chunk(tool_calls=[part("{}", "a", "x", 0), part("{}", "b", "", 1)])
    reply = assemble(chunk, finish_chunk(), taken=("x", "call_2"))
    assert [call.call_id for call in reply.calls] == ["x_2", "call_2_2"]


def test_text_and_calls_may_be_mixed() -> None:
    assembly = StreamAssembly()
    texts = [
        assembly.feed(delta_chunk(role="assistant", content="")),
        assembly.feed(delta_chunk(content="Let me ")),
        assembly.feed(delta_chunk(content="look.", tool_calls=[part("{}", "a", "x", 0)])),
        assembly.feed(finish_chunk()),
        assembly.feed(usage_chunk(5, 7)),
    ]
    reply = assembly.finish()
    assert texts == ["", "Let me ", "look.", "", ""]
    assert (reply.text, len(reply.calls), reply.usage, reply.model) == (
        "Let me look.",
        1,
        Usage(input_tokens=5, output_tokens=7),
        "m",
    )


@pytest.mark.parametrize(
    "noise",
    [
        {},
        {"choices": []},
        {"choices": None},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        {"choices": ["?"]},
        {"choices": [{"delta": {"tool_calls": [None, 3]}}]},
        {"usage": None, "choices": []},
        {"choices": [{"delta": {"content": 7, "tool_calls": {}}}]},
    ],
)
def test_chunks_without_anything_to_say_are_ignored(noise: dict[str, Any]) -> None:
    reply = assemble(noise, delta_chunk(content="hi"), noise, finish_chunk("stop"), noise)
    assert (reply.text, reply.calls) == ("hi", ())


def test_content_may_come_as_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert assemble(delta_chunk(content=parts), finish_chunk("stop")).text == "ab"


def test_a_whole_completion_is_one_chunk() -> None:
    message = {"role": "assistant", "content": "hi", "tool_calls": [part("{}", "a", "x")]}
    reply = assemble({"model": "m", "choices": [{"message": message, "finish_reason": "stop"}]})
    assert (reply.text, reply.calls[0].tool) == ("hi", "a")


def test_a_stream_without_a_finish_reason_was_interrupted() -> None:
    with pytest.raises(ModelError, match="ended before") as caught:
        assemble(delta_chunk(content="half"))
    assert (caught.value.kind, caught.value.retryable) == ("interrupted", True)


def test_usage_in_the_middle_does_not_make_a_cut_stream_whole() -> None:
    with pytest.raises(ModelError, match="ended before"):
        assemble(usage_chunk(1, 1), delta_chunk(content="half") | {"usage": {"prompt_tokens": 1}})


def test_a_closing_usage_chunk_stands_for_the_finish_reason() -> None:
    assert assemble(delta_chunk(content="whole"), usage_chunk(1, 1)).text == "whole"


@pytest.mark.parametrize(
    ("chunk", "kind", "retryable"),
    [
        ({"error": {"message": "no", "code": 429}}, "rate_limited", True),
        ({"error": {"message": "no", "type": "rate_limit_exceeded"}}, "rate_limited", True),
        ({"error": {"message": "no", "code": "insufficient_quota"}}, "rate_limited", False),
        ({"error": {"message": "no", "type": "overloaded_error"}}, "overloaded", True),
        ({"error": {"message": "no", "code": 503}}, "overloaded", True),
        ({"error": {"message": "no", "code": 502}}, "server_error", True),
        ({"error": {"message": "no", "type": "invalid_request_error"}}, "rejected", False),
        ({"error": {"message": "no", "code": 404}}, "rejected", False),
        ({"error": "no"}, "server_error", True),
        ({"error": {"strange": "no"}}, "server_error", True),
        ({"object": "error", "message": "no", "code": 400}, "rejected", False),
    ],
)
def test_an_error_object_in_the_stream_is_raised(chunk: dict[str, Any], kind: str, retryable: bool) -> None:
    with pytest.raises(ModelError, match="no") as caught:
        StreamAssembly().feed(chunk)
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)


def test_a_reply_that_ends_in_an_error_is_no_reply() -> None:
    with pytest.raises(ModelError) as caught:
        assemble(delta_chunk(content="half"), finish_chunk("error"))
    assert caught.value.kind == "server_error"


def test_a_filtered_reply_without_text_is_rejected_and_with_text_is_kept() -> None:
    with pytest.raises(ModelError) as caught:
        assemble(finish_chunk("content_filter"))
    assert (caught.value.kind, caught.value.retryable) == ("rejected", False)
    assert assemble(delta_chunk(content="so far"), finish_chunk("content_filter")).text == "so far"


def test_a_call_without_a_name_is_a_bad_reply() -> None:
    with pytest.raises(ModelError) as caught:
        calls_of(part('{"n":1}', call_id="x", index=0))
    assert caught.value.kind == "bad_reply"


def test_a_reply_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_assembly, "MAX_REPLY_CHARS", 10)
    monkeypatch.setattr(stream_assembly, "MAX_CALLS", 2)
    with pytest.raises(ModelError, match="longer than 10"):
        assemble(delta_chunk(content="12345678901"))
    with pytest.raises(ModelError, match="more than 2 tool calls"):
        calls_of(*[part("{}", "a", str(n), n) for n in range(3)])


def test_error_texts_are_bounded() -> None:
    assert len(error_of_object({"message": "x" * 10_000}).message) < 1000
