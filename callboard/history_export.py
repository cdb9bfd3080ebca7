"""A conversation's log as a document: JSON, whole and importable again, or Markdown, for people.

Pure renderings; nothing is read or written here. In Markdown all that people, models and tools said stands in
quotations and fences, so that none of it can pass for the document's own headings; control sequences are taken out,
large contents are named by their size. Called by the command line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ContextTrimmed,
    ConversationClosed,
    ConversationOpened,
    Event,
    HistoryRepaired,
    StepFinished,
    ToolApproved,
    ToolCallFinished,
    ToolCallStarted,
    ToolDisabled,
    ToolEnabled,
    TurnAnswered,
    TurnCancelled,
    TurnFailed,
    TurnStarted,
    event_to_json,
)
from callboard.actors.history_forms import FORMAT, VERSION
from callboard.gateway.terminal.activity import citation_text, seconds_text
from callboard.gateway.terminal.plain import clean, one_line
from callboard.tools.content import Block, Citation, ImageBlock, JsonBlock, ResourceBlock, TextBlock

MAX_RESULT = 20_000
_MAX_TITLE = 80
_BACKTICKS = re.compile("`+")


def to_json(events: Iterable[Event]) -> str:
    """Give the exported form: one object with ``format``, ``version``, whose conversation it is, and all events whole.

    ASCII, so that it can be shown anywhere; ``callboard history import`` reads it.
    """
    events = tuple(events)
    opened = _opening(events)
    form: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "conversation_id": opened.conversation_id if opened else None,
        "user": opened.user if opened else None,
        "team": opened.team if opened else None,
        "events": [event_to_json(event) for event in events],
    }
    return json.dumps(form, indent=1, default=str) + "\n"


def to_markdown(events: Iterable[Event]) -> str:
    """Give a transcript: what was asked, each call with its arguments and result, what was answered, and the sources.

    A result's text is cut at ``MAX_RESULT`` characters, which is said; images and blobs are named, not shown.
    """
    events = tuple(events)
    said_again = {(e.turn_id, e.text) for e in events if isinstance(e, TurnAnswered)}
    parts = list(_head(events))
    turns = 0
    for event in events:
        turns += isinstance(event, TurnStarted)
        if isinstance(event, StepFinished) and not event.calls and (event.turn_id, event.text) in said_again:
            continue
        parts += _parts(event, turns)
    return "\n\n".join(part for part in parts if part) + "\n"


def title_of(events: Iterable[Event]) -> str:
    """Give the first user message on one line, shortened; empty when nobody has asked anything."""
    text = next((event.text for event in events if isinstance(event, TurnStarted)), "")
    line = one_line(text[:1000])
    return line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…"


def _head(events: Sequence[Event]) -> Iterator[str]:
    yield f"# {_plain(title_of(events) or 'A conversation without messages')}"
    opened = _opening(events)
    facts = []
    if opened is not None:
        facts = [("conversation", opened.conversation_id), ("user", opened.user), ("team", opened.team)]
        facts.append(("template", opened.template))
    times = [event.at for event in events if event.at]
    if times:
        facts.append(("from", times[0]))
        facts.append(("to", times[-1]))
    yield "\n".join(f"- {name}: {_code(value)}" for name, value in facts if value)


def _parts(event: Event, turn: int) -> Iterator[str]:
    match event:
        case TurnStarted():
            yield f"## {turn}. User{_at(event)}"
            yield _quoted(event.text)
        case StepFinished() if event.text.strip():
            yield "### Assistant"
            yield _quoted(event.text)
        case ToolCallStarted():
            yield f"### Call of {_code(event.tool)}"
            yield _arguments(event.arguments)
        case ToolCallFinished():
            yield from _result(event)
        case TurnAnswered():
            yield "### Answer" + (" (the step limit closed the tools before it)" if event.capped else "")
            yield _quoted(event.text)
            yield _sources(event.citations)
        case _:
            yield _remark(event)


def _result(event: ToolCallFinished) -> Iterator[str]:
    how = f"Error ({_code(event.outcome)})" if event.is_error else "Result"
    yield f"{how} of {_code(event.tool)}, after {seconds_text(event.duration_s)}:"
    yield from (_block(block) for block in event.content)
    for attachment in event.attachments:
        yield f"*Attachment {_code(attachment.digest)}: {_code(attachment.mime_type)}, {attachment.size} bytes.*"
    yield _sources(event.citations)


def _remark(event: Event) -> str:
    match event:
        case ApprovalRequested():
            return f"*A person was asked about {_code(event.tool)}: {_code(event.reason)}*"
        case ApprovalDecided(expired=True):
            return f"*The call {_code(event.reason)}, and was denied.*"
        case ApprovalDecided():
            how = "approved" if event.approved else "denied"
            why = f": {_code(event.reason)}" if event.reason else ""
            return f"*The call was {how} by {_code(event.by or 'a person')}{why}.*"
        case ToolApproved():
            return f"*{_code(event.tool)} was approved for this conversation by {_code(event.by or 'a person')}.*"
        case ContextTrimmed():
            return f"*The model was shown the history without {event.left_out_items} of its items.*"
        case TurnFailed():
            return f"**The turn failed ({_code(event.reason)}):**\n\n{_quoted(event.message)}"
        case TurnCancelled():
            return f"**The turn was cancelled ({_code(event.reason)}).**"
        case ToolEnabled():
            return f"*{_code(event.tool)} was enabled.*"
        case ToolDisabled():
            return f"*{_code(event.tool)} was disabled.*"
        case ConversationClosed():
            return f"*The conversation was closed ({_code(event.reason)}).*"
        case HistoryRepaired():
            return "*This history was repaired when it was imported:*\n\n" + "\n".join(
                f"- {_code(repair)}" for repair in event.repairs
            )
    return ""


def _arguments(arguments: Any) -> str:
    if isinstance(arguments, str):
        return _fenced(clean(arguments))
    return _fenced(clean(json.dumps(arguments, ensure_ascii=False, indent=2, default=str)), "json")


def _block(block: Block) -> str:
    match block:
        case TextBlock(text):
            return _fenced(clean(_cut(text)))
        case JsonBlock(value):
            return _fenced(clean(_cut(json.dumps(value, ensure_ascii=False, indent=2, default=str))), "json")
        case ImageBlock(data, mime_type):
            return f"*An image, {_code(mime_type)}, {len(data) * 3 // 4} bytes.*"
        case ResourceBlock():
            named = f"*The resource {_code(block.uri)}"
            if block.text is not None:
                return f"{named}:*\n\n{_fenced(clean(_cut(block.text)))}"
            return named + (f", {len(block.blob) * 3 // 4} bytes.*" if block.blob is not None else ".*")


def _sources(citations: Sequence[Citation]) -> str:
    places = dict.fromkeys(citation_text(citation) for citation in citations)
    listed = "\n".join(f"{number}. {_code(place)}" for number, place in enumerate(places, start=1))
    return f"Sources:\n\n{listed}" if listed else ""


def _cut(text: str) -> str:
    if len(text) <= MAX_RESULT:
        return text
    return f"{text[:MAX_RESULT]}\n… {len(text) - MAX_RESULT} more characters; the JSON export has them"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in clean(text).strip("\n").split("\n"))


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _code(text: str) -> str:
    line = one_line(text)
    longest = max((len(run) for run in _BACKTICKS.findall(line)), default=0)
    ticks = "`" * (longest + 1)
    gap = " " if "`" in line or not line else ""
    return f"{ticks}{gap}{line}{gap}{ticks}"


def _plain(line: str) -> str:
    return re.sub(r"([\\`*_<>\[\]#&|])", r"\\\1", line)


def _at(event: Event) -> str:
    return f", {event.at}" if event.at else ""


def _opening(events: Iterable[Event]) -> ConversationOpened | None:
    return next((event for event in events if isinstance(event, ConversationOpened)), None)
