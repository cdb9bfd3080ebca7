"""Turns a conversation's items into the messages and tools of a chat-completion request.

Decides how each block is written for the model, which calls share an assistant message, and that every call
is followed by exactly one output under an id of its own (endpoints refuse the whole request otherwise).
Pure; knows neither openai nor the network. Called by ``actors/openai_model.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from callboard.actors.items import ChatMessage, FunctionCall, FunctionCallOutput, Item
from callboard.tools.content import Block, ImageBlock, JsonBlock, ResourceBlock, TextBlock
from callboard.tools.contract import ToolSpec
from callboard.tools.schema import openai_tools

JsonObject: TypeAlias = dict[str, Any]

NO_OUTPUT = "(no output)"
LOST_OUTPUT = "(no result was recorded for this call; it may have run)"
CUT_OFF = "[this answer was cut off]"


def messages_from_items(items: Sequence[Item], *, vision: bool = False) -> list[JsonObject]:
    """Write ``items`` as chat messages.

    Calls that follow an assistant message join it; an id that occurs a second time is rewritten, its output
    with it; a call without an output gets LOST_OUTPUT; an output without a call is left out. Images become
    image parts when ``vision`` is true (a tool's images in a user message after its results), else a line
    that names them.
    """
    writer = _Writer(vision)
    for item in items:
        match item:
            case ChatMessage():
                writer.add_message(item)
            case FunctionCall():
                writer.add_call(item)
            case FunctionCallOutput():
                writer.add_output(item)
    writer.close_calls()
    return writer.messages


def functions_from_tools(tools: Iterable[ToolSpec]) -> list[JsonObject]:
    """Write tools as the ``tools`` field of a request, by name."""
    return openai_tools(tools)


def text_from_blocks(blocks: Iterable[Block]) -> str:
    """Write blocks as one text for the model; JSON compact, images as a line that names them."""
    return _encodable("\n".join(_block_text(block) for block in blocks))


class _Writer:
    def __init__(self, vision: bool) -> None:
        self.messages: list[JsonObject] = []
        self._vision = vision
        self._used_ids: set[str] = set()
        self._open: dict[str, str] = {}  # the call id in the items -> the call id in the request
        self._tool_images: list[ImageBlock] = []

    def add_message(self, message: ChatMessage) -> None:
        self.close_calls()
        text = text_from_blocks(message.content)
        if message.interrupted:
            text = f"{text}\n{CUT_OFF}".lstrip()
        if message.role == "assistant":
            if text:
                self.messages.append({"role": "assistant", "content": text})
        elif self._vision and any(isinstance(block, ImageBlock) for block in message.content):
            parts = [_block_part(block) for block in message.content]
            self.messages.append({"role": message.role, "content": parts})
        else:
            self.messages.append({"role": message.role, "content": text})

    def add_call(self, call: FunctionCall) -> None:
        if self.messages and self.messages[-1]["role"] == "tool":
            self.close_calls()
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        call_id = self._unused_id(call.call_id)
        self._open[call.call_id] = call_id
        function = {"name": _encodable(call.tool), "arguments": _encodable(call.arguments)}
        calls = self.messages[-1].setdefault("tool_calls", [])
        calls.append({"id": call_id, "type": "function", "function": function})

    def add_output(self, output: FunctionCallOutput) -> None:
        call_id = self._open.pop(output.call_id, None)
        if call_id is None:
            return
        text = text_from_blocks(output.content) or NO_OUTPUT
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        if self._vision:
            self._tool_images.extend(block for block in output.content if isinstance(block, ImageBlock))

    def close_calls(self) -> None:
        """Answer the calls that got no output, and show the images of those that did."""
        for call_id in self._open.values():
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": LOST_OUTPUT})
        self._open.clear()
        if self._tool_images:
            parts = [_block_part(TextBlock("Images from the tool results above:"))]
            parts.extend(_block_part(image) for image in self._tool_images)
            self.messages.append({"role": "user", "content": parts})
            self._tool_images.clear()

    def _unused_id(self, wanted: str) -> str:
        call_id, suffix = wanted or "call", 2
        while call_id in self._used_ids or not call_id:
            call_id = f"{wanted or 'call'}_{suffix}"
            suffix += 1
        self._used_ids.add(call_id)
        return call_id


def _block_text(block: Block) -> str:
    match block:
        case TextBlock(text):
            return text
        case JsonBlock(value):
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        case ImageBlock(data, mime_type):
            return f"[image, {mime_type}, {len(data) * 3 // 4} bytes]"
        case ResourceBlock():
            return _resource_text(block)


def _resource_text(resource: ResourceBlock) -> str:
    kind = f", {resource.mime_type}" if resource.mime_type else ""
    if resource.text is not None:
        return f"[resource {resource.uri}{kind}]\n{resource.text}"
    size = f", {len(resource.blob) * 3 // 4} bytes, not shown" if resource.blob is not None else ""
    return f"[resource {resource.uri}{kind}{size}]"


def _block_part(block: Block) -> JsonObject:
    if isinstance(block, ImageBlock):
        return {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
    return {"type": "text", "text": _encodable(_block_text(block))}


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON can bring in and no request can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
