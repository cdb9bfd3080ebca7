"""Which properties and items of a value a schema has spoken of: what the ``unevaluated`` keywords leave alone.

Pure, called by ``applicators.py``. Where a pattern cannot be judged the property counts as spoken of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from callboard.tools.json_schema.problem import Path

if TYPE_CHECKING:
    from callboard.tools.json_schema.check import Check

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def named_properties(check: Check, value: dict[str, Any], schema: Mapping[str, Any]) -> set[str]:
    """Give the properties that ``properties`` and ``patternProperties`` speak of; in doubt they do."""
    known = set(value) & set(_mapping(schema, "properties"))
    for pattern in _mapping(schema, "patternProperties"):
        check.spend(len(value))
        known |= {name for name in value if check.patterns.matches(pattern, name) is not False}
    return known


def seen_properties(check: Check, value: dict[str, Any], schema: Mapping[str, Any], path: Path) -> set[str]:
    """Give the properties that the schema and those it applies in place speak of."""
    check.spend(1 + len(value))
    if "additionalProperties" in schema:
        return set(value)
    seen = named_properties(check, value, schema)
    for part in _in_place(check, value, schema, path):
        if "unevaluatedProperties" in part:
            return set(value)
        seen |= seen_properties(check, value, part, path)
    return seen


def seen_items(check: Check, value: list[Any], schema: Mapping[str, Any], path: Path) -> set[int]:
    """Give the indexes of the items that the schema and those it applies in place speak of."""
    check.spend(1 + len(value))
    listed = schema.get("items")
    if ("items" in schema and not isinstance(listed, list)) or "additionalItems" in schema:
        return set(range(len(value)))
    first = listed if isinstance(listed, list) else schema.get("prefixItems", ())
    seen = set(range(min(len(value), len(first))))
    if "contains" in schema:
        wanted = schema["contains"]
        seen |= {index for index, item in enumerate(value) if check.fits(item, wanted, (*path, index))}
    for part in _in_place(check, value, schema, path):
        if "unevaluatedItems" in part:
            return set(range(len(value)))
        seen |= seen_items(check, value, part, path)
    return seen


def _in_place(check: Check, value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Mapping[str, Any]]:
    """The schemas that this one applies to the same value, and that it fits."""
    for part in _applied(check, value, schema, path):
        if isinstance(part, Mapping) and check.fits(value, part, path):
            yield part


def _applied(check: Check, value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Any]:
    for reference in _REFERENCES:
        if reference in schema:
            yield check.resolve(schema[reference])
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts = schema.get(keyword)
        yield from parts if isinstance(parts, list) else ()
    if "if" in schema:
        if check.fits(value, schema["if"], path):
            yield from (schema["if"], schema.get("then"))
        else:
            yield schema.get("else")
    if isinstance(value, dict):
        yield from (part for name, part in _mapping(schema, "dependentSchemas").items() if name in value)


def _mapping(schema: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, Mapping) else {}
