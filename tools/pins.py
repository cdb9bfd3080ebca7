"""The definition of an external tool that a conversation goes by, and how a changed one differs from it (decision 061).

Pure. A pin is the definition at a tool's first use in a conversation, or as a person approved of it later; until
somebody approves of a change, the model is shown the pinned text. It never decides about a call: ``tools/decision.py``
does, with the words from here. Called by that, and by the client's toolbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from callboard.tools.contract import ToolSpec

_SHOWN = 600
_AROUND = 24
_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What the tool was: ``version`` is its spec's digest, the rest is what the model was shown."""

    version: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)


def as_pinned(spec: ToolSpec, pin: Pin) -> ToolSpec:
    """Give the tool with the pinned text in place of its present one."""
    return replace(spec, description=pin.description, parameters=pin.parameters)


def change_of(pin: Pin, spec: ToolSpec) -> str:
    """Say in at most some 2,500 characters how the tool differs from its pin, both digests included.

    Of each text all that lies between the first and the last difference is shown, so that nothing hides behind a
    harmless change in front of it; what is too long for that is said to be.
    """
    parts = [
        _difference("description", pin.description, spec.description),
        _difference("parameters", _canonical(pin.parameters), _canonical(spec.parameters)),
    ]
    told = "; ".join(part for part in parts if part)
    was, now = pin.version[:_DIGITS], spec.digest[:_DIGITS]
    other = "its text is the same, but its annotations, or its server's version or command, are not"
    return f"it is no more what this conversation knew ({was} is now {now}): {told or other}"


def _difference(what: str, was: str, now: str) -> str:
    if was == now:
        return ""
    start = _shared(was, now)
    end = _shared(was[start:][::-1], now[start:][::-1])
    return f"its {what} was {_middle(was, start, end)}, and is {_middle(now, start, end)}"


def _shared(one: str, other: str) -> int:
    """Give the length of the beginning that both have."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _middle(text: str, start: int, end: int) -> str:
    """Give a text without what it shares with another at its start and its end, some words around it apart."""
    first, last = max(0, start - _AROUND), min(len(text), len(text) - end + _AROUND)
    shown, more = text[first:last][:_SHOWN], max(0, last - first - _SHOWN)
    head, tail = "…" if first else "", "…" if last < len(text) else ""
    return f'"{head}{shown}{tail}"' if not more else f'"{head}{shown}" and {more} characters more'


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


__all__ = ["Pin", "as_pinned", "change_of"]
