"""Conversations of the past as lines of text: the list of them, and one as a transcript.

Pure: views and events in, lines out. Ids are never cut, since they are what people copy; all else fits the look's
width. Foreign text is cleaned here or by what this calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from callboard.actors.events import ConversationOpened, Event, TurnStarted
from callboard.gateway.terminal.listings import event_lines
from callboard.gateway.terminal.look import Look, Paint
from callboard.gateway.terminal.plain import cells, cut, one_line, pad
from callboard.views import ConversationInfo

_STATES: Mapping[str, Paint] = {
    "open": "green",
    "closed": "dim",
    "unfinished": "yellow",
    "suspended": "yellow",
}
_HEADS = ("ID", "STATE", "UPDATED", "TURNS", "TITLE")


def conversation_lines(conversations: Sequence[ConversationInfo], look: Look) -> list[str]:
    """Give a table: id, state, when it was last changed (UTC), how many turns, how it begins."""
    if not conversations:
        return ["There are no conversations."]
    rows = [_HEADS, *(_cells_of(info) for info in conversations)]
    widths = [max(cells(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row in rows:
        padded = [pad(cell, width) for cell, width in zip(row, widths, strict=False)]
        room = max(8, look.width - sum(widths) - 2 * len(widths))
        title = cut(row[4], room, look.ellipsis)
        if row is _HEADS:
            lines.append(look.paint("  ".join((*padded, title)).rstrip(), "dim"))
        else:
            padded[1] = look.paint(padded[1], _STATES.get(row[1], "dim"))
            lines.append("  ".join((*padded, title)).rstrip())
    return lines


def transcript_lines(events: Iterable[Event], look: Look) -> list[str]:
    """Give a conversation as it was: whose it is, and each turn with the time of its question."""
    lines: list[str] = []
    for event in events:
        match event:
            case ConversationOpened():
                lines += [look.paint(cut(line, look.width, look.ellipsis), "dim") for line in _opened(event)]
            case TurnStarted(at=str(at)):
                lines += ["", look.paint(time_text(at), "dim"), *event_lines(event, look)[1:]]
            case _:
                lines += event_lines(event, look)
    return lines or ["Nothing has been said yet."]


def time_text(at: str, *, seconds: bool = True) -> str:
    """Give an ISO 8601 time as people read it, in UTC: ``2026-01-31 12:00:00Z``; what is none, as it is."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return one_line(at)
    in_utc = moment.astimezone(UTC) if moment.tzinfo else moment
    return f"{in_utc:%Y-%m-%d %H:%M:%S}Z" if seconds else f"{in_utc:%Y-%m-%d %H:%M}"


def _opened(event: ConversationOpened) -> list[str]:
    facts = [
        f"{name} {one_line(value)}" for name, value in (("user", event.user), ("team", event.team)) if value
    ]
    facts.append(f"template {one_line(event.template)}")
    if event.at:
        facts.append(f"opened {time_text(event.at)}")
    return [f"conversation {one_line(event.conversation_id)}", ", ".join(facts)]


def _cells_of(info: ConversationInfo) -> tuple[str, str, str, str, str]:
    when = time_text(info.updated_at, seconds=False)
    return one_line(info.conversation_id), info.state, when, str(info.turns), one_line(info.title)
