"""A typed function becomes a tool, or is refused at once with words that help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from callboard.tools.contract import DEFAULT_DEADLINE_S, Annotations, ToolContext
from callboard.tools.decorator import FunctionTool, Tool, tool
from callboard.tools.errors import ArgumentsRefused, ToolDefinitionError


class Filter(BaseModel):
    title: str
    limit: int = 3


@dataclass
class Point:
    x: float
    y: float = 0.0


@tool
def search(
    query: str,
    context: ToolContext,
    where: Filter | None = None,
    order: Literal["asc", "desc"] = "asc",
    tags: Annotated[list[str] | None, Field(description="from the hint")] = None,
) -> str:
    """Search things.

    Args:
        query: What to look for.
        tags: From the docstring.
    """
    return f"{query} {where} {order} {tags} {context.user}"


def test_the_schema_comes_from_signature_and_docstring() -> None:
    schema = search.parameters
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["query"]
    assert list(schema["properties"]) == ["query", "where", "order", "tags"]
    assert schema["properties"]["query"] == {"type": "string", "description": "What to look for."}
    assert schema["properties"]["order"]["enum"] == ["asc", "desc"]
    assert schema["properties"]["tags"]["description"] == "from the hint"
    assert schema["$defs"]["Filter"]["properties"]["title"] == {"type": "string"}
    assert search.description == "Search things."


def test_a_decorated_function_is_still_called_like_the_function() -> None:
    assert search("a", ToolContext(user="eva")) == "a None asc None eva"
    assert search.__doc__ is not None and search.__doc__.startswith("Search things.")
    assert list(inspect.signature(search).parameters) == ["query", "context", "where", "order", "tags"]


def test_execute_converts_arguments_and_fills_in_the_context() -> None:
    result = search.execute({"query": "a", "where": {"title": "t"}}, ToolContext(user="eva"))
    assert result == "a title='t' limit=3 asc None eva"


def test_what_is_left_out_keeps_the_functions_own_default() -> None:
    marker = ["own"]

    @tool
    def keep(items: list[str] = marker) -> bool:
        return items is marker

    assert keep.execute({}, ToolContext()) is True


def test_names_that_pydantic_keeps_for_itself_are_legal_parameters() -> None:
    @tool
    def odd(schema: str, json: int, model_config: bool, copy: float = 1.0, _hidden: int = 2) -> list[Any]:
        return [schema, json, model_config, copy, _hidden]

    assert list(odd.parameters["properties"]) == ["schema", "json", "model_config", "copy", "_hidden"]
    assert odd.execute({"schema": "s", "json": 1, "model_config": True}, ToolContext()) == [
        "s",
        1,
        True,
        1.0,
        2,
    ]


def test_a_dataclass_parameter_arrives_as_that_dataclass() -> None:
    @tool
    def plot(point: Point) -> Point:
        return point

    assert plot.execute({"point": {"x": 1}}, ToolContext()) == Point(1.0, 0.0)


def test_a_tool_without_parameters_has_an_empty_object_schema() -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert ping.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


def test_options_become_name_limits_and_annotations() -> None:
    @tool(name="del-all", deadline_s=2.0, memory_mb=256, destructive=True, idempotent=True, open_world=True)
    def delete_all() -> None:
        """Delete."""

    assert (delete_all.name, delete_all.deadline_s, delete_all.memory_mb) == ("del-all", 2.0, 256)
    assert delete_all.annotations == Annotations(destructive=True, idempotent=True, open_world=True)
    assert search.deadline_s == DEFAULT_DEADLINE_S


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["query", "required"]),
        ({"query": 1}, ["query", "string"]),
        ({"query": "a", "limit": 1}, ["limit", "not permitted"]),
        ({"query": "a", "where": {"title": "t", "limit": "x"}}, ["where/limit", "integer"]),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(arguments: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ArgumentsRefused) as refused:
        search.execute(arguments, ToolContext())
    assert all(word in str(refused.value) for word in words)
    assert "https://" not in str(refused.value)


def _star(*args: int) -> None: ...
def _double_star(**options: int) -> None: ...
def _bare(x) -> None: ...  # type: ignore[no-untyped-def]
def _positional(x: int, /) -> None: ...
def _unknown(x: NoSuchType) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _no_schema(x: int, y: inspect.Signature) -> None: ...
def _callable(f: Callable[[int], int]) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_star, ["_star", "'args'", "list"]),
        (_double_star, ["_double_star", "'options'", "dict"]),
        (_bare, ["_bare", "'x'", "no annotation"]),
        (_positional, ["_positional", "'x'", "'/'"]),
        (_unknown, ["_unknown", "'x'", "NoSuchType", "top level"]),
        (_no_schema, ["_no_schema", "'y'", "no JSON Schema"]),
        (_callable, ["_callable", "no JSON Schema"]),
    ],
)
def test_a_signature_that_cannot_work_is_refused_when_decorated(
    function: Callable[..., Any], words: list[str]
) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        tool(function)
    assert all(word in str(refused.value) for word in words), str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "é", "x" * 65, "a.b", "a\n"])
def test_an_illegal_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=r"(?s)_no_arguments.*1 to 64 characters"):
        tool(name=name)(_no_arguments)


def _no_arguments() -> None: ...


@pytest.mark.parametrize("deadline_s", [0.0, -1.0, float("nan")])
def test_a_deadline_must_be_above_zero(deadline_s: float) -> None:
    with pytest.raises(ToolDefinitionError, match="deadline_s"):
        tool(deadline_s=deadline_s)(_no_arguments)


def test_memory_must_be_above_zero() -> None:
    with pytest.raises(ToolDefinitionError, match="memory_mb"):
        tool(memory_mb=0)(_no_arguments)


def test_a_method_is_refused_with_a_pointer_to_the_class_form() -> None:
    with pytest.raises(ToolDefinitionError, match="subclass Tool"):

        class Holder:
            @tool
            def method(self, x: int) -> None: ...


def test_only_functions_are_decorated_and_once() -> None:
    with pytest.raises(ToolDefinitionError, match="already"):
        tool(search)
    with pytest.raises(ToolDefinitionError, match="derive from Tool"):
        tool(Filter)


def test_a_decorated_function_is_a_tool() -> None:
    assert isinstance(search, FunctionTool)
    assert isinstance(search, Tool)
    assert repr(search) == "<tool search>"


def test_the_context_may_be_optional_in_the_signature() -> None:
    @tool
    def who(context: ToolContext | None = None) -> str:
        return context.user if context else "nobody"

    assert who.parameters["properties"] == {}
    assert who.execute({}, ToolContext(user="eva")) == "eva"
