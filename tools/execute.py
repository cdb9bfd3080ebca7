"""Run one call of a tool in this process and turn whatever comes out of it into a ToolResult.

It decides what a return value or an exception looks like to the model. It never isolates, kills or times
anything. Called by a call's own process (``tools/runner.py``), and by ``callboard.run`` on a thread.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeAlias

from callboard.tools.bounds import MAX_DEPTH, is_too_deep, storable
from callboard.tools.content import (
    Block,
    Citation,
    ImageBlock,
    JsonBlock,
    Progress,
    ResourceBlock,
    TextBlock,
    ToolResult,
    error_result,
)
from callboard.tools.contract import ToolContext
from callboard.tools.decorator import Tool
from callboard.tools.errors import ToolFault
from callboard.tools.plain_values import NOT_PLAIN, plain_copy

MESSAGE_BYTES = 2048
OUTCOMES = ("ok", "error", "deadline", "killed", "denied", "unavailable", "unknown", "cancelled")
PROGRESS_CHARS = 500
_MAX_INT = 2**63 - 1
_GROUP_MEMBERS = 5
_MAX_DIGITS = 4300

Report: TypeAlias = Callable[[Progress], None]


def execute(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, report: Report | None = None
) -> ToolResult:
    """Configure and call ``tool``, wait for its end, and give its result; what it raises is an error result.

    ``report`` is called with what a generator yields on the way, as Progress or as text. Not to be called where an
    event loop runs. ``SystemExit`` is an error result too. MemoryError passes through, for the caller knows the limit
    and can name it; so do other exceptions outside ``Exception`` (KeyboardInterrupt), which are meant for the process.
    """
    try:
        tool.configure(context.settings)
        return to_result(_settle(tool.execute(arguments, context), report or _unheard))
    except ToolFault as fault:
        return error_result(_capped(str(fault)))
    except SystemExit as leaving:
        return error_result(f"SystemExit: the tool called exit, with exit code {_exit_code(leaving)}")
    except MemoryError:
        raise
    except Exception as error:
        return error_result(_capped(describe(error)))


def to_result(value: object) -> ToolResult:
    """Turn a tool's return value into a result of plain values only, so that any process can read it.

    Every block, citation and field is rebuilt from exact builtins: no class of the tool's own leaves with it.
    Raises ToolFault for bytes, for what has no JSON form, and for fields of a wrong type.
    """
    match value:
        case ToolResult():
            result = _rebuilt(value)
        case tuple() | list() if any(_is_block(part) for part in value):
            result = ToolResult(content=tuple(_to_block(part) for part in value))
        case _:
            result = ToolResult(content=(_to_block(value),))
    checked = storable(result)
    if checked is not result and isinstance(checked.content[0], TextBlock):
        raise ToolFault(checked.content[0].text)
    return checked


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


def _settle(value: Any, report: Report) -> object:
    if inspect.isawaitable(value):
        return _run(_await(value))
    if inspect.isasyncgen(value):
        return _run(_last_of_async(value, report))
    if inspect.isgenerator(value):
        return _last_of(value, report)
    return value


def _run(coroutine: Coroutine[Any, Any, object]) -> object:
    import asyncio  # half of all that a worker of its own loads, and most tools do not need it

    return asyncio.run(coroutine)


async def _await(value: Awaitable[object]) -> object:
    return await value


async def _last_of_async(values: AsyncIterable[object], report: Report) -> object:
    last: object = None
    async for value in values:
        _tell(value, report)
        last = last if isinstance(value, Progress) else value
    return last


def _last_of(values: Iterator[object], report: Report) -> object:
    last: object = None
    while True:
        try:
            value = next(values)
        except StopIteration as end:
            return last if end.value is None else end.value
        _tell(value, report)
        last = last if isinstance(value, Progress) else value


def _tell(value: object, report: Report) -> None:
    """Pass on what says how far a tool is; a fraction that is none is left out, for progress never fails a call."""
    match value:
        case Progress(str(text), fraction):
            report(Progress(_plain(text)[:PROGRESS_CHARS], _fraction(fraction)))
        case str():
            report(Progress(_plain(value)[:PROGRESS_CHARS]))
        case _:
            return


def _fraction(given: object) -> float | None:
    if not isinstance(given, int | float) or isinstance(given, bool):
        return None
    return float(given) if 0 <= given <= 1 else None


def _unheard(_: Progress) -> None:
    """Nobody listens to progress."""


def _is_block(value: object) -> bool:
    return isinstance(value, TextBlock | JsonBlock | ImageBlock | ResourceBlock)


def _rebuilt(given: ToolResult) -> ToolResult:
    if type(given.is_error) is not bool:
        raise _wrong("is_error", "True or False", given.is_error)
    outcome = _text(given.outcome, "outcome")
    if outcome not in OUTCOMES:
        raise ToolFault(
            f"the tool returned a ToolResult with outcome {outcome[:40]!r}: it must be one of {', '.join(OUTCOMES)}"
        )
    if not isinstance(given.metadata, Mapping):
        raise _wrong("metadata", "a mapping", given.metadata)
    return ToolResult(
        content=tuple(_to_block(part) for part in _sequence(given.content, "content", "content blocks")),
        is_error=given.is_error,
        outcome=outcome,
        citations=tuple(
            _citation(citation, f"citations[{index}]")
            for index, citation in enumerate(_sequence(given.citations, "citations", "Citation objects"))
        ),
        metadata=_to_json(dict(given.metadata)) if given.metadata else {},
    )


def _citation(given: object, where: str) -> Citation:
    if not isinstance(given, Citation):
        raise _wrong(where, "a Citation(document=..., line=...) from callboard.tools.content", given)
    return Citation(
        document=_optional_text(given.document, f"{where}.document"),
        page=_optional_int(given.page, f"{where}.page"),
        line=_optional_int(given.line, f"{where}.line"),
        line_end=_optional_int(given.line_end, f"{where}.line_end"),
        url=_optional_text(given.url, f"{where}.url"),
        record_id=_optional_text(given.record_id, f"{where}.record_id"),
        score=_optional_float(given.score, f"{where}.score"),
        retrieved_at=_optional_text(given.retrieved_at, f"{where}.retrieved_at"),
    )


def _to_block(value: object) -> Block:
    match value:
        case TextBlock(text):
            return TextBlock(_text(text, "TextBlock.text"))
        case str():
            return TextBlock(_plain(value))
        case ImageBlock():
            return ImageBlock(
                _text(value.data, "ImageBlock.data"), _text(value.mime_type, "ImageBlock.mime_type")
            )
        case ResourceBlock():
            return ResourceBlock(
                _text(value.uri, "ResourceBlock.uri"),
                _optional_text(value.mime_type, "ResourceBlock.mime_type"),
                _optional_text(value.text, "ResourceBlock.text"),
                _optional_text(value.blob, "ResourceBlock.blob"),
            )
        case JsonBlock(inner):
            return JsonBlock(_to_json(inner))
        case bytes() | bytearray() | memoryview():
            raise ToolFault(
                "the tool returned bytes, which a model cannot read: return text, or for an image "
                "ImageBlock(base64.b64encode(data).decode(), 'image/png') from callboard.tools.content"
            )
        case _:
            return JsonBlock(_to_json(value))


def _wrong(where: str, wanted: str, got: object) -> ToolFault:
    return ToolFault(f"the tool returned {where} of type {type(got).__qualname__}: it must be {wanted}")


def _sequence(value: object, where: str, of: str) -> tuple[object, ...]:
    if not isinstance(value, tuple | list):
        raise _wrong(where, f"a tuple or list of {of}", value)
    return tuple(value)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, "text (base64 text for data and blobs)", value)
    return _plain(value)


def _optional_text(value: object, where: str) -> str | None:
    return None if value is None else _text(value, where)


def _optional_int(value: object, where: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(where, "a whole number or None", value)
    plain = int.__int__(value)
    if abs(plain) > _MAX_INT:
        raise ToolFault(f"the tool returned {where} beyond 64 bits: give a number that counts from 1")
    return plain


def _optional_float(value: object, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, float):
        plain = float.__float__(value)
        return plain if math.isfinite(plain) else None
    return _optional_int(value, where)


def _plain(text: str) -> str:
    # Drops the class of a string enum, and lone surrogates, which no log and no endpoint can encode.
    return str.encode(text, "utf-8", "replace").decode("utf-8")


def _to_json(value: object) -> Any:
    copied = plain_copy(value)
    return _to_json_by_pydantic(value) if copied is NOT_PLAIN else copied


def _to_json_by_pydantic(value: object) -> Any:
    from pydantic_core import PydanticSerializationError, to_json  # 30 ms that most calls do not need

    try:
        # By way of text, because only there nan and infinity (no JSON) become strings.
        plain = json.loads(to_json(value, inf_nan_mode="strings"), parse_int=_readable_int)
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolFault(
            f"the tool returned a value of type {type(value).__qualname__}, which has no JSON form "
            f"({error}): return text, JSON values, a dataclass, a pydantic model or content blocks"
        ) from error
    if is_too_deep(plain):
        raise ToolFault(f"the tool returned a value nested more than {MAX_DEPTH} levels deep: flatten it")
    return plain


def _readable_int(digits: str) -> int:
    # A tool may have lifted its own interpreter's limit; the readers of its result have not.
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits; at most {_MAX_DIGITS} can be read")
    return int(digits)


def _exit_code(leaving: SystemExit) -> str:
    return "0" if leaving.code is None else _capped(str(leaving.code))


def _capped(message: str) -> str:
    encoded = message.encode("utf-8", "replace")
    if len(encoded) <= MESSAGE_BYTES:
        return encoded.decode("utf-8")
    note = " … (cut)"
    return encoded[: MESSAGE_BYTES - len(note.encode())].decode("utf-8", "ignore") + note
