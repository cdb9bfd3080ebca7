"""What a conversation's commands may carry: checked where they are made and again where they arrive.

Pure. Nobody's mistake in a value may crash the client, which would have it come back, and crash again, with each
repetition. Called by the Python API before it sends, and by the client actor before it carries out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from callboard.actors.messages import Ask

MAX_TEXT = 1024 * 1024

_Rule: TypeAlias = tuple[Callable[[Any], bool], str]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return value is None or isinstance(value, Mapping)


def _is_limit(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and 0 < value < math.inf)


_RULES: Mapping[str, _Rule] = {
    "after": (_is_count, "0 or the number of an event"),
    "heard": (_is_count, "0 or a count"),
    "limit": (_is_count, "a count"),
    "deadline_s": (_is_limit, "a positive number of seconds"),
    "tool_deadline_s": (_is_limit, "a positive number of seconds"),
    "tool": (_is_text, "a tool's name"),
    "call_id": (_is_text, "a call's id"),
    "reason": (_is_text, "a text"),
    "approved": (_is_flag, "true or false"),
    "scope": (lambda value: value in ("once", "conversation"), "'once' or 'conversation'"),
    "arguments": (_is_object, "an object or nothing"),
    "settings": (_is_object, "an object or nothing"),
}


def fault_of_command(command: Any) -> str | None:
    """Say what is wrong with a command's fields, None when they are as they must be."""
    if isinstance(command, Ask) and not isinstance(command.text, str):
        return f"the message must be a text, got {type(command.text).__name__}"
    if isinstance(command, Ask) and len(command.text) > MAX_TEXT:
        return f"the message has {len(command.text)} characters; at most {MAX_TEXT} are taken"
    for field in dataclasses.fields(command):
        rule = _RULES.get(field.name)
        value = getattr(command, field.name)
        if rule is not None and not rule[0](value):
            return f"{field.name} must be {rule[1]}, got {value!r:.80}"
    return None
