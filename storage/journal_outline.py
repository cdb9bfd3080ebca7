"""What a list says of a stream without reading it: whose it is, its title, its turns, and how it stands.

Pure: an outline goes on from record to record. It is the only place of the storage that knows types of records.
Turns of a conversation do not overlap, so the last opening or closing record says how it stands; a suspended turn is
not open, and a turn that goes on is opened again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from callboard.storage.journal_terms import Record, State

OPENING_TYPES = frozenset({"turn_started", "turn_continued"})
CLOSING_TYPES = frozenset({"turn_answered", "turn_failed", "turn_cancelled", "turn_suspended"})

_TITLE = 80
_NAME = 200


@dataclass(frozen=True, slots=True)
class Outline:
    """A stream at a glance; empty before its first record."""

    state: State = "open"
    owner: str = ""
    template: str = ""
    title: str = ""
    turns: int = 0


def advance(outline: Outline, records: Iterable[Record]) -> Outline:
    """Give the outline behind these records."""
    state, owner, template = outline.state, outline.owner, outline.template
    title, turns = outline.title, outline.turns
    for record in records:
        kind = record.get("type")
        if not isinstance(kind, str):
            continue
        state = _state(state, kind)
        if kind == "turn_started":
            turns += 1
            title = title or line_of(record.get("text"), _TITLE)
        elif kind == "conversation_opened":
            owner, template = line_of(record.get("user"), _NAME), line_of(record.get("template"), _NAME)
    return Outline(state, owner, template, title, turns)


def _state(state: State, kind: str) -> State:
    if kind == "conversation_closed":
        return state if state == "unfinished" else "closed"
    if kind in OPENING_TYPES:
        return "unfinished"
    if kind == "turn_suspended":
        return "suspended"
    return "open" if kind in CLOSING_TYPES else state


def line_of(value: Any, length: int) -> str:
    """Give the start of a text as one line that every database can store."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value[: 4 * length].split())[:length]
    return "".join(c for c in line if c.isprintable()).encode("utf-8", "replace").decode()
