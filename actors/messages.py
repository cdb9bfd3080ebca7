"""The commands that actors carry out, and what they answer. Values only; each travels in an Envelope.

Whoever may be asked twice under one request id is said in the command's docstring ("again" = harmless).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from callboard.actors.chat_model import ModelReply
from callboard.actors.events import ConversationOpened, Event
from callboard.actors.items import Item
from callboard.tools.content import ToolResult
from callboard.tools.contract import ToolContext, ToolSpec

ServerState: TypeAlias = Literal["starting", "ready", "restarting", "parked", "failed"]


# ------------------------------------------------------------------ to the directory
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenConversation:
    """Open a conversation, or (again, or ``must_exist``) find it. Answer: ConversationIsOpen or a Failure."""

    opened: ConversationOpened
    must_exist: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationIsOpen:
    """The conversation's client lives and has its log."""

    conversation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToConversation:
    """Hand ``command`` to the conversation's client, which answers the envelope itself."""

    conversation_id: str
    command: Any


@dataclass(frozen=True, slots=True)
class GetStatus:
    """How many conversations are active. Answer: DirectoryStatus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus:
    """What the directory knows of the whole."""

    conversations: int


# ------------------------------------------------------------------ to a client
@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Take a turn; the request id is the turn's id, and again means: the same turn, news after ``after``.

    Answers: many News, the last with the terminal event; or a Failure when it is not accepted. ``after`` is the last
    sequence number the caller has seen of this turn, 0 for none.
    """

    text: str
    after: int = 0
    deadline_s: float | None = None
    tool_deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class News:
    """Events for a subscriber, in order. Empty: the turn is known and under way (or waits for its turn)."""

    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel the turn under way and those that wait. Again: harmless. Answer: True when there was one."""


@dataclass(frozen=True, slots=True)
class EnableTool:
    """Let the conversation use the tool. Again: harmless. Answer: True or a Failure (no such tool)."""

    tool: str


@dataclass(frozen=True, slots=True)
class DisableTool:
    """Take the tool from the conversation. Again: harmless. Answer: True or a Failure (no such tool)."""

    tool: str


@dataclass(frozen=True, slots=True)
class GetTools:
    """What the conversation may use. Answer: a tuple of ToolState."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolState:
    """One tool as a conversation (or the system) sees it."""

    spec: ToolSpec
    state: Literal["enabled", "available", "disabled"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GetHistory:
    """The log. Answer: History with at most ``limit`` events after ``after``."""

    after: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A part of the log; ``more`` when it goes on."""

    events: tuple[Event, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class CloseConversation:
    """End the conversation: a turn under way is cancelled, no further one is accepted. Again: harmless."""


# ------------------------------------------------------------------ to the journal
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """Become the owner of a conversation's log; ``create`` is its first event when it may be new.

    Answer: LogOpened or a Failure (``not_found``). Again: a further epoch.
    """

    conversation_id: str
    create: ConversationOpened | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOpened:
    """The log so far, and the epoch with which its new owner appends. ``damaged``: its end could not be read."""

    epoch: int
    events: tuple[Event, ...]
    damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendEvents:
    """Append events that carry their ``seq``. Again: harmless. Answer (once durable): the last seq, or a Failure."""

    conversation_id: str
    epoch: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class GetUnfinished:
    """Which conversations have a turn without an ending. Answer: a tuple of conversation ids."""


# ------------------------------------------------------------------ to the catalogue
@dataclass(frozen=True, slots=True)
class GetRegistry:
    """What exists. Answer: Registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReport:
    """An external server says how it is and what it offers. Again: harmless. Answer: True."""

    server: str
    state: ServerState
    tools: tuple[ToolSpec, ...] = ()
    pid: int | None = None
    protocol: str = ""
    restarts: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All tools by exposed name, the reports of the servers, and the modules that could not be loaded."""

    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    servers: Mapping[str, ServerReport] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    def unavailable(self) -> dict[str, str]:
        """Give the tools that cannot be called now, each with the reason."""
        down: dict[str, str] = {}
        for name, spec in self.tools.items():
            report = self.servers.get(spec.server) if spec.server else None
            if spec.server and report is None:
                down[name] = f"the server {spec.server} is not configured any more"
            elif report is not None and report.state in ("parked", "failed"):
                down[name] = f"the server {report.server} is {report.state}: {report.last_error}"
        return down


# ------------------------------------------------------------------ to a model actor
@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """Ask the model for one reply. Again, while it runs: ignored; once done: the same answer.

    ModelText notices come on the way; the answer is a ModelReply or a ModelFault.
    """

    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class StopChat:
    """Nobody waits for this request's reply any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class ModelText:
    """Notice: a piece of the reply's text, coalesced over a few milliseconds."""

    request_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFault:
    """The model could not reply; the kinds are ModelError's."""

    kind: str
    message: str
    retryable: bool
    retry_after_s: float | None = None


ChatAnswer: TypeAlias = ModelReply | ModelFault


@dataclass(frozen=True, slots=True)
class GetEmbedded:
    """Where the embedded model answers; starts it on first use. Answer: EmbeddedAt or a Failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAt:
    """The embedded model's endpoint on loopback."""

    base_url: str
    api_key: str


# ------------------------------------------------------------------ calls
@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """To an external server: call a tool. Sent to one life of the server only, never to its successor."""

    tool: str
    arguments: Mapping[str, Any]
    deadline_s: float


@dataclass(frozen=True, slots=True)
class CancelCall:
    """To an external server: nobody waits for this request's result any more."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a tool worker is started with: one call."""

    spec: ToolSpec
    arguments: Mapping[str, Any]
    context: ToolContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """Notice from a worker (by its id): its call's result."""

    worker: str
    result: ToolResult
