"""What a turn's events look like: one line for each tool call's start and end, the ending, the citations.

Pure: an event and a look give lines of text. Foreign text is cleaned here; nothing is printed here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from callboard.actors.events import (
    Event,
    TextDiscarded,
    ToolCallFinished,
    ToolCallStarted,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnResumed,
)
from callboard.gateway.terminal.look import Look, Paint
from callboard.gateway.terminal.plain import cells, clean, cut, one_line
from callboard.tools.content import Block, Citation, ImageBlock, JsonBlock, ResourceBlock, TextBlock

_READ_AT_MOST = 4096
_CANCELLED = {"user": "", "owner_gone": "its owner is gone", "closed": "the conversation was closed"}


def activity_line(event: Event, look: Look) -> str | None:
    """Give the line that tells of ``event``, without a newline; None for one that needs no line."""
    match event:
        case ToolCallStarted():
            return _line(look, look.started, "cyan", one_line(event.tool), arguments_text(event.arguments))
        case ToolCallFinished():
            return _finished(event, look)
        case TextDiscarded():
            return _line(
                look, look.bad, "yellow", "the text above does not count;", "the model is asked again"
            )
        case TurnResumed():
            return _line(look, look.started, "yellow", "the turn goes on", f"(life {event.attempt})")
        case TurnAnswered(capped=True):
            return _line(look, look.bad, "yellow", "the step limit closed the tools", "before this answer")
        case TurnFailed():
            told = f"the turn failed ({one_line(event.reason)}): {one_line(event.message)}"
            return look.paint(f"{look.bad} {told}", "red")
        case TurnCancelled():
            why = _CANCELLED.get(event.reason, one_line(event.reason))
            return _line(look, look.bad, "yellow", "cancelled", f"({why})" if why else "")
    return None


def arguments_text(arguments: Any) -> str:
    """Give a call's arguments on one line: compact JSON, or what the model wrote where it is none."""
    if isinstance(arguments, str):
        return one_line(arguments[:_READ_AT_MOST])
    return one_line(json.dumps(arguments, ensure_ascii=False, default=str)[:_READ_AT_MOST])


def content_text(content: Iterable[Block]) -> str:
    """Give a result's content on one line, blocks apart by a space."""
    return " ".join(filter(None, (_block_text(block) for block in content)))


def citation_lines(citations: Sequence[Citation], look: Look) -> list[str]:
    """Give the numbered list of sources, each once, in the order of first use; empty when there is none."""
    places = dict.fromkeys(citation_text(citation) for citation in citations)
    return [
        look.paint(cut(f"[{number}] {place}", look.width, look.ellipsis), "dim")
        for number, place in enumerate(places, start=1)
    ]


def citation_text(citation: Citation) -> str:
    """Give where a citation points: ``docs/a.md:12-20``, a page, a URL or a record."""
    place = one_line(citation.document or citation.url or citation.record_id or "an unnamed source")
    if citation.line is not None:
        last = citation.line_end
        place += f":{citation.line}" + (f"-{last}" if last is not None and last != citation.line else "")
    if citation.page is not None:
        place += f", page {citation.page}"
    if citation.document and citation.url:
        place += f" <{one_line(citation.url)}>"
    return place


def seconds_text(seconds: float) -> str:
    """Give a duration as people read it: ``0.02 s``, ``12.3 s``, ``2 min 5 s``."""
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _finished(event: ToolCallFinished, look: Look) -> str:
    took = f"{one_line(event.tool)} {seconds_text(event.duration_s)}"
    told = content_text(event.content)
    if not event.is_error:
        return _line(look, look.good, "green", f"{took} {look.arrow}", told)
    outcome = "" if event.outcome in ("error", "ok") else f"{one_line(event.outcome)}: "
    return _line(look, look.bad, "red", took, f"{outcome}{told}")


def _line(look: Look, mark: str, paint: Paint, head: str, tail: str) -> str:
    head = cut(head, look.width - cells(mark) - 1, look.ellipsis)
    room = look.width - cells(mark) - cells(head) - 2
    rest = cut(tail, room, look.ellipsis) if room > 0 else ""
    return f"{look.paint(mark, paint)} {head}" + (f" {look.paint(rest, 'dim')}" if rest else "")


def _block_text(block: Block) -> str:
    match block:
        case TextBlock(text):
            return one_line(clean(text[:_READ_AT_MOST]))
        case JsonBlock(value):
            return arguments_text(value)
        case ImageBlock(_, mime_type):
            return f"[{one_line(mime_type)}]"
        case ResourceBlock():
            return f"[{one_line(block.uri)}]"
