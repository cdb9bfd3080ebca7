"""What is found amiss with a tool before a model sees it, and that nothing is found where all is well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callboard.testing.tool_checks import faults_of
from callboard.testing.tools import check_tools
from callboard.tools.contract import Annotations, ToolSpec
from callboard.tools.limits import ConfiguredLimits

GOOD = ToolSpec(
    name="lint",
    description="Look for faults in a repository.",
    parameters={
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where it lies.", "pattern": "^/"},
            "rules": {"type": "array", "items": {"$ref": "#/$defs/Rule"}, "description": "Only these."},
            "level": {"$ref": "#/$defs/Level"},
        },
        "required": ["path"],
        "additionalProperties": False,
        "$defs": {
            "Rule": {"type": "object", "properties": {"id": {"type": ["string", "null"]}}},
            "Level": {"enum": [1, 2], "description": "How strict."},
        },
    },
)


def told(**changes: Any) -> str:
    return "\n".join(faults_of(replace(GOOD, **changes)))


def with_parameter(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}}


def test_a_good_tool_has_no_faults() -> None:
    assert faults_of(GOOD) == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"name": "a.b"}, "the name 'a.b' is not legal"),
        ({"description": " \n"}, "no description"),
        ({"description": "x" * 1025}, "1025 characters long"),
        ({"description": "hid\u200bden"}, "invisible characters"),
        ({"annotations": Annotations(read_only=True, destructive=True)}, "read_only and destructive"),
    ],
)
def test_words_and_annotations_are_looked_at(changes: dict[str, Any], says: str) -> None:
    assert says in told(**changes)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "array"}, "must be of 'type': 'object'"),
        ({"type": "object", "oneOf": [{"required": ["a"]}]}, "'oneOf' at the top"),
        ({"type": "object", "required": ["b"]}, "'b' is required, but"),
        (with_parameter({"type": "string"}), "the parameter 'a' has no description"),
        (with_parameter({"type": "text", "description": "d"}), "wrong at /properties/a/type"),
        (with_parameter({"type": "array", "description": "d"}), "the array at /properties/a"),
        (with_parameter({"enum": [], "description": "d"}), "wrong at /properties/a/enum"),
        (with_parameter({"minLength": -1, "description": "d"}), "wrong at /properties/a/minLength"),
        (with_parameter({"pattern": "(", "description": "d"}), "no regular expression"),
        (with_parameter({"$ref": "#/$defs/None", "description": "d"}), "'#/$defs/None', which is not in it"),
        (with_parameter({"$ref": "http://x/y.json", "description": "d"}), "which is not in it"),
        ({"type": "object", "properties": []}, "wrong at /properties"),
        ({"type": "object", "properties": {"ä b": {"description": "d"}}}, "the property name 'ä b'"),
        (with_parameter({"items": {"items": {"type": "array"}}, "description": "d"}), "/items/items"),
    ],
)
def test_schemas_are_looked_at_to_the_bottom(schema: dict[str, Any], says: str) -> None:
    assert says in told(parameters=schema)


def test_a_schema_made_to_be_slow_or_endless_is_a_fault_and_no_harm() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"type": "object", "properties": {"a": deep}}
    assert told(parameters=deep)
    wide = {str(number): {"anyOf": [{"type": "string"}] * 50} for number in range(2000)}
    assert told(parameters={"type": "object", "properties": wide})


def test_modules_are_loaded_as_a_system_loads_them(tmp_path: Path) -> None:
    head = 'from callboard import tool\nprint("loud")\n\n'
    body = '@tool\ndef {name}(a: int) -> int:\n    """Give it.\n\n    Args:\n        a: what\n    """\n    return a\n'
    files = {name: tmp_path / f"{name}.py" for name in ("first", "second", "quits", "builtin")}
    files["first"].write_text(head + body.format(name="give"))
    files["second"].write_text(head + body.format(name="give"))
    files["quits"].write_text("import sys\nsys.exit(0)\n")
    files["builtin"].write_text(head + body.format(name="calculate"))
    checked = check_tools(files.values(), {"give": ConfiguredLimits(deadline_s=2.0)})
    found = {one.module: one.faults for one in checked if one.faults}
    assert "already defined by" in found[str(files["second"])][0]
    assert "already defined by callboard.tools.builtin" in found[str(files["builtin"])][0]
    assert found[str(files["quits"])] == ("calls exit (0) when it is imported",)
    assert str(files["first"]) not in found
    assert {one.spec.deadline_s for one in checked if one.spec is not None and one.name == "give"} == {2.0}
