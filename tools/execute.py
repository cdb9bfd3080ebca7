"""Run one call of a tool in this process and turn whatever comes out of it into a ToolResult.

It decides what a return value or an exception looks like to the model. It never isolates, kills or times
anything: that is the worker's part. Called by the tool worker, and by ``callboard.run`` on a thread.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterable, Awaitable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from callboard.tools.content import (
    Block,
    ImageBlock,
    JsonBlock,
    ResourceBlock,
    TextBlock,
    ToolResult,
    error_result,
)
from callboard.tools.contract import ToolContext
from callboard.tools.decorator import Tool
from callboard.tools.errors import ToolFault

MESSAGE_BYTES = 2048
_GROUP_MEMBERS = 5


def execute(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """Configure and call ``tool``, wait for its end, and give its result; what it raises is an error result.

    Not to be called where an event loop runs. ``SystemExit`` is an error result too. MemoryError passes
    through, for the caller knows the limit and can name it; so do other exceptions outside ``Exception``
    (KeyboardInterrupt), which are meant for the process.
    """
    try:
        tool.configure(context.settings)
        return to_result(_settle(tool.execute(arguments, context)))
    except ToolFault as fault:
        return error_result(_capped(str(fault)))
    except SystemExit as leaving:
        return error_result(f"SystemExit: the tool called exit, with exit code {_exit_code(leaving)}")
    except MemoryError:
        raise
    except Exception as error:
        return error_result(_capped(describe(error)))


def to_result(value: object) -> ToolResult:
    """Turn a tool's return value into a result of plain values only, so that any process can unpickle it.

    Raises ToolFault for bytes and for what has no JSON form.
    """
    match value:
        case ToolResult():
            return replace(
                value,
                content=tuple(_to_block(part) for part in value.content),
                metadata=_to_json(dict(value.metadata)) if value.metadata else {},
            )
        case tuple() | list() if any(_is_block(part) for part in value):
            return ToolResult(content=tuple(_to_block(part) for part in value))
        case _:
            return ToolResult(content=(_to_block(value),))


def describe(error: BaseException) -> str:
    """Say an exception in one line: type and message; a group names its members."""
    if isinstance(error, BaseExceptionGroup):
        members = "; ".join(describe(member) for member in error.exceptions[:_GROUP_MEMBERS])
        return f"{type(error).__name__}: {members}"
    try:
        message = str(error)
    except Exception:  # a user's __str__ may itself fail, and the model must still be told
        message = "(its message cannot be read)"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _settle(value: Any) -> object:
    if inspect.isawaitable(value):
        return asyncio.run(_await(value))
    if inspect.isasyncgen(value):
        return asyncio.run(_last_of_async(value))
    if inspect.isgenerator(value):
        return _last_of(value)
    return value


async def _await(value: Awaitable[object]) -> object:
    return await value


async def _last_of_async(values: AsyncIterable[object]) -> object:
    last: object = None
    async for value in values:
        last = value
    return last


def _last_of(values: Iterator[object]) -> object:
    last: object = None
    while True:
        try:
            last = next(values)
        except StopIteration as end:
            return last if end.value is None else end.value


def _is_block(value: object) -> bool:
    return isinstance(value, TextBlock | JsonBlock | ImageBlock | ResourceBlock)


def _to_block(value: object) -> Block:
    match value:
        case TextBlock(text) | str(text):
            return TextBlock(_plain(text))
        case ImageBlock() | ResourceBlock():
            return value
        case JsonBlock(inner):
            return JsonBlock(_to_json(inner))
        case bytes() | bytearray() | memoryview():
            raise ToolFault(
                "the tool returned bytes, which a model cannot read: return text, or for an image "
                "ImageBlock(base64.b64encode(data).decode(), 'image/png') from callboard.tools.content"
            )
        case _:
            return JsonBlock(_to_json(value))


def _plain(text: str) -> str:
    # Drops the class of a string enum, and lone surrogates, which no log and no endpoint can encode.
    return text.encode("utf-8", "replace").decode("utf-8")


def _to_json(value: object) -> Any:
    if value is None or type(value) in (bool, int):
        return value
    from pydantic_core import PydanticSerializationError, to_json  # 30 ms, and text does not need it

    try:
        # By way of text, because only there nan and infinity (no JSON) become strings.
        return json.loads(to_json(value, inf_nan_mode="strings"))
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolFault(
            f"the tool returned a value of type {type(value).__qualname__}, which has no JSON form "
            f"({error}): return text, JSON values, a dataclass, a pydantic model or content blocks"
        ) from error


def _exit_code(leaving: SystemExit) -> str:
    return "0" if leaving.code is None else _capped(str(leaving.code))


def _capped(message: str) -> str:
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= MESSAGE_BYTES:
        return encoded.decode("utf-8")
    note = " … (cut)"
    return encoded[: MESSAGE_BYTES - len(note.encode())].decode("utf-8", "ignore") + note
