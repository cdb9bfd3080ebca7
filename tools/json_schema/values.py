"""What JSON Schema asserts of one value by itself: types, numbers, lengths, names, equality.

Pure. Each assertion is a row of ``ASSERTIONS``: given the keyword's value, the instance and the schema around it, it
yields what is wrong, in words. A keyword whose own value makes no sense asserts nothing, but for ``type``. What
descends into other schemas is in
``applicators.py``. Called by ``check.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from callboard.tools.json_schema.problem import BrokenSchema

Assertion: TypeAlias = Callable[[Any, Any, Mapping[str, Any]], Iterator[str]]
_SHOWN = 80


def is_number(value: object) -> bool:
    """True for a JSON number: ``true`` is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_of_type(value: object, name: object) -> bool:
    """True when ``value`` is of JSON Schema's type ``name``; raises BrokenSchema for a type that does not exist."""
    test = _TYPES.get(name) if isinstance(name, str) else None
    if test is None:
        raise BrokenSchema(f"there is no type {shown(name)}")
    return test(value)


def frozen(value: object) -> object:
    """Give a hashable form that is equal for equal JSON values: 1 is 1.0, but neither is ``true``."""
    match value:
        case dict():
            return "object", frozenset((key, frozen(inner)) for key, inner in value.items())
        case list() | tuple():
            return "array", tuple(frozen(inner) for inner in value)
        case bool() | str() | None:
            return type(value).__name__, value
    return "number", value


def shown(value: object) -> str:
    """Give the JSON text of a value, cut to 80 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 2] + " …"


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "string": lambda value: isinstance(value, str),
    "number": is_number,
    "integer": lambda v: is_number(v) and (isinstance(v, int) or (isinstance(v, float) and v.is_integer())),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
}


def _type(names: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    wanted = names if isinstance(names, list) else [names]
    if not any(is_of_type(value, name) for name in wanted):
        yield f"{shown(value)} is not of type {' or '.join(str(name) for name in wanted)}"


def _enum(members: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(members, list) and frozen(value) not in {frozen(member) for member in members}:
        yield f"{shown(value)} is not one of {', '.join(shown(member) for member in members[:20])}"


def _const(wanted: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if frozen(value) != frozen(wanted):
        yield f"{shown(wanted)} was expected"


def _bound(words: str, exclusive: str, is_beyond: Callable[[Any, Any], bool]) -> Assertion:
    """``exclusive`` names the keyword that in draft 4 was a flag, and made this bound one that may not be reached."""

    def check(limit: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
        if is_number(limit) and is_number(value):
            is_touching = value == limit and (not exclusive or schema.get(exclusive) is True)
            if is_touching or is_beyond(value, limit):
                yield f"{shown(value)} is {words} {shown(limit)}"

    return check


def _multiple_of(step: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if not (is_number(step) and step > 0 and is_number(value)):
        return
    if (Fraction(str(value)) / Fraction(str(step))).denominator != 1:
        yield f"{shown(value)} is not a multiple of {shown(step)}"


def _size(of: type, words: str, is_beyond: Callable[[int, int], bool]) -> Assertion:
    def check(limit: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
        if is_number(limit) and isinstance(value, of) and is_beyond(len(value), limit):  # type: ignore[arg-type]
            yield f"{shown(value)} {words} {shown(limit)}"

    return check


def _unique_items(wanted: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if wanted is True and isinstance(value, list) and len({frozen(item) for item in value}) < len(value):
        yield f"{shown(value)} holds an item twice"


def _required(names: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(names, list) and isinstance(value, dict):
        for name in names:
            if isinstance(name, str) and name not in value:
                yield f"{shown(name)} is required"


def _dependent_required(names: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(names, dict) and isinstance(value, dict):
        for name, needed in names.items():
            if name in value and isinstance(needed, list):
                for other in needed:
                    if isinstance(other, str) and other not in value:
                        yield f"{shown(other)} is required where {shown(name)} is given"


def _less(left: Any, right: Any) -> bool:
    return bool(left < right)


def _more(left: Any, right: Any) -> bool:
    return bool(left > right)


ASSERTIONS: Mapping[str, Assertion] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound("less than the minimum of", "exclusiveMinimum", _less),
    "maximum": _bound("more than the maximum of", "exclusiveMaximum", _more),
    "exclusiveMinimum": _bound("not more than", "", _less),
    "exclusiveMaximum": _bound("not less than", "", _more),
    "multipleOf": _multiple_of,
    "minLength": _size(str, "is shorter than", _less),
    "maxLength": _size(str, "is longer than", _more),
    "minItems": _size(list, "has fewer items than", _less),
    "maxItems": _size(list, "has more items than", _more),
    "minProperties": _size(dict, "has fewer properties than", _less),
    "maxProperties": _size(dict, "has more properties than", _more),
    "uniqueItems": _unique_items,
    "required": _required,
    "dependentRequired": _dependent_required,
    "dependencies": _dependent_required,
}
