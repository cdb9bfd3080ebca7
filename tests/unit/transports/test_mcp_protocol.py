"""Reading MCP objects: what is used, what is mended, what is refused and why."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.transports.mcp_effects import CallFailed, CallResult
from callboard.transports.mcp_protocol import (
    modern_meta,
    read_call_result,
    read_page,
    read_progress,
    read_tool,
)


def tool(schema: Any, name: Any = "t") -> dict[str, Any]:
    return {"name": name, "inputSchema": schema}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": True, "b": {"$ref": "#/$defs/b"}}, "$defs": {"b": {}}},
        {"type": "object", "required": ["a"], "additionalProperties": False, "x-odd": 1},
    ],
)
def test_a_good_schema_keeps_every_keyword(schema: dict[str, Any]) -> None:
    assert read_tool(tool(schema)) == tool(schema)


def test_a_schema_without_type_is_completed() -> None:
    assert read_tool(tool({})) == tool({"type": "object"})


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (None, "not an object"),
        (tool({"type": "object"}, name=""), "usable name"),
        (tool({"type": "object"}, name=7), "usable name"),
        (tool({"type": "object"}, name="x" * 257), "usable name"),
        ({"name": "t"}, "not an object schema"),
        (tool(None), "not an object schema"),
        (tool("object"), "not an object schema"),
        (tool({"type": "array"}), "type 'array'"),
        (tool({"type": ["object", "null"]}), "type"),
        (tool({"type": "object", "properties": None}), "properties"),
        (tool({"type": "object", "properties": {"a": "string"}}), "properties"),
        (tool({"type": "object", "required": "a"}), "required"),
        (tool({"type": "object", "required": [1]}), "required"),
    ],
)
def test_a_bad_tool_is_refused_and_says_why(element: Any, words: str) -> None:
    problem = read_tool(element)
    assert isinstance(problem, str) and words in problem


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"content": []}, CallResult("r", (), None, False)),
        (
            {"content": [{"type": "text"}, None, 7, {"type": "odd"}]},
            CallResult("r", ({"type": "text"}, {"type": "odd"}), None, False),
        ),
        ({"content": [], "isError": True}, CallResult("r", (), None, True)),
        ({"content": [], "isError": "yes"}, CallResult("r", (), None, False)),
        ({"structuredContent": [1]}, CallResult("r", (), [1], False)),
        ({"content": None, "structuredContent": None}, CallResult("r", (), None, False)),
        (
            {"content": [], "resultType": "complete", "_meta": {"a": 1}},
            CallResult("r", (), None, False, {"a": 1}),
        ),
    ],
)
def test_a_tool_result_is_read(result: Any, expected: CallResult) -> None:
    assert read_call_result("r", result) == expected


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "not an object"),
        ([], "not an object"),
        ({}, "neither content nor structuredContent"),
        ({"content": "text"}, "neither content nor structuredContent"),
        ({"resultType": "input_required", "requestState": "x"}, "asks for input"),
        ({"resultType": "task"}, "unknown type 'task'"),
        ({"resultType": {}}, "neither"),
    ],
)
def test_what_is_no_tool_result_fails_the_call(result: Any, words: str) -> None:
    failed = read_call_result("r", result)
    assert isinstance(failed, CallFailed) and failed.kind == "bad_result" and words in failed.message


@pytest.mark.parametrize(
    ("result", "page"),
    [
        ({"tools": []}, ([], None)),
        ({"tools": [1], "nextCursor": ""}, ([1], "")),
        ({"tools": [], "nextCursor": None}, ([], None)),
        ({"tools": [], "nextCursor": 7}, ([], None)),
    ],
)
def test_a_page_is_read_and_the_empty_cursor_is_a_cursor(result: Any, page: Any) -> None:
    assert read_page(result) == page


@pytest.mark.parametrize("result", [None, [], {}, {"tools": None}])
def test_what_is_no_page_says_so(result: Any) -> None:
    assert isinstance(read_page(result), str)


@pytest.mark.parametrize(
    ("params", "reading"),
    [
        ({"progress": 1, "total": 2, "message": "m"}, (1.0, 2.0, "m")),
        ({"progress": 0.5}, (0.5, None, None)),
        ({"progress": 1, "total": "2", "message": 3}, (1.0, None, None)),
        ({}, None),
        ({"progress": True}, None),
        ({"progress": "1"}, None),
        ({"progress": 10**400}, None),
    ],
)
def test_progress_is_read(params: Any, reading: Any) -> None:
    assert read_progress(params) == reading


def test_every_modern_request_names_version_capabilities_and_client() -> None:
    meta = modern_meta({"name": "n", "version": "v"})
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["io.modelcontextprotocol/clientInfo"] == {"name": "n", "version": "v"}
