"""The commands that actors carry out, and what they answer. Values only; each travels in an Envelope.

Whoever may be asked twice under one request id is said in the command's docstring ("again" = harmless).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from callboard.actors.chat_model import ModelReply
from callboard.actors.context_window import ContextPolicy, LeftOut
from callboard.actors.events import ApprovalRequested, ConversationOpened, Event, Owner
from callboard.actors.items import Item
from callboard.actors.limits_core import EndpointState, Outcome
from callboard.storage.journal_terms import Summary
from callboard.tools.content import ToolResult
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decision_layers import Layer

ServerState: TypeAlias = Literal["starting", "ready", "restarting", "parked", "failed"]
Mark: TypeAlias = tuple[int, int]
"""The directory's incarnation, and how many letters this life of it has handed over."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteConversation:
    """Stop the conversation's client, if it has one, and delete its log. Answer: True or a Failure (``not_found``)."""

    conversation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveConversation:
    """An idle client asks to leave; ``mark`` is that of the last letter it was handed, ``pid`` is its own.

    Again: the same answer, unless mail was handed over meanwhile. Answer: MayLeave or StayHere.
    """

    conversation_id: str
    team: str
    incarnation: int
    pid: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class MayLeave:
    """Nothing was handed over since; what comes now is kept for the client's successor."""


@dataclass(frozen=True, slots=True)
class StayHere:
    """Mail is on its way; ``mark`` is that of the last one handed over, None for none."""

    mark: Mark | None


@dataclass(frozen=True, slots=True)
class GetStatus:
    """How many conversations are active. Answer: DirectoryStatus."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryStatus:
    """What the directory knows of the whole."""

    conversations: int


# ------------------------------------------------------------------ to a client
@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A caller's command, handed over by the directory in the caller's envelope; no two have the same ``mark``."""

    mark: Mark
    command: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Take a turn; the request id is the turn's id, and again means: the same turn, news after ``after``.

    Answers: many News, the last with the terminal event; or a Failure when it is not accepted. ``after`` is the last
    sequence number the caller has seen of this turn, 0 for none; ``heard`` the number of the last News it has.
    """

    text: str
    after: int = 0
    heard: int = 0
    deadline_s: float | None = None
    tool_deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Send the conversation's events after number ``after`` as they come. Again: a sign of life, and how far it got.

    Answers: many News; or a Failure. ``heard`` is the number of the last News that came. ``wakes`` False: the caller
    was told that the client was about to leave, and nothing happens in a conversation that has none.
    """

    after: int = 0
    heard: int = 0
    wakes: bool = True


@dataclass(frozen=True, slots=True)
class News:
    """Events for a reader, in order; empty: a sign of life. ``number`` counts what this life of the client sent it.

    ``upto`` is the number of the last logged event that it was sent, with this or before.
    ``state``: ``active`` (a turn is under way or waits), ``idle`` (none, and these are the last events so far), or
    ``resting`` (idle, and the conversation has no client now).
    """

    events: tuple[Event, ...] = ()
    number: int = 0
    upto: int = 0
    state: Literal["active", "idle", "resting"] = "active"


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
class ConfigureTool:
    """Give the tool settings in this conversation, over the configuration's; None takes them back.

    Again: harmless. Answer: True or a Failure (``no_such_tool``, ``bad_request``).
    """

    tool: str
    settings: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class GetTools:
    """What the conversation may use. Answer: a tuple of ToolState."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolState:
    """One tool as a conversation (or the system) sees it."""

    spec: ToolSpec
    state: Literal["enabled", "available", "disabled"]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecideCall:
    """A person decides on a call that waits. ``arguments``: what is to run instead; ``scope``: this call or all of it.

    Answer: True once the decision is durable, or a Failure (``not_waiting``, ``bad_arguments``, ``tool_changed``,
    ``expired``).
    Again, under one request id: harmless.
    """

    call_id: str
    approved: bool
    arguments: Mapping[str, Any] | None = None
    scope: Literal["once", "conversation"] = "once"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class GetApprovals:
    """Which calls wait for a person. Answer: a tuple of ApprovalRequested."""


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
# A conversation's id counts within its team: what is another team's is not there.
@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """Become the owner of a conversation's log; ``create`` is its first event when it may be new.

    Answer: LogOpened or a Failure (``not_found``). Again: a further epoch.
    """

    conversation_id: str
    team: str
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
    team: str
    epoch: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPieces:
    """Keep contents beside the owner's log, each under its SHA-256. Again: harmless. Answer: True or a Failure."""

    conversation_id: str
    team: str
    epoch: int
    pieces: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPiece:
    """A content that is kept beside a log. Answer: the bytes, or a Failure (``not_found``)."""

    conversation_id: str
    team: str
    digest: str


@dataclass(frozen=True, slots=True)
class GetUnfinished:
    """Which conversations have a turn without an ending. Answer: a tuple of UnfinishedLog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedLog:
    """A conversation that is to be revived."""

    conversation_id: str
    team: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLog:
    """Read a log without owning it: at most ``limit`` events after ``after``. Answer: History or a Failure."""

    conversation_id: str
    team: str
    after: int = 0
    limit: int = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ListLogs:
    """A team's conversations, the last changed first; ``before`` is the last one's ``cursor``. Answer: LogList."""

    team: str
    user: str | None = None
    limit: int = 100
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogList:
    """A page of conversations; ``more`` when there are older ones."""

    conversations: tuple[Summary, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteLog:
    """Delete a log with all that only it needs. Again: ``not_found``. Answer: True or a Failure."""

    conversation_id: str
    team: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportLog:
    """Write a whole log, numbered from 1 on. Answer: its last seq, or a Failure (``conflict``: it exists)."""

    conversation_id: str
    team: str
    events: tuple[Event, ...]


# ------------------------------------------------------------------ to the catalogue
@dataclass(frozen=True, slots=True)
class GetRegistry:
    """What exists. Answer: Registry, or RegistryUnchanged where ``known`` is still its version."""

    known: str = ""


@dataclass(frozen=True, slots=True)
class RegistryUnchanged:
    """The registry is the one that the asker knows."""


@dataclass(frozen=True, slots=True)
class ReloadTools:
    """Describe all tool modules anew; one that cannot be keeps the tools that it had. Answer: Reloaded or a Failure.

    Again, while it runs: the same reload. Another request while one runs: one more reload, after it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What a reload changed, as names of tools; ``faults`` are the modules that could not be loaded, and why."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFeature:
    """Switch a feature flag for a team, ``""`` for all; ``enabled`` None: as configured. Again: harmless.

    Answer: True once it is written down, or a Failure.
    """

    name: str
    team: str = ""
    enabled: bool | None = None


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
    """All tools by exposed name, the reports of the servers, the modules that could not be loaded, and the feature
    flags as switched at run time, by (flag, team). ``version`` changes whenever any of it does.
    """

    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    servers: Mapping[str, ServerReport] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[tuple[str, str], bool] = field(default_factory=dict)
    version: str = ""

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

    ModelText notices come on the way; the answer is a ChatDone or a ModelFault. ``policy`` is what to do when the
    items do not fit the model's context window; the present turn begins at the index ``turn_at`` (None: at the last
    user message).
    """

    items: tuple[Item, ...]
    tools: tuple[ToolSpec, ...]
    turn_at: int | None = None
    policy: ContextPolicy = "trim"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatDone:
    """The model's reply, and what its request had to do without, if anything."""

    reply: ModelReply
    left_out: LeftOut | None = None


ChatAnswer: TypeAlias = ChatDone | ModelFault


@dataclass(frozen=True, slots=True)
class GetEmbedded:
    """Where the embedded model answers; starts it on first use. Answer: EmbeddedAt or a Failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAt:
    """The embedded model's endpoint on loopback."""

    base_url: str
    api_key: str


# ------------------------------------------------------------------ to the limits actor
@dataclass(frozen=True, slots=True)
class JoinLimits:
    """Tell this member from now on. Again: harmless. Answer: LimitsAre, and LimitsAre notices at each change."""

    member: str


@dataclass(frozen=True, slots=True)
class LimitsAre:
    """What is known of endpoints, by their key; the instants in the states are seconds from now."""

    states: Mapping[str, EndpointState]


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """What came of a call to an endpoint. No answer."""

    endpoint: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TakeProbe:
    """May one call try an endpoint whose breaker is half-open? Not to be sent again. Answer: True or False."""

    endpoint: str


# ------------------------------------------------------------------ calls
@dataclass(frozen=True, slots=True, kw_only=True)
class CallTool:
    """To an external server: call a tool. Sent to one life of the server only, never to its successor. Again: harmless.

    ``version``: the digest of the tool that was decided on, another one is not called; empty: whichever it is.
    Answer: a ToolResult; or before that Progress, after each of which AwaitCall asks on under the same request id.
    """

    tool: str
    arguments: Mapping[str, Any]
    deadline_s: float
    version: str = ""


@dataclass(frozen=True, slots=True)
class AwaitCall:
    """To an external server: the call of this request id is waited for still. Again: harmless. Answer: CallTool's."""


@dataclass(frozen=True, slots=True)
class CancelCall:
    """To an external server: nobody waits for this request's result any more."""

    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One call for a tool worker, and the seconds that it may take."""

    spec: ToolSpec
    arguments: Mapping[str, Any]
    context: ToolContext
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTool:
    """To the caller: run one tool for a person, as a new conversation of the template would. Again: the same answer.

    ``caller_pid`` is the life of the caller that is meant: its successor runs nothing again. ``arguments`` is JSON.
    ``enable``: the tool is enabled first, as a person may do in a conversation. ``owner``: with that process the call
    ends, too. ``approval`` is the digest of the ApprovalRequested that a person approved of, ``edited`` what is to run
    instead of what was asked for then.
    Answers: ToolRuns when it runs and at each repetition, before that CallQueued at each repetition, ``Progress`` on
    the way, and ToolRan, CallWaits or a Failure (``no_such_template``, ``child_gone`` ...) at last.
    """

    call_id: str
    tool: str
    arguments: str
    caller_pid: int
    template: str = "default"
    enable: bool = False
    deadline_s: float | None = None
    owner: Owner | None = None
    approval: str = ""
    edited: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StopTool:
    """To the caller: end this call by force, nobody wants its result. Again: harmless. Answer: True."""

    call_id: str


@dataclass(frozen=True, slots=True)
class CallQueued:
    """Notice: a call that a RunTool asked for does not run yet; its server, its hook or a place is awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRuns:
    """A call that a RunTool asked for was let through, and runs."""

    decision: str
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWaits:
    """A call that a RunTool asked for needs a person. It is over for the caller; approved of, it is asked for anew."""

    asked: ApprovalRequested
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRan:
    """What came of a RunTool; ``duration_s`` is in seconds, 0 where the call was refused. ``decision`` is as the log of
    a conversation has it, ``layers`` says it layer by layer.
    """

    result: ToolResult
    duration_s: float
    decision: str
    layers: tuple[Layer, ...]
