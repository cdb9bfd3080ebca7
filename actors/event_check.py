"""Whether an event that came from outside has values of its fields' types, all the way down.

``event_from_json`` trusts the journal; a file that a person imports deserves none: a number where a text belongs
would break whoever folds the log later. Pure. Called for imported histories.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from callboard.actors.events import Event


def fault_of_event(event: Event) -> str | None:
    """Say in which field another type of value was expected, None when all is well."""
    return _fault_of_fields(event, event.type)


def _fault_of_fields(value: Any, place: str) -> str | None:
    kind: Any = type(value)
    for name, hint in _hints(kind).items():
        fault = _fault(getattr(value, name), hint, f"{place}.{name}")
        if fault is not None:
            return fault
    return None


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _fault(value: Any, hint: Any, place: str) -> str | None:
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        faults = [_fault(value, arm, place) for arm in get_args(hint)]
        return None if None in faults else faults[0]
    if not _fits(value, origin, hint):
        return f"{place}: expected {_named(hint)}, got {_named(type(value))}"
    return _fault_inside(value, hint, place)


def _fits(value: Any, origin: Any, hint: Any) -> bool:
    if origin is Any:
        return True
    if origin is Literal:
        return value in get_args(hint)
    if origin in (int, float):
        number = isinstance(value, int if origin is int else (int, float)) and not isinstance(value, bool)
        return number and math.isfinite(value)
    return isinstance(value, origin)


def _fault_inside(value: Any, hint: Any, place: str) -> str | None:
    inner: list[tuple[str, Any, Any]] = []
    if isinstance(value, tuple):
        inner = [(f"{place}[{number}]", each, get_args(hint)[0]) for number, each in enumerate(value)]
    elif isinstance(value, Mapping) and len(get_args(hint)) == 2:
        inner = [(f"{place}[{key!r}]", each, get_args(hint)[1]) for key, each in value.items()]
    elif dataclasses.is_dataclass(value):
        return _fault_of_fields(value, place)
    return next((f for where, each, arm in inner if (f := _fault(each, arm, where)) is not None), None)


def _named(hint: Any) -> str:
    names = {
        str: "a text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        dict: "an object",
    }
    names |= {tuple: "a list", list: "a list", type(None): "null"}
    origin = get_origin(hint) or hint
    return names.get(hint) or names.get(origin) or str(getattr(hint, "__name__", hint))
