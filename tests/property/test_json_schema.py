"""Our check of a value by a JSON Schema says what the jsonschema package says, on schemas of every shape."""

from __future__ import annotations

import string
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.tools.json_schema.check import problems_of
from callboard.tools.json_schema.problem import BrokenSchema, TooMuchWork

NAMES = st.sampled_from(["a", "b", "ab", "c"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 5), st.sampled_from([0.5, 1.0, 2.5]), st.text("ab", max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
SIZES = st.integers(0, 3)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "null", "object", "array"])
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#leaf"])


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = st.lists(inner, min_size=1, max_size=2)
    by_name = st.dictionaries(NAMES, inner, max_size=2)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": st.one_of(TYPES, st.lists(TYPES, min_size=1, max_size=2, unique=True)),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": SIZES,
        "exclusiveMaximum": SIZES,
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": SIZES,
        "maxLength": SIZES,
        "minItems": SIZES,
        "maxItems": SIZES,
        "uniqueItems": st.booleans(),
        "minProperties": SIZES,
        "maxProperties": SIZES,
        "required": st.lists(NAMES, unique=True, max_size=2),
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, unique=True, max_size=2), max_size=1),
        "pattern": st.sampled_from(["^a", "b$", "a{2}", "^[ab]*$"]),
        "properties": by_name,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), inner, max_size=1),
        "additionalProperties": inner,
        "propertyNames": inner,
        "dependentSchemas": by_name,
        "items": inner,
        "prefixItems": some,
        "contains": inner,
        "minContains": SIZES,
        "maxContains": SIZES,
        "allOf": some,
        "anyOf": some,
        "oneOf": some,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
        "$ref": REFERENCES,
    }
    pairs = st.one_of([st.tuples(st.just(name), value) for name, value in keywords.items()])
    return st.lists(pairs, min_size=1, max_size=3).map(dict)


SCHEMAS = st.recursive(st.booleans(), _schemas, max_leaves=8)


@st.composite
def roots(draw: st.DrawFn) -> dict[str, Any]:
    root = draw(_schemas(SCHEMAS))
    leaf = {"$anchor": "leaf", **draw(st.sampled_from([{"type": "string"}, {"minimum": 1}, {}]))}
    return {**root, "$defs": {"a": draw(SCHEMAS), "b": draw(st.booleans()), "leaf": leaf}}


def _theirs(value: Any, schema: dict[str, Any]) -> bool | None:
    try:
        return bool(jsonschema.Draft202012Validator(schema).is_valid(value))
    except RecursionError:
        return None


@settings(max_examples=150, deadline=None)
@given(VALUES, roots())
def test_we_agree_with_jsonschema(value: Any, schema: dict[str, Any]) -> None:
    theirs = _theirs(value, schema)
    try:
        ours = not problems_of(value, schema)
    except (BrokenSchema, TooMuchWork):
        assert theirs is None or "$ref" in str(schema)
        return
    assert theirs is None or ours is theirs


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.one_of(SCALARS, st.text(string.printable, max_size=5)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["$ref", "type", "properties", "items", "allOf", "required", "enum"]), inner
            ),
        ),
    ),
    VALUES,
)
def test_no_schema_makes_it_raise_anything_else(schema: Any, value: Any) -> None:
    try:
        problems_of(value, schema if isinstance(schema, dict | bool) else {"allOf": [schema]})
    except (BrokenSchema, TooMuchWork):
        return
