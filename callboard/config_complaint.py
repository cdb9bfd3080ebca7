"""How a configuration that is wrong is complained of: file, key, what was expected, what was found.

Pure: from pydantic's errors to sentences, and from a syntax error to its line. Values of keys that may hold
secrets are never repeated. Only ``callboard.config`` and its reader call it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_SHOWN = 5
_SECRET = frozenset({"api_key", "env", "url"})
_EXPECTED = {
    "string_type": "a string in quotes",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "path_type": "a path in quotes",
}


def explain(
    error: ValidationError, file: str, model: type[BaseModel], prefix: Sequence[str | int] = ()
) -> str:
    """Give one sentence for each of the first errors, as ``file: [table] key: expected …, got …``."""
    details = error.errors(include_url=False)
    lines = [f"{file}: {_sentence(detail, model, prefix)}" for detail in details[:_SHOWN]]
    if len(details) > _SHOWN:
        lines.append(f"{file}: and {len(details) - _SHOWN} more")
    return "\n".join(lines)


def key_name(loc: Sequence[str | int]) -> str:
    """Give a place in the file as people write it: ``[servers.time] args, item 2``."""
    names = [part for part in loc if isinstance(part, str)]
    item = next((f", item {part + 1}" for part in loc if isinstance(part, int)), "")
    if not names:
        return "the file"
    table = f"[{'.'.join(names[:-1])}] " if len(names) > 1 else ""
    return f"{table}{names[-1]}{item}"


def table_name(loc: Sequence[str | int]) -> str:
    """Give a table as people write it: ``[servers.time]``."""
    return f"[{'.'.join(str(part) for part in loc)}]"


def unknown_key(loc: Sequence[str | int], known: Sequence[str]) -> str:
    """Say that the last name of ``loc`` is unknown, with the nearest known one or all of them."""
    near = difflib.get_close_matches(str(loc[-1]), known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(known))}"
    return f"{key_name(loc)}: unknown key; {hint}"


def shown(value: object) -> str:
    """Give a value as a complaint shows it: its repr, cut; of a table or a list only that it is one."""
    if isinstance(value, dict | list | tuple):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _sentence(detail: ErrorDetails, model: type[BaseModel], prefix: Sequence[str | int]) -> str:
    loc = detail["loc"]
    place = [part for part in (*prefix, *loc) if part != "[key]"]
    if detail["type"] == "extra_forbidden":
        return unknown_key(place, _known_keys(model, loc[:-1]))
    if detail["type"] == "missing":
        return f"{key_name(place)}: is missing"
    expected = _expectation(detail)
    if detail["type"] == "value_error" and isinstance(detail["input"], dict) and "env" not in loc:
        return f"{table_name(place)}: {expected}"
    if _SECRET.intersection(str(part) for part in place):
        return f"{key_name(place)}: {expected}"
    return f"{key_name(place)}: {expected}, got {shown(detail['input'])}"


def _expectation(detail: ErrorDetails) -> str:
    context: dict[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(context.get("error", detail["msg"]))
        case "literal_error":
            return f"expected {context['expected']}"
        case kind if kind in _EXPECTED:
            return f"expected {_EXPECTED[kind]}"
    wish = detail["msg"].removeprefix("Input should be ")
    return f"expected {wish[:1].lower()}{wish[1:]}"


def _known_keys(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    at: Any = model
    for part in loc:
        if isinstance(at, type) and issubclass(at, BaseModel):
            field = at.model_fields.get(str(part))
            at = None if field is None else field.annotation
        else:
            at = next(iter(get_args(at)[1:]), None)
        if get_origin(at) in (Union, UnionType):
            at = next((arm for arm in get_args(at) if arm is not type(None)), None)
    if not (isinstance(at, type) and issubclass(at, BaseModel)):
        return []
    return [name for name, field in at.model_fields.items() if not field.exclude]
