from __future__ import annotations

import json

import pytest

from callboard.actors.chat_messages import (
    CUT_OFF,
    LOST_OUTPUT,
    NO_OUTPUT,
    functions_from_tools,
    messages_from_items,
    text_from_blocks,
)
from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item, Role
from callboard.tools.content import Block, ImageBlock, JsonBlock, ResourceBlock, TextBlock
from callboard.tools.contract import ToolSpec

IMAGE = ImageBlock("aGVsbG8=", "image/png")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}


def message(role: Role, *blocks: Block | str, interrupted: bool = False) -> ChatMessage:
    content = tuple(TextBlock(block) if isinstance(block, str) else block for block in blocks)
    return ChatMessage(role=role, content=content, interrupted=interrupted)


def call(call_id: str, tool: str = "t", arguments: str = "{}") -> FunctionCall:
    return FunctionCall(call_id=call_id, tool=tool, arguments=arguments)


def output(call_id: str, *blocks: Block | str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, content=message("user", *blocks).content)


def called(call_id: str, tool: str = "t", arguments: str = "{}") -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": tool, "arguments": arguments}}


def test_calls_join_the_assistant_message_before_them() -> None:
    items: list[Item] = [message("user", "hi"), message("assistant", "let me look"), call("1"), call("2")]
    items += [output("1", "one"), output("2", "two")]
    assert messages_from_items(items) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "let me look", "tool_calls": [called("1"), called("2")]},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
    ]


def test_the_calls_of_two_steps_stay_apart() -> None:
    items: list[Item] = [message("user", "hi"), call("1"), output("1", "one"), call("2"), output("2", "two")]
    roles = [m["role"] for m in messages_from_items(items)]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


def test_a_call_without_an_output_is_given_one() -> None:
    items: list[Item] = [
        message("user", "hi"),
        call("1"),
        call("2"),
        output("1", "one"),
        message("user", "and?"),
    ]
    assert messages_from_items(items)[2:] == [
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": LOST_OUTPUT},
        {"role": "user", "content": "and?"},
    ]


def test_a_call_at_the_very_end_is_answered_too() -> None:
    assert messages_from_items([call("1")])[-1]["content"] == LOST_OUTPUT


def test_an_output_without_a_call_is_left_out() -> None:
    assert messages_from_items([message("user", "hi"), output("1", "one")]) == [
        {"role": "user", "content": "hi"}
    ]


def test_an_id_used_in_two_turns_is_rewritten_with_its_output() -> None:
    items: list[Item] = [
        call("1"),
        output("1", "one"),
        message("user", "again"),
        call("1"),
        output("1", "two"),
    ]
    messages = messages_from_items(items)
    assert messages[3]["tool_calls"] == [called("1_2")]
    assert messages[4] == {"role": "tool", "tool_call_id": "1_2", "content": "two"}


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (TextBlock("plain"), "plain"),
        (JsonBlock({"a": [1, "é"]}), '{"a":[1,"é"]}'),
        (IMAGE, "[image, image/png, 6 bytes]"),
        (ResourceBlock("file:///a", "text/plain", text="inside"), "[resource file:///a, text/plain]\ninside"),
        (ResourceBlock("file:///b", blob="aGVsbG8="), "[resource file:///b, 6 bytes, not shown]"),
        (ResourceBlock("file:///c"), "[resource file:///c]"),
    ],
)
def test_blocks_are_written_as_text(block: Block, text: str) -> None:
    assert text_from_blocks([block]) == text


def test_images_are_shown_to_a_model_that_sees() -> None:
    seen = messages_from_items([message("user", "what is it?", IMAGE)], vision=True)
    assert seen == [{"role": "user", "content": [{"type": "text", "text": "what is it?"}, IMAGE_PART]}]


def test_a_blind_model_is_told_that_there_was_an_image() -> None:
    told = messages_from_items([message("user", "what is it?", IMAGE)])
    assert told == [{"role": "user", "content": "what is it?\n[image, image/png, 6 bytes]"}]


def test_a_tools_images_follow_its_results_in_a_user_message() -> None:
    items: list[Item] = [call("1"), call("2"), output("1", IMAGE), output("2", "two")]
    messages = messages_from_items(items, vision=True)
    assert [m["role"] for m in messages] == ["assistant", "tool", "tool", "user"]
    assert IMAGE_PART in messages[3]["content"]


def test_an_answer_that_was_cut_off_says_so() -> None:
    assert messages_from_items([message("assistant", "half", interrupted=True)]) == [
        {"role": "assistant", "content": f"half\n{CUT_OFF}"}
    ]


def test_empty_answers_vanish_and_empty_outputs_are_named() -> None:
    assert messages_from_items([message("assistant", "")]) == []
    assert messages_from_items([call("1"), output("1")])[1]["content"] == NO_OUTPUT


def test_lone_surrogates_cannot_break_the_request() -> None:
    items: list[Item] = [
        message("user", "a\ud800b"),
        call("1", arguments='"\ud800"'),
        output("1", JsonBlock("\udfff")),
    ]
    json.dumps(messages_from_items(items), ensure_ascii=False).encode("utf-8")


def test_tools_are_written_as_functions() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    tools = [ToolSpec(name="a", description="does a", parameters=schema)]
    tools += [ToolSpec(name="b", description="", parameters={})]
    written = functions_from_tools(tools)
    assert written[0] == {
        "type": "function",
        "function": {"name": "a", "description": "does a", "parameters": schema},
    }
    assert written[1]["function"]["parameters"] == {"type": "object", "properties": {}}
