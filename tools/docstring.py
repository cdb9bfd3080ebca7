"""Read a Google-style docstring: what the tool does, and what each parameter means.

Pure. It never fails: a docstring in another style is all description. Called by the decorator.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Return|Yields|Raises|Examples?|Notes?):\s*")
_PARAMETER_SECTIONS = frozenset({"Args", "Arguments", "Parameters"})
_PARAMETER = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """The text before the first section, and the description of each documented parameter."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None) -> Docstring:
    """Split ``text`` (raw, as in ``__doc__``; None is empty) into description and parameters."""
    description: list[str] = []
    parameter_lines: list[str] = []
    section: str | None = None
    for line in inspect.cleandoc(text or "").splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading.group(1)
        elif section is None:
            description.append(line)
        elif section in _PARAMETER_SECTIONS:
            parameter_lines.append(line)
    return Docstring("\n".join(description).strip(), dict(_parameters(parameter_lines)))


def _parameters(lines: list[str]) -> Iterator[tuple[str, str]]:
    indents = [_indent(line) for line in lines if line.strip()]
    own_indent = min(indents, default=0)
    name, words = "", list[str]()
    for line in filter(str.strip, lines):
        start = _PARAMETER.fullmatch(line.strip()) if _indent(line) == own_indent else None
        if start:
            if name:
                yield name, " ".join(words).strip()
            name, words = start.group(1), [start.group(2)]
        else:
            words.append(line.strip())
    if name:
        yield name, " ".join(words).strip()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
