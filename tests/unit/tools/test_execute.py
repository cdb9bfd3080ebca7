"""Whatever a tool returns or raises becomes exactly one ToolResult."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from callboard.tools.content import (
    Citation,
    ImageBlock,
    JsonBlock,
    ResourceBlock,
    TextBlock,
    ToolResult,
)
from callboard.tools.contract import ToolContext
from callboard.tools.decorator import Tool, tool
from callboard.tools.errors import ToolFault
from callboard.tools.execute import MESSAGE_BYTES, execute, to_result


class Model(BaseModel):
    a: int


@dataclass
class Record:
    day: date


class Colour(str, Enum):  # noqa: UP042 (StrEnum is the harmless one)
    RED = "red"


class Level(IntEnum):
    HIGH = 3


IMAGE = ImageBlock("aGk=", "image/png")
RESOURCE = ResourceBlock("file:///x", text="x")


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", (TextBlock("text"),)),
        (Colour.RED, (TextBlock("red"),)),
        ("half \ud800", (TextBlock("half ?"),)),
        (None, (JsonBlock(None),)),
        (True, (JsonBlock(True),)),
        (3, (JsonBlock(3),)),
        (Level.HIGH, (JsonBlock(3),)),
        (2.5, (JsonBlock(2.5),)),
        (float("nan"), (JsonBlock("NaN"),)),
        ({"a": [1, {"b": None}]}, (JsonBlock({"a": [1, {"b": None}]}),)),
        ([], (JsonBlock([]),)),
        ((1, "a"), (JsonBlock([1, "a"]),)),
        ({1: {2}}, (JsonBlock({"1": [2]}),)),
        (Model(a=1), (JsonBlock({"a": 1}),)),
        ([Model(a=1)], (JsonBlock([{"a": 1}]),)),
        (Record(date(2026, 1, 2)), (JsonBlock({"day": "2026-01-02"}),)),
        (IMAGE, (IMAGE,)),
        ([TextBlock("a"), IMAGE], (TextBlock("a"), IMAGE)),
        (("see", IMAGE, RESOURCE), (TextBlock("see"), IMAGE, RESOURCE)),
        (JsonBlock(Model(a=1)), (JsonBlock({"a": 1}),)),
    ],
)
def test_any_return_value_becomes_content(value: object, content: tuple[object, ...]) -> None:
    result = to_result(value)
    assert result == ToolResult(content=content)  # type: ignore[arg-type]
    assert type(getattr(result.content[0], "value", 0)).__module__ == "builtins"


def test_a_result_keeps_what_it_carries_and_is_made_of_plain_values() -> None:
    given = ToolResult(
        content=(JsonBlock(Level.HIGH),),
        citations=(Citation(document="a.md", line=1),),
        metadata={"model": Model(a=1)},
        is_error=True,
        outcome="error",
    )
    result = to_result(given)
    assert result.citations == given.citations
    assert (result.is_error, result.outcome) == (True, "error")
    assert result.metadata == {"model": {"a": 1}}
    assert b"Model" not in pickle.dumps(result)


def _returns(value: object) -> object:
    return value


def _text(result: ToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextBlock)
    return block.text


class Doing(Tool):
    """A tool that does what it was made for."""

    name = "doing"

    def __init__(self, behaviour: Callable[[], Any]) -> None:
        self.behaviour = behaviour
        self.configured: list[Mapping[str, Any]] = []

    def configure(self, settings: Mapping[str, Any]) -> None:
        self.configured.append(settings)

    def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        return self.behaviour()


def _run(behaviour: Callable[[], Any]) -> ToolResult:
    return execute(Doing(behaviour), {}, ToolContext())


def _raise(error: BaseException) -> Callable[[], Any]:
    def behaviour() -> None:
        raise error

    return behaviour


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (KeyError("k"), "KeyError: 'k'"),
        (ValueError(), "ValueError"),
        (ToolFault("as it stands"), "as it stands"),
        (SystemExit(3), "SystemExit: the tool called exit, with exit code 3"),
        (SystemExit(), "SystemExit: the tool called exit, with exit code 0"),
        (Unspeakable(), "Unspeakable: (its message cannot be read)"),
        (ExceptionGroup("g", [ValueError("a"), OSError("b")]), "ExceptionGroup: ValueError: a; OSError: b"),
    ],
)
def test_what_a_tool_raises_is_an_error_that_the_model_reads(error: BaseException, text: str) -> None:
    result = _run(_raise(error))
    assert (result.is_error, result.outcome, _text(result)) == (True, "error", text)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_what_concerns_the_process_passes_through(error: BaseException) -> None:
    with pytest.raises(type(error)):
        _run(_raise(error))


def test_a_long_message_is_cut_with_a_note() -> None:
    text = _text(_run(_raise(ValueError("ü" * 5000))))
    assert len(text.encode()) <= MESSAGE_BYTES
    assert text.endswith("… (cut)")


@pytest.mark.parametrize("value", [b"\x89PNG", bytearray(b"x"), [TextBlock("a"), b"x"]])
def test_bytes_are_an_error_that_says_how_to_return_an_image(value: object) -> None:
    result = _run(lambda: value)
    assert result.is_error
    assert "ImageBlock(" in _text(result)


@pytest.mark.parametrize("value", [object(), {"a": object()}, [b"\xff"]])
def test_a_value_without_json_form_is_an_error_that_names_its_type(value: object) -> None:
    result = _run(lambda: value)
    assert result.is_error
    assert type(value).__name__ in _text(result)


def test_a_value_that_holds_itself_is_an_error() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert _run(lambda: ring).is_error


async def _async_value() -> str:
    return "async"


async def _async_failure() -> str:
    raise LookupError("inside")


async def _async_exit() -> str:
    raise SystemExit(4)


def _yields() -> Iterator[int]:
    yield 1
    yield 2


def _yields_and_returns() -> Any:
    yield 1
    return "returned"


def _yields_and_fails() -> Iterator[int]:
    yield 1
    raise ValueError("late")


async def _async_yields() -> AsyncIterator[str]:
    yield "a"
    yield "b"


@pytest.mark.parametrize(
    ("behaviour", "content"),
    [
        (_async_value, TextBlock("async")),
        (_yields, JsonBlock(2)),
        (_yields_and_returns, TextBlock("returned")),
        (_async_yields, TextBlock("b")),
        (lambda: iter(()), JsonBlock([])),
    ],
)
def test_async_functions_and_generators_run_to_their_last_value(
    behaviour: Callable[[], Any], content: object
) -> None:
    assert _run(behaviour).content == (content,)


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (_async_failure, "LookupError: inside"),
        (_async_exit, "SystemExit: the tool called exit, with exit code 4"),
        (_yields_and_fails, "ValueError: late"),
    ],
)
def test_failures_inside_coroutines_and_generators_are_errors(
    behaviour: Callable[[], Any], text: str
) -> None:
    assert _text(_run(behaviour)) == text


def test_a_tool_is_configured_with_its_settings_before_it_runs() -> None:
    doing = Doing(lambda: list(doing.configured))
    result = execute(doing, {}, ToolContext(settings={"a": 1}))
    assert result.content == (JsonBlock([{"a": 1}]),)


def test_arguments_of_a_function_are_checked_first() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert execute(add, {"a": 1}, ToolContext()).content == (JsonBlock(3),)
    refused = execute(add, {"a": "x"}, ToolContext())
    assert refused.is_error
    assert _text(refused).startswith("the arguments do not fit: a:")


def test_execution_adds_little_time_of_its_own() -> None:
    started = time.monotonic()
    for _ in range(200):
        _run(lambda: "x")
    assert time.monotonic() - started < 2.0


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("boom",))


def _deep(levels: int) -> list[Any]:
    return [_deep(levels - 1)] if levels > 1 else []


class _Sly(str):
    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no")


def _given(**fields: Any) -> ToolResult:
    return ToolResult(**fields)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (_given(citations=["docs/a.md"]), ["citations[0]", "str", "Citation("]),
        (_given(citations="zzz"), ["citations", "str", "tuple or list"]),
        (_given(citations=(Citation(line="3"),)), ["citations[0].line", "str"]),  # type: ignore[arg-type]
        (_given(citations=(Citation(page=10**5000),)), ["citations[0].page", "64 bits"]),
        (_given(citations=(Citation(url=_Bomb()),)), ["citations[0].url", "_Bomb"]),  # type: ignore[arg-type]
        (_given(is_error="no"), ["is_error", "str", "True or False"]),
        (_given(outcome=3), ["outcome", "int"]),
        (_given(outcome="fine"), ["outcome 'fine'", "ok, error"]),
        (_given(content="text"), ["content", "tuple or list"]),
        (_given(content=TextBlock("x")), ["content", "TextBlock"]),
        (_given(metadata=[1]), ["metadata", "mapping"]),
        (_given(metadata={"a": _Bomb()}), ["JSON"]),
        (TextBlock(_Bomb()), ["TextBlock.text", "_Bomb"]),  # type: ignore[arg-type]
        (ImageBlock(b"x", "image/png"), ["ImageBlock.data", "bytes", "base64"]),  # type: ignore[arg-type]
        (ImageBlock("aGk=", _Bomb()), ["ImageBlock.mime_type", "_Bomb"]),  # type: ignore[arg-type]
        (ResourceBlock(Path("/x")), ["ResourceBlock.uri", "Path"]),  # type: ignore[arg-type]
        (ResourceBlock("u", blob=_Bomb()), ["ResourceBlock.blob", "_Bomb"]),  # type: ignore[arg-type]
        (JsonBlock(10**5000), ["int", "JSON"]),
        ({"a": 10**5000}, ["dict", "JSON"]),
        (JsonBlock(-(10**5000)), ["int", "JSON"]),
        (_deep(150), ["nested"]),
    ],
)
def test_a_value_of_a_wrong_type_is_an_error_for_its_author(value: object, words: list[str]) -> None:
    result = _run(lambda: value)
    assert (result.is_error, result.outcome) == (True, "error")
    assert all(word in _text(result) for word in words), _text(result)


def test_a_huge_number_is_refused_even_where_the_tool_lifted_the_limit() -> None:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        assert _run(lambda: {"a": 10**5000}).is_error
        assert _run(lambda: 10**5000).is_error
    finally:
        sys.set_int_max_str_digits(before)


def test_every_field_that_leaves_is_of_an_exact_plain_type() -> None:
    sly = _Sly("x")

    class Mine(ResourceBlock):
        pass

    result = to_result(
        _given(
            content=[Mine(sly, sly, sly, sly), ImageBlock(sly, sly), TextBlock(sly), sly],
            outcome=_Sly("ok"),
            citations=[Citation(document=sly, line=Level.HIGH, score=float("nan"), page=None)],
        )
    )
    expected = ToolResult(
        content=(ResourceBlock("x", "x", "x", "x"), ImageBlock("x", "x"), TextBlock("x"), TextBlock("x")),
        citations=(Citation(document="x", line=3),),
    )
    assert result == expected
    assert pickle.dumps(result).count(b"_Sly") == pickle.dumps(result).count(b"Level") == 0
    assert type(result.content[0]) is ResourceBlock
