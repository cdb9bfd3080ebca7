"""A schema's regular expressions, run in time linear in the text, or not at all.

It decides whether a text matches a pattern of JSON Schema's dialect (ECMA-262), by the engine that pydantic brings
along, which never backtracks: ``^(a+)+$`` costs what ``^a+$`` costs. What that engine does not know (look-around,
back-references), and what would cost much to compile or to run, stays unjudged: the tool itself has the last word.
Called by ``applicators.py``.
"""

from __future__ import annotations

import re
from typing import Any

MAX_PATTERN_CHARS = 500
MAX_TEXT_CHARS = 16 * 1024
MAX_PATTERNS = 16

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ASCII = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "b": r"(?-u:\b)",
    "B": r"(?-u:\B)",
    "/": "/",
    "-": r"\x2d",
}


class Patterns:
    """The patterns of one check, each compiled once, at most 16 of them."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def matches(self, pattern: object, text: str) -> bool | None:
        """Say whether ``pattern`` is found somewhere in ``text``; None when that is not to be said."""
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN_CHARS or len(text) > MAX_TEXT_CHARS:
            return None
        if pattern not in self._compiled:
            if len(self._compiled) == MAX_PATTERNS:
                return None
            self._compiled[pattern] = _compiled(pattern)
        compiled = self._compiled[pattern]
        return None if compiled is None else bool(compiled.isinstance_python(text))


def _compiled(pattern: str) -> Any:
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # 60 ms; most schemas have no pattern

    # In ECMA-262 \d and \w mean ASCII; the engine would take all of Unicode, at a hundred times the size.
    ascii_only = _ESCAPE.sub(lambda found: _ASCII.get(found.group(1), found.group(0)), pattern)
    try:
        return SchemaValidator(core_schema.str_schema(pattern=ascii_only))
    except SchemaError:
        return None
