"""The facts of a conversation, and the live news between them.

A logged event has ``seq`` (from 1, without gaps) once it is durable; a live one never has. Each has a JSON form,
one object, ``type`` being the class name in snake case: it is the journal's line, ``ask --json``'s line and the
Python API's value alike.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from callboard.actors.chat_model import Usage
from callboard.actors.items import FunctionCall
from callboard.tools.content import (
    Attachment,
    Block,
    Citation,
    attachment_from_json,
    attachment_to_json,
    block_from_json,
    block_to_json,
    citation_from_json,
    citation_to_json,
)


class EventError(ValueError):
    """A JSON object is not the form of an event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What every event has: ``seq`` (None until it is durable, and for live events) and ``at`` (ISO 8601, UTC)."""

    logged: ClassVar[bool] = True
    terminal: ClassVar[bool] = False

    seq: int | None = None
    at: str | None = None

    @property
    def type(self) -> str:
        """The class name in snake case, as it stands in the JSON form."""
        return type_name(type(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that a linked conversation belongs to; the three fields together name it for ever."""

    pid: int
    start_time: float
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOpened(Event):
    """The conversation exists. ``owner`` is set when it is linked to a process."""

    conversation_id: str
    user: str
    team: str
    roles: tuple[str, ...] = ()
    template: str = "default"
    enabled: tuple[str, ...] = ()
    owner: Owner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(Event):
    """A user message was accepted. The turn's id is the request id that brought it."""

    turn_id: str
    text: str
    deadline_s: float | None = None
    tool_deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResumed(Event):
    """A client took the turn up again after its former one was lost.

    Text that was streamed since the last StepFinished does not count.
    """

    turn_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnInterrupted(Event):
    """The system was stopped on purpose while the turn ran: no loss that counts against the turn."""

    turn_id: str
    reason: str = "shutdown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSuspended(Event):
    """The turn waits for a person's decisions and for nothing else; its clock stands still."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContinued(Event):
    """The suspended turn goes on, or is about to end."""

    turn_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextTrimmed(Event):
    """The step's request did without a part of the history, which did not fit ``limit`` tokens.

    ``left_out_items`` were left out whole; ``cut_results`` tool results lost their middle; both make up
    ``left_out_tokens``.
    """

    turn_id: str
    step: int
    left_out_items: int
    left_out_tokens: int
    cut_results: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished(Event):
    """The model replied: with text, with calls, or both.

    ``repeated`` names the tools that it has now called with the same arguments in several steps in a row.
    """

    turn_id: str
    step: int
    text: str = ""
    calls: tuple[FunctionCall, ...] = ()
    usage: Usage = Usage()
    model: str = ""
    repeated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested(Event):
    """A call waits for a person. ``digest`` is what an approval is bound to, ``reason`` why one is asked."""

    turn_id: str
    call_id: str
    tool: str
    arguments: Any = None
    digest: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecided(Event):
    """A person decided on the call, once and for all. ``arguments``: what is to run instead of those asked for.

    ``expired``: nobody did in time, which denies it.
    """

    turn_id: str
    call_id: str
    approved: bool
    arguments: Any = None
    by: str = ""
    reason: str = ""
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolApproved(Event):
    """A person approved of this version (a digest) of the tool for the whole conversation."""

    tool: str
    version: str
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPinned(Event):
    """From here on this is what the conversation knows of an external tool: a changed one needs a person.

    ``version`` is the digest of the whole definition, the rest is what a model is shown of it.
    """

    tool: str
    version: str
    description: str = ""
    parameters: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(Event):
    """The decision fell to run the call; durable before any effect. ``decision`` says why it may run."""

    turn_id: str
    call_id: str
    tool: str
    arguments: Any = None
    decision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallFinished(Event):
    """The call's one result. ``duration_s`` is in seconds; ``outcome`` as in ToolResult.

    ``decision`` says, of a call that did not run, which rule refused it. No model sees ``output`` (what a local
    tool printed) and ``attachments`` (the whole of what was cut from ``content``).
    """

    turn_id: str
    call_id: str
    tool: str
    is_error: bool
    outcome: str
    content: tuple[Block, ...] = ()
    citations: tuple[Citation, ...] = ()
    duration_s: float = 0.0
    decision: str = ""
    output: str = ""
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAnswered(Event):
    """Ending: the answer. ``capped`` says that the step limit closed the tools before it."""

    terminal: ClassVar[bool] = True

    turn_id: str
    text: str
    citations: tuple[Citation, ...] = ()
    capped: bool = False
    steps: int = 0
    usage: Usage = Usage()
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFailed(Event):
    """Ending: a named reason (``step_cap``, ``model_rejected``, ``deadline``, ``poison`` …) and a sentence on it."""

    terminal: ClassVar[bool] = True

    turn_id: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCancelled(Event):
    """Ending: by the user (``user``), or because the owner is gone (``owner_gone``) or closed it (``closed``)."""

    terminal: ClassVar[bool] = True

    turn_id: str
    reason: str = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnabled(Event):
    """The conversation may use the tool from the next step on."""

    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDisabled(Event):
    """The conversation may not use the tool any more."""

    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfigured(Event):
    """The tool's settings in this conversation: these over the configuration's; None takes them back."""

    tool: str
    settings: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationClosed(Event):
    """The conversation takes no more turns."""

    reason: str = "closed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRepaired(Event):
    """An imported log was made whole; each of ``repairs`` is a sentence that says what was changed."""

    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """Live: a piece of the answer."""

    logged: ClassVar[bool] = False

    turn_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDiscarded(Event):
    """Live: the text streamed so far in this step does not count; the model was lost and is asked again."""

    logged: ClassVar[bool] = False

    turn_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(Event):
    """Live: how far a call is. ``fraction`` is from 0 to 1 where the tool says it."""

    logged: ClassVar[bool] = False

    turn_id: str
    call_id: str
    text: str
    fraction: float | None = None


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


_CLASSES: dict[str, type[Event]] = {
    _snake_case(c.__name__): c
    for c in (
        ConversationOpened,
        TurnStarted,
        TurnResumed,
        TurnInterrupted,
        TurnSuspended,
        TurnContinued,
        ContextTrimmed,
        StepFinished,
        ApprovalRequested,
        ApprovalDecided,
        ToolApproved,
        ToolPinned,
        ToolCallStarted,
        ToolCallFinished,
        TurnAnswered,
        TurnFailed,
        TurnCancelled,
        ToolEnabled,
        ToolDisabled,
        ToolConfigured,
        ConversationClosed,
        HistoryRepaired,
        TextDelta,
        TextDiscarded,
        ToolProgress,
    )
}

_NAMES = {c: name for name, c in _CLASSES.items()}
_OWN_FIELDS = {
    c: tuple(f.name for f in dataclasses.fields(c) if f.name not in ("seq", "at")) for c in _CLASSES.values()
}


def type_name(event_class: type[Event]) -> str:
    """Give the snake-case name of an event class."""
    return _NAMES[event_class]


def event_to_json(event: Event) -> dict[str, Any]:
    """Give the event's JSON form: ``seq``, ``type``, ``at`` and the event's own fields."""
    form: dict[str, Any] = {"seq": event.seq, "type": event.type, "at": event.at}
    for name in _OWN_FIELDS[type(event)]:
        form[name] = _to_json(name, getattr(event, name))
    return form


def event_from_json(form: Mapping[str, Any]) -> Event:
    """Read an event from its JSON form; raises EventError naming what is wrong."""
    event_class = _CLASSES.get(str(form.get("type")))
    if event_class is None:
        raise EventError(f"unknown event type {form.get('type')!r}")
    names = event_class.__dataclass_fields__
    try:
        return event_class(**{n: _from_json(n, v) for n, v in form.items() if n in names})
    except (TypeError, ValueError, KeyError) as fault:
        raise EventError(f"bad {form.get('type')} event: {fault}") from fault


def _to_json(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    match name, value:
        case "content", tuple():
            return [block_to_json(block) for block in value]
        case "citations", tuple():
            return [citation_to_json(citation) for citation in value]
        case "attachments", tuple():
            return [attachment_to_json(attachment) for attachment in value]
        case "calls", tuple():
            return [dataclasses.asdict(call) for call in value]
        case (("usage" | "owner"), value) if value is not None:
            return dataclasses.asdict(value)
        case _, tuple():
            return list(value)
    return value


def _from_json(name: str, value: Any) -> Any:
    if not isinstance(value, list | dict):
        return value
    match name, value:
        case "content", list():
            return tuple(block_from_json(block) for block in value)
        case "citations", list():
            return tuple(citation_from_json(citation) for citation in value)
        case "attachments", list():
            return tuple(attachment_from_json(attachment) for attachment in value)
        case "calls", list():
            return tuple(FunctionCall(**call) for call in value)
        case "usage", dict():
            return Usage(**value)
        case "owner", dict():
            return Owner(**value)
        case (("roles" | "enabled" | "repairs" | "repeated"), list()):
            return tuple(value)
    return value
