"""Small pieces for tests of tools and conversations: wait for a fact, script a call, read a turn's results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from callboard.actors.events import ApprovalRequested, Event, ToolCallFinished
from callboard.tools.content import JsonBlock, TextBlock

T = TypeVar("T")
_LOOK_AGAIN_S = 0.01


def eventually(check: Callable[[], T], within_s: float = 10.0, what: str = "") -> T:
    """Call ``check`` until it gives something true, and give that; AssertionError after ``within_s`` seconds."""
    give_up_at = time.monotonic() + within_s
    while not (found := check()):
        if time.monotonic() > give_up_at:
            raise AssertionError(f"not within {within_s:g} s: {what or check}")
        time.sleep(_LOOK_AGAIN_S)
    return found


def is_written(path: Path) -> bool:
    """True once the file is there and has something in it: a file exists a moment before its first line does."""
    return path.exists() and path.stat().st_size > 0


def call(tool: str, **arguments: object) -> str:
    """Give the line of a user's text that makes the scripted model call the tool."""
    return f"call {tool} {json.dumps(arguments)}"


def finished_calls(events: Iterable[Event]) -> list[ToolCallFinished]:
    """Give the calls that finished, in the order in which they did."""
    return [event for event in events if isinstance(event, ToolCallFinished)]


def texts(events: Iterable[Event]) -> list[str]:
    """Give the text of each finished call's first block."""
    found = []
    for event in finished_calls(events):
        match event.content:
            case (TextBlock(text), *_):
                found.append(text)
            case (JsonBlock(value), *_):
                found.append(json.dumps(value))
            case _:
                found.append("")
    return found


def last_call(events: Iterable[Event]) -> ToolCallFinished:
    """Give the call that finished last."""
    return finished_calls(events)[-1]


def until_asked(events: Iterator[Event]) -> ApprovalRequested:
    """Read on to the next call that waits for a person."""
    return next(event for event in events if isinstance(event, ApprovalRequested))
