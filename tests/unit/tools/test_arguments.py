"""The model's JSON text becomes arguments, or a message with which it can mend them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from callboard.tools.arguments import MAX_CHARS, ArgumentFault, parse_arguments, with_defaults

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1},
        "filters": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}},
        },
        "unit": {"anyOf": [{"const": "c"}, {"const": "f"}]},
    },
    "required": ["city"],
    "additionalProperties": False,
}
ANYTHING: dict[str, Any] = {"type": "object"}


@pytest.mark.parametrize("text", ["", "  \n", "null", " null ", "{}"])
def test_nothing_at_all_means_no_arguments(text: str) -> None:
    assert parse_arguments(text, ANYTHING) == {}


def test_fitting_arguments_are_given_as_they_are() -> None:
    assert parse_arguments('{"city": "Köln", "days": 2}', SCHEMA) == {"city": "Köln", "days": 2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"city": "x"', ["not valid JSON", "line 1", "column"]),
        ("{'city': 'x'}", ["not valid JSON", "column 2"]),
        ('{"city": "x"} trailing', ["not valid JSON", "trailing"]),
        ('["x"]', ["JSON object", "an array"]),
        ('"{}"', ["JSON object", "twice"]),
        ("3", ["JSON object", "a number"]),
        ("true", ["JSON object", "a boolean"]),
        ('{"days": NaN}', ["NaN"]),
        ('{"city": "\\ud800"}', ["surrogate"]),
        ('{"days": ' + "9" * 5000 + "}", ["not valid JSON"]),
        ("", ["city", "required"]),
        ("{}", ["city", "required"]),
        ('{"city": 1}', ["/city", "string"]),
        ('{"city": ""}', ["/city"]),
        ('{"city": "x", "days": 0}', ["/days", "minimum"]),
        ('{"city": "x", "filters": [{}, {"price": "a"}]}', ["/filters/1/price", "number"]),
        ('{"city": "x", "colour": 1}', ["colour", "known are: city, days, filters, unit"]),
        ('{"city": "x", "unit": "k"}', ["/unit", '"c" was expected']),
        ('{"city": 1, "days": 0}', ["/city", "/days"]),
    ],
)
def test_a_fault_says_what_is_wrong_and_where(text: str, words: list[str]) -> None:
    fault = parse_arguments(text, SCHEMA)
    assert isinstance(fault, ArgumentFault)
    assert all(word in fault.message for word in words), fault.message


@pytest.mark.parametrize("depth", [65, 100_000])
def test_deep_nesting_is_a_fault(depth: int) -> None:
    fault = parse_arguments('{"a":' * depth + "1" + "}" * depth, ANYTHING)
    assert isinstance(fault, ArgumentFault)
    assert "nested too deeply" in fault.message


def test_too_long_a_text_is_a_fault() -> None:
    fault = parse_arguments('{"a": "' + "x" * MAX_CHARS + '"}', ANYTHING)
    assert isinstance(fault, ArgumentFault)
    assert str(MAX_CHARS) in fault.message


def test_a_fault_stays_short_when_the_arguments_are_long() -> None:
    fault = parse_arguments('{"city": ' + str(list(range(50_000))) + "}", SCHEMA)
    assert isinstance(fault, ArgumentFault)
    assert len(fault.message) < 2000


def test_many_problems_are_cut_at_five() -> None:
    fault = parse_arguments('{"filters": [' + ",".join(['{"price": "x"}'] * 50) + '], "city": "x"}', SCHEMA)
    assert isinstance(fault, ArgumentFault)
    assert fault.message.count("/price") == 5


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (
            {"type": "object", "properties": {"a": {"$ref": "https://example.invalid/x.json"}}},
            "example.invalid",
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/gone"}}}, "gone"),
        ({"type": "nonsense"}, "broken"),
        ({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}, "circles"),
    ],
)
def test_a_broken_schema_is_told_and_never_fetched(schema: dict[str, Any], word: str) -> None:
    fault = parse_arguments('{"a": 1}', schema)
    assert isinstance(fault, ArgumentFault)
    assert "schema is broken" in fault.message
    assert word in fault.message


def test_references_that_double_at_each_level_do_not_take_for_ever() -> None:
    levels = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(40)}
    schema = {"$defs": {**levels, "l40": {}}, "$ref": "#/$defs/l0"}
    assert isinstance(parse_arguments("{}", schema), ArgumentFault)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("place", "fits"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}, False),
        ({"patternProperties": {"^(a+)+$": {"type": "string"}}, "additionalProperties": False}, True),
        ({"properties": {"a": {"pattern": r"^\p{L}+$"}}}, False),
        ({"properties": {"a": {"pattern": r"^(a|aa)+(?=x)"}}}, True),
        ({"properties": {"a": {"pattern": "((a{500}){500}){500}"}}}, True),
        ({"unevaluatedProperties": False, "patternProperties": {"^(a+)+$": True}}, True),
    ],
)
def test_hostile_expressions_of_a_schema_cost_nothing(place: dict[str, Any], fits: bool) -> None:
    hostile = "a" * 16_000 + "!"
    parsed = parse_arguments(f'{{"a": "{hostile}"}}', {"type": "object", **place})
    assert (parsed == {"a": hostile}) is fits


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"items": {"allOf": [{"minimum": 0}] * 500}}}},
        {
            "properties": {"a": {"uniqueItems": True, "items": {"uniqueItems": True}}},
            "allOf": [{"uniqueItems": True}],
        },
        {"properties": {"a": {"allOf": [{"contains": {"const": n}} for n in range(900)]}}},
        {"properties": {"a": {"allOf": [{"enum": [list(range(900))]}] * 900}}},
        {"properties": {"a": {"unevaluatedItems": False, "anyOf": [{"contains": {"const": 1}}] * 50}}},
    ],
)
def test_a_schema_that_asks_for_endless_work_is_given_up(schema: dict[str, Any]) -> None:
    parse_arguments('{"a": ' + str(list(range(100_000))) + "}", {"type": "object", **schema})


def test_a_schema_may_name_an_older_draft() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/n"}},
        "definitions": {"n": {"type": "integer"}},
    }
    assert parse_arguments('{"a": 1}', schema) == {"a": 1}
    assert isinstance(parse_arguments('{"a": "x"}', schema), ArgumentFault)


def test_checking_arguments_stays_slim() -> None:
    check = (
        "import sys, callboard.tools.arguments as a; a.parse_arguments('{}', {'required': ['x']}); "
        "sys.exit(bool({'jsonschema', 'pydantic', 'pydantic_core', 'referencing'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=30, check=False).returncode == 0


def test_defaults_of_the_schema_are_what_the_tool_will_see() -> None:
    schema = {"properties": {"path": {"default": "/"}, "deep": {"type": "boolean"}}}
    assert with_defaults({"deep": True}, schema) == {"path": "/", "deep": True}
    assert with_defaults({"path": "/x"}, schema) == {"path": "/x"}
