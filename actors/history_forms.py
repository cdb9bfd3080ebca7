"""The forms in which a history can be imported: our own export, events one a line, or a list of chat messages.

It decides which form a text is in and refuses what is none, naming the place. It mends nothing (``history_import``
does) and reads no file. Pure. Called by the command line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from callboard.actors.event_check import fault_of_event
from callboard.actors.events import Event, EventError, event_from_json
from callboard.actors.message_list import events_from_messages

FORMAT = "callboard history"
VERSION = 1

_EXPECTED = (
    "expected a history: what 'callboard history export' wrote, one event a line, "
    'or a list of messages such as [{"role": "user", "content": "…"}]'
)


def read_history(text: str) -> tuple[tuple[Event, ...], tuple[str, ...]]:
    """Read an exported history, events one a line, or a list of chat messages; and what of these was left out.

    Raises EventError naming the place.
    """
    value = _parsed(text)
    match value:
        case {"format": other} if other != FORMAT:
            raise EventError(f"the format is {other!r}; {_EXPECTED}")
        case {"format": _, "version": int(version)} if version > VERSION:
            raise EventError(
                f"version {version} of the format is from a newer Callboard; this one reads {VERSION}"
            )
        case {"events": list(entries)}:
            return _events(entries), ()
        case {"messages": list(messages)}:
            return events_from_messages(messages)
        case {"type": str(_)}:
            return _events([value]), ()
        case [{"type": str(_), **rest}, *_] if "role" not in rest:
            return _events(value), ()
        case list() if value:
            return events_from_messages(value)
    raise EventError(_EXPECTED)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_null)
    except RecursionError:
        raise EventError("nested too deeply") from None
    except json.JSONDecodeError as fault:
        lines = [line for line in text.split("\n") if line.strip()]
        if fault.msg != "Extra data" or fault.lineno == 1:
            raise EventError(f"line {fault.lineno}, column {fault.colno}: not JSON: {fault.msg}") from fault
    return [_line(number, line) for number, line in enumerate(lines, start=1)]


def _line(number: int, line: str) -> Any:
    try:
        return json.loads(line, parse_constant=_null)
    except (json.JSONDecodeError, RecursionError) as fault:
        raise EventError(f"line {number}: expected one event as JSON on each line") from fault


def _null(_name: str) -> None:
    """NaN and the infinities are no JSON."""


def _events(entries: list[Any]) -> tuple[Event, ...]:
    return tuple(_event(entry, f"event {number}") for number, entry in enumerate(entries, start=1))


def _event(entry: Any, place: str) -> Event:
    if not isinstance(entry, Mapping):
        raise EventError(f"{place}: expected an object with 'type'")
    try:
        event = event_from_json(entry)
    except (EventError, AttributeError) as fault:
        raise EventError(f"{place}: {fault}") from fault
    fault_found = fault_of_event(event) or _fault_of_time(event)
    if fault_found is not None:
        raise EventError(f"{place}: {fault_found}")
    return event


def _fault_of_time(event: Event) -> str | None:
    try:
        at = datetime.fromisoformat(event.at) if event.at is not None else None
    except ValueError:
        return f"at: expected a time such as 2026-01-31T12:00:00+00:00, got {(event.at or '')[:40]!r}"
    return "at: expected a time with its offset from UTC" if at is not None and at.tzinfo is None else None
