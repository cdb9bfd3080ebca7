from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.chat_model import ModelError
from callboard.actors.stream_assembly import StreamAssembly

ARGUMENTS = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3).map(
    json.dumps
)
NAMES = st.text("abcdefgh_", min_size=1, max_size=8)


def pieces(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[a:b] for a, b in pairwise(bounds)]


@given(
    calls=st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 50), max_size=5),
    keyed_by=st.sampled_from(["index", "id", "both"]),
    order=st.randoms(use_true_random=False),
)
def test_any_split_and_any_interleaving_gives_the_same_calls(
    calls: list[tuple[str, str]], cuts: list[int], keyed_by: str, order: Any
) -> None:
    queues = []
    for number, (name, arguments) in enumerate(calls):
        key: dict[str, Any] = {"index": number} if keyed_by != "id" else {}
        rest_key = key | ({"id": f"id{number}"} if keyed_by != "index" else {})
        head = [{"id": f"id{number}", **key, "function": {"name": name, "arguments": ""}}]
        queues.append(head + [{**rest_key, "function": {"arguments": p}} for p in pieces(arguments, cuts)])
    assembly = StreamAssembly()
    heads = [queue.pop(0) for queue in queues]
    for entry in heads:
        assembly.feed({"choices": [{"delta": {"tool_calls": [entry]}}]})
    while any(queues):
        entry = order.choice([queue for queue in queues if queue]).pop(0)
        assembly.feed({"choices": [{"delta": {"tool_calls": [entry]}}]})
    assembly.feed({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    reply = assembly.finish()
    assert [(c.call_id, c.tool, c.arguments) for c in reply.calls] == [
        (f"id{n}", name, arguments) for n, (name, arguments) in enumerate(calls)
    ]


@given(
    calls=st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3),
    cuts=st.lists(st.integers(0, 50), max_size=4),
    text=st.text(max_size=9),
    at=st.integers(0, 60),
)
def test_a_stream_that_breaks_off_anywhere_gives_no_call_at_all(
    calls: list[tuple[str, str]], cuts: list[int], text: str, at: int
) -> None:
    chunks: list[Any] = [{"choices": [{"delta": {"content": text}}]}]
    for number, (name, arguments) in enumerate(calls):
        entry: dict[str, Any] = {"index": number, "id": f"id{number}", "function": {"name": name}}
        chunks.append({"choices": [{"delta": {"tool_calls": [entry]}}]})
        for piece in pieces(arguments, cuts):
            part = {"index": number, "function": {"arguments": piece}}
            chunks.append({"choices": [{"delta": {"tool_calls": [part]}}]})
    assembly = StreamAssembly()
    for chunk in chunks[: at % (len(chunks) + 1)]:
        assembly.feed(chunk)
    with pytest.raises(ModelError) as caught:
        assembly.finish()
    assert caught.value.kind == "interrupted"


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda c: (
            st.lists(c, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "delta",
                        "tool_calls",
                        "function",
                        "name",
                        "arguments",
                        "id",
                        "index",
                        "content",
                        "usage",
                    ]
                ),
                c,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_no_chunk_of_any_shape_raises_anything_but_a_model_error(chunk: Any) -> None:
    if isinstance(chunk, dict):
        assembly = StreamAssembly()
        assembly.feed(chunk)
        assembly.feed({"choices": [chunk]})
        assembly.feed({"choices": [{"delta": chunk}]})
        assembly.feed({"choices": [{"delta": {"tool_calls": [chunk]}}]})
