"""What a tool's author should mend: its name, its words, its schema and what it says of itself. Pure.

The rules are JSON Schema's own and those of the providers: what one of them is known to refuse is a fault, for a tool
that is offered makes all of a request fail. It runs nothing. ``callboard tools test`` and ``callboard.testing.tools``
call it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from callboard.tools.contract import ToolSpec
from callboard.tools.definitions import screened
from callboard.tools.json_schema.check import Check, problems_of
from callboard.tools.json_schema.problem import BrokenSchema, TooMuchWork

MAX_DESCRIPTION = 1024
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "enum", "not")
_TYPES = ["array", "boolean", "integer", "null", "number", "object", "string"]
_SCHEMA = {"$ref": "#"}
_SCHEMAS = {"type": "array", "items": _SCHEMA, "minItems": 1}
_NAMED_SCHEMAS = {"type": "object", "additionalProperties": _SCHEMA}
_COUNT = {"type": "integer", "minimum": 0}
_NUMBER = {"type": "number"}
_TEXTS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
_TYPE = {"enum": _TYPES}
SCHEMA_OF_SCHEMAS: Mapping[str, Any] = {
    "type": ["object", "boolean"],
    "properties": {
        "type": {"anyOf": [_TYPE, {"type": "array", "items": _TYPE, "minItems": 1, "uniqueItems": True}]},
        "enum": {"type": "array", "minItems": 1},
        "description": {"type": "string"},
        "title": {"type": "string"},
        "pattern": {"type": "string"},
        "format": {"type": "string"},
        "$ref": {"type": "string"},
        "required": _TEXTS,
        **dict.fromkeys(
            ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"), _NAMED_SCHEMAS
        ),
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), _SCHEMAS),
        **dict.fromkeys(
            (
                "not",
                "if",
                "then",
                "else",
                "contains",
                "additionalProperties",
                "unevaluatedProperties",
                "propertyNames",
            ),
            _SCHEMA,
        ),
        "items": {"anyOf": [_SCHEMA, _SCHEMAS]},
        **dict.fromkeys(
            ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT
        ),
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
        "multipleOf": {"type": "number", "exclusiveMinimum": 0},
        "uniqueItems": {"type": "boolean"},
    },
}


def faults_of(spec: ToolSpec) -> tuple[str, ...]:
    """Say what is to be mended in a tool, a sentence each; nothing when all is well."""
    faults = (*_of_name(spec), *_of_description(spec), *_of_annotations(spec), *_of_schema(spec))
    return tuple(dict.fromkeys(faults))


def _of_name(spec: ToolSpec) -> Iterator[str]:
    if not _NAME.fullmatch(spec.name):
        yield f"the name {spec.name!r} is not legal: 1 to 64 characters out of A-Z a-z 0-9 _ and -"


def _of_description(spec: ToolSpec) -> Iterator[str]:
    if not spec.description.strip():
        yield "it has no description: without one the model does not know what the tool is for"
    elif len(spec.description) > MAX_DESCRIPTION:
        size = len(spec.description)
        yield f"its description is {size} characters long: some providers take at most {MAX_DESCRIPTION}"
    form = {"name": spec.name, "description": spec.description, "inputSchema": spec.parameters}
    yield from screened([form]).flags


def _of_annotations(spec: ToolSpec) -> Iterator[str]:
    said = spec.annotations
    if said.read_only and said.destructive:
        yield "it says read_only and destructive: it can be one of them only"


def _of_schema(spec: ToolSpec) -> Iterator[str]:
    schema = spec.parameters
    try:
        broken = [
            f"its schema is wrong at /{'/'.join(map(str, problem.path))}: {problem.message}"
            for problem in problems_of(schema, SCHEMA_OF_SCHEMAS)
        ]
    except TooMuchWork as fault:
        broken = [f"its schema is too large: {fault}"]
    if broken:
        yield from broken
        return
    if schema.get("type") != "object":
        yield "its schema must be of 'type': 'object'"
    for keyword in _NOT_AT_THE_TOP:
        if keyword in schema:
            yield f"its schema has {keyword!r} at the top, which some providers refuse: put it in a property"
    yield from _of_parameters(schema)
    for path, part in _parts(schema, ""):
        yield from _of_part(schema, path, part)


def _of_parameters(schema: Mapping[str, Any]) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in properties:
            yield f"the parameter {name!r} is required, but its schema does not have it"
    for name, part in properties.items():
        if not _described(schema, part):
            yield f"the parameter {name!r} has no description"


def _described(schema: Mapping[str, Any], part: Any) -> bool:
    """A reference may lead to the description."""
    if not isinstance(part, Mapping):
        return False
    if str(part.get("description", "")).strip():
        return True
    return (
        "$ref" in part
        and isinstance(target := _target(schema, part["$ref"]), Mapping)
        and bool(str(target.get("description", "")).strip())
    )


def _target(schema: Mapping[str, Any], reference: str) -> Any:
    try:
        return Check(schema).resolve(reference)
    except (BrokenSchema, TooMuchWork):
        return None


def _of_part(schema: Mapping[str, Any], path: str, part: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in part and _target(schema, part["$ref"]) is None:
        yield f"its schema refers at {path or '/'} to {part['$ref']!r}, which is not in it"
    if part.get("type") == "array" and not {"items", "prefixItems"} & part.keys():
        yield f"the array at {path or '/'} does not say what its items are, which some providers refuse"
    if "pattern" in part and not _compiles(part["pattern"]):
        yield f"the pattern at {path or '/'} is no regular expression"
    for name in part.get("properties", {}):
        if not _PROPERTY.fullmatch(name):
            yield f"the property name {name!r} is refused by some providers: use A-Z a-z 0-9 _ . and -, at most 64"


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _parts(schema: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Give every schema in a well-formed schema, with its JSON pointer."""
    if not isinstance(schema, Mapping):
        return
    yield path, schema
    for keyword, value in schema.items():
        known = SCHEMA_OF_SCHEMAS["properties"].get(keyword)
        here = f"{path}/{keyword}"
        if known is _NAMED_SCHEMAS:
            for name, inner in value.items():
                yield from _parts(inner, f"{here}/{name}")
        elif isinstance(value, list) and (known is _SCHEMAS or keyword == "items"):
            for number, inner in enumerate(value):
                yield from _parts(inner, f"{here}/{number}")
        elif known is _SCHEMA or keyword == "items":
            yield from _parts(value, here)
