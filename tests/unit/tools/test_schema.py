"""Specs in the form of chat-completions functions."""

from __future__ import annotations

from callboard.tools.contract import ToolSpec
from callboard.tools.schema import openai_tool, openai_tools


def _spec(name: str, **parameters: object) -> ToolSpec:
    return ToolSpec(name=name, description=f"Does {name}.", parameters=parameters)


def test_a_spec_becomes_a_function() -> None:
    parameters = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert openai_tool(_spec("x", **parameters)) == {
        "type": "function",
        "function": {"name": "x", "description": "Does x.", "parameters": parameters},
    }


def test_what_endpoints_refuse_is_put_right() -> None:
    form = openai_tool(_spec("x", **{"$schema": "https://json-schema.org/draft/2020-12/schema"}))
    assert form["function"]["parameters"] == {"type": "object", "properties": {}}


def test_a_set_is_in_the_order_of_names() -> None:
    one_way = openai_tools([_spec("b"), _spec("a"), _spec("c")])
    assert [form["function"]["name"] for form in one_way] == ["a", "b", "c"]
    assert openai_tools([_spec("c"), _spec("b"), _spec("a")]) == one_way
