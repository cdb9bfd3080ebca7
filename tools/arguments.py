"""The model's JSON text becomes arguments, or a fault that says what to mend and where.

Pure, and bounded whatever the schema: its owner may be a third party. It decides only whether arguments fit; it
mends them only where the meaning is certain (blank text and ``null`` are no arguments), and never converts them.
Called by the client before a call, by ``callboard.run`` and by whoever lets a person edit arguments (FEATURES T9).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callboard.tools.json_schema.check import problems_of
from callboard.tools.json_schema.problem import BrokenSchema, Path, Problem, TooMuchWork

MAX_CHARS = 1024 * 1024
MAX_DEPTH = 64
_REPORTED_ERRORS = 5
_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True)
class ArgumentFault:
    """The arguments cannot be used; ``message`` is what the model reads."""

    message: str


def parse_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any] | ArgumentFault:
    """Parse ``text`` and check it against ``schema``; empty, blank and ``null`` mean no arguments."""
    if len(text) > MAX_CHARS:
        return ArgumentFault(
            f"the arguments are {len(text)} characters long: at most {MAX_CHARS} are accepted"
        )
    parsed = _parse(text)
    if isinstance(parsed, ArgumentFault):
        return parsed
    return check_arguments(parsed, schema) or parsed


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> ArgumentFault | None:
    """Say what is wrong with ``arguments`` under ``schema`` (its ``$schema``, else 2020-12), or None."""
    try:
        found = problems_of(arguments, schema, _REPORTED_ERRORS + 1)
    except BrokenSchema as fault:
        return _uncheckable(f"the tool's own schema is broken ({_short(str(fault))})")
    except TooMuchWork as fault:
        return _uncheckable(f"checking them by the tool's own schema takes too long ({_short(str(fault))})")
    return ArgumentFault(_report(found)) if found else None


def with_defaults(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments as the tool will see them: with the schema's defaults for what was left out at the top."""
    properties = schema.get("properties")
    declared = properties.items() if isinstance(properties, Mapping) else ()
    defaults = {
        name: part["default"] for name, part in declared if isinstance(part, Mapping) and "default" in part
    }
    return {**defaults, **arguments}


def _parse(text: str) -> dict[str, Any] | ArgumentFault:
    if not text.strip():
        return {}
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        return ArgumentFault(
            f"the arguments are not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}, "
            f"near {near!r}. Send one JSON object."
        )
    except UnicodeEncodeError:
        return ArgumentFault("the arguments hold half of a surrogate pair: send whole characters")
    except ValueError as error:
        return ArgumentFault(f"the arguments are not valid JSON: {error}")
    except RecursionError:
        return ArgumentFault(f"the arguments are nested too deeply: at most {MAX_DEPTH} levels are accepted")
    if value is None:
        return {}
    if not isinstance(value, dict):
        return ArgumentFault(f"the arguments must be a JSON object such as {{}}, not {_kind(value)}")
    if _deeper_than(value, MAX_DEPTH):
        return ArgumentFault(f"the arguments are nested too deeply: at most {MAX_DEPTH} levels are accepted")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _kind(value: object) -> str:
    match value:
        case str():
            return "a string (do not encode the object twice)"
        case list():
            return "an array"
        case bool():
            return "a boolean"
        case _:
            return "a number"


def _deeper_than(value: object, limit: int) -> bool:
    level: list[object] = [value]
    for _ in range(limit):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def _report(found: list[Problem]) -> str:
    told = [f"{_pointer(problem.path)}: {_short(problem.message)}" for problem in found[:_REPORTED_ERRORS]]
    more = ["…"] if len(found) > _REPORTED_ERRORS else []
    return "the arguments do not fit the tool's schema: " + "; ".join([*told, *more])


def _uncheckable(why: str) -> ArgumentFault:
    return ArgumentFault(
        f"the arguments cannot be checked, because {why}. "
        "Other arguments will not help: do without this tool, and say so."
    )


def _pointer(path: Path) -> str:
    return "at /" + "/".join(str(part) for part in path)


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 2] + " …"
