"""The keywords of JSON Schema that descend: into the parts of a value, or into other schemas for the same value.

Pure. Each is a row of ``APPLICATORS`` and yields problems. A keyword whose own value makes no sense asserts nothing.
Called by ``check.py``, which counts the work and is handed along as ``check``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from callboard.tools.json_schema.problem import Path, Problem
from callboard.tools.json_schema.unevaluated import named_properties, seen_items, seen_properties
from callboard.tools.json_schema.values import is_number, shown

if TYPE_CHECKING:
    from callboard.tools.json_schema.check import Check

_CLOSEST = 3

Applicator: TypeAlias = Callable[["Check", Any, Any, Mapping[str, Any], Path], Iterator[Problem]]


def _reference(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    yield from check.follow(wanted, value, path)


def _all_of(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    for part in _list(wanted):
        yield from check.problems(value, part, path)


def _any_of(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    first: list[Problem] = []
    for part in _list(wanted):
        problem = next(check.problems(value, part, path), None)
        if problem is None:
            return
        first.append(problem)
    if first:
        yield Problem(path, f"{shown(value)} fits none of the forms that are allowed here{_closest(first)}")


def _one_of(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    found = [next(check.problems(value, part, path), None) for part in _list(wanted)]
    fitting = sum(problem is None for problem in found)
    if found and not fitting:
        closest = _closest([problem for problem in found if problem is not None])
        yield Problem(path, f"{shown(value)} fits none of the forms that are allowed here{closest}")
    elif fitting > 1:
        yield Problem(path, f"{shown(value)} fits {fitting} forms of which it must fit exactly one")


def _not(check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    if isinstance(wanted, Mapping | bool) and check.fits(value, wanted, path):
        yield Problem(path, f"{shown(value)} must not fit {shown(wanted)}")


def _if(check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    branch = "then" if check.fits(value, wanted, path) else "else"
    yield from check.problems(value, schema.get(branch, True), path)


def _properties(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, dict) and isinstance(wanted, Mapping):
        for name, part in wanted.items():
            if name in value:
                yield from check.problems(value[name], part, (*path, name))


def _pattern_properties(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, dict) and isinstance(wanted, Mapping):
        for pattern, part in wanted.items():
            check.spend(len(value))
            for name in value:
                if check.patterns.matches(pattern, name):
                    yield from check.problems(value[name], part, (*path, name))


def _additional_properties(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, dict):
        known = named_properties(check, value, schema)
        yield from _others(check, wanted, value, known, schema, path)


def _unevaluated_properties(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, dict):
        yield from _others(check, wanted, value, seen_properties(check, value, schema, path), schema, path)


def _others(
    check: Check, wanted: Any, value: Any, known: set[str], schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    for name in value:
        if name in known:
            continue
        if wanted is False:
            names = ", ".join(schema.get("properties", {})) or "none"
            yield Problem(path, f"there is no property {shown(name)}; known are: {names}")
        else:
            yield from check.problems(value[name], wanted, (*path, name))


def _property_names(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, dict):
        for name in value:
            yield from check.problems(name, wanted, (*path, name))


def _dependent(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, dict) and isinstance(wanted, Mapping):
        for name, part in wanted.items():
            if name in value and isinstance(part, Mapping | bool):
                yield from check.problems(value, part, path)


def _pattern(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, str) and check.patterns.matches(wanted, value) is False:
        yield Problem(path, f"{shown(value)} does not match the pattern {shown(wanted)}")


def _items(check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path) -> Iterator[Problem]:
    if not isinstance(value, list):
        return
    if isinstance(wanted, list):  # before 2020-12, what is prefixItems now
        yield from _prefix_items(check, wanted, value, schema, path)
        return
    for index in range(len(_list(schema.get("prefixItems"))), len(value)):
        yield from check.problems(value[index], wanted, (*path, index))


def _prefix_items(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, list):
        for index, (item, part) in enumerate(zip(value, _list(wanted), strict=False)):
            yield from check.problems(item, part, (*path, index))


def _additional_items(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    listed = schema.get("items")
    if isinstance(value, list) and isinstance(listed, list):
        for index in range(len(listed), len(value)):
            yield from check.problems(value[index], wanted, (*path, index))


def _unevaluated_items(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if isinstance(value, list):
        seen = seen_items(check, value, schema, path)
        for index in sorted(set(range(len(value))) - seen):
            yield from check.problems(value[index], wanted, (*path, index))


def _contains(
    check: Check, wanted: Any, value: Any, schema: Mapping[str, Any], path: Path
) -> Iterator[Problem]:
    if not isinstance(value, list):
        return
    found = sum(check.fits(item, wanted, (*path, index)) for index, item in enumerate(value))
    least, most = schema.get("minContains", 1), schema.get("maxContains")
    if is_number(least) and found < least:
        yield Problem(path, f"{shown(value)} holds {found} items that fit {shown(wanted)}, not {least}")
    if is_number(most) and found > most:  # type: ignore[operator]
        yield Problem(
            path, f"{shown(value)} holds {found} items that fit {shown(wanted)}, not at most {most}"
        )


def _list(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else []


def _closest(found: list[Problem]) -> str:
    return "; closest: " + " or ".join(problem.message for problem in found[:_CLOSEST])


APPLICATORS: Mapping[str, Applicator] = {
    "$ref": _reference,
    "$dynamicRef": _reference,
    "$recursiveRef": _reference,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "propertyNames": _property_names,
    "dependentSchemas": _dependent,
    "dependencies": _dependent,
    "pattern": _pattern,
    "items": _items,
    "prefixItems": _prefix_items,
    "additionalItems": _additional_items,
    "unevaluatedItems": _unevaluated_items,
    "contains": _contains,
}
