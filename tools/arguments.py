"""The model's JSON text becomes arguments, or a fault that says what to mend and where.

Pure. It decides only whether arguments fit the schema; it never converts them and never runs a schema's
regular expressions: they are written in another dialect, and a server could hang its caller with one. The
tool checks its own patterns. Called by the turn machine before a call (FEATURES T9).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

MAX_CHARS = 1024 * 1024
MAX_DEPTH = 64
_MAX_REFERENCES = 10_000
_REPORTED_ERRORS = 5
_MESSAGE_CHARS = 300


@dataclass(frozen=True, slots=True)
class ArgumentFault:
    """The arguments cannot be used; ``message`` is what the model reads."""

    message: str


class _TooMuchWork(Exception):
    """A schema's references lead to more work than any honest schema asks for."""


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
    # jsonschema takes 70 ms and several MB to import: a client that only chats should not pay for it.
    jsonschema: Any = import_module("jsonschema")
    from referencing.exceptions import Unresolvable

    try:
        found = list(_problems(_validator(jsonschema, schema), arguments))
    except jsonschema.SchemaError as error:
        return _broken_schema(f"{_pointer(error.absolute_path)}: {_short(error.message)}")
    except Unresolvable as error:
        return _broken_schema(f"a reference cannot be resolved: {_short(str(error))}")
    except (_TooMuchWork, RecursionError):
        return _broken_schema("its references lead round in circles")
    return ArgumentFault(_report(found)) if found else None


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


def _validator(jsonschema: Any, schema: Mapping[str, Any]) -> Any:
    from referencing import Registry

    draft = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    draft.check_schema(schema, format_checker=None)  # with the checker it would compile the patterns
    own = jsonschema.validators.extend(draft, {**_without_patterns(draft), **_counted_references(draft)})
    return own(schema, registry=Registry())  # the default registry fetches references from the network


def _without_patterns(draft: Any) -> dict[str, Any]:
    """Give the keywords that run regular expressions a meaning without them, the lenient one."""

    def ignore(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        return iter(())

    def additional(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if "patternProperties" not in schema:
            yield from draft.VALIDATORS["additionalProperties"](validator, value, instance, schema)

    changed = {"pattern": ignore, "patternProperties": ignore, "unevaluatedProperties": ignore}
    return {**changed, "additionalProperties": additional}


def _counted_references(draft: Any) -> dict[str, Any]:
    """Bound the work: references that double at each level would otherwise take for ever."""
    left = _MAX_REFERENCES

    def counted(original: Any) -> Any:
        def follow(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
            nonlocal left
            left -= 1
            if left < 0:
                raise _TooMuchWork
            yield from original(validator, value, instance, schema) or ()

        return follow

    references = ("$ref", "$dynamicRef", "$recursiveRef")
    return {name: counted(draft.VALIDATORS[name]) for name in references if name in draft.VALIDATORS}


def _problems(validator: Any, arguments: Mapping[str, Any]) -> Iterator[str]:
    for count, error in enumerate(validator.iter_errors(arguments)):
        if count == _REPORTED_ERRORS:
            yield "…"
            return
        advice = ""
        if error.validator == "additionalProperties" and isinstance(error.schema, Mapping):
            advice = f"; known are: {', '.join(error.schema.get('properties', {})) or 'none'}"
        elif error.context:
            advice = "; closest: " + " or ".join(_short(inner.message) for inner in error.context[:3])
        yield f"{_pointer(error.absolute_path)}: {_short(error.message)}{_short(advice)}"


def _report(problems: list[str]) -> str:
    return "the arguments do not fit the tool's schema: " + "; ".join(problems)


def _broken_schema(problem: str) -> ArgumentFault:
    return ArgumentFault(
        f"the arguments cannot be checked, because the tool's own schema is broken ({problem}). "
        "Other arguments will not help: do without this tool, and say so."
    )


def _pointer(path: Any) -> str:
    return "at /" + "/".join(str(part) for part in path)


def _short(text: str) -> str:
    return text if len(text) <= _MESSAGE_CHARS else text[: _MESSAGE_CHARS - 2] + " …"
