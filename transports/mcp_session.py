"""The MCP client's session with one server process, as a pure machine, in both protocol eras.

It decides what to send, which era the server speaks, which tools it has and how each call ends. It never
reads a clock, touches a descriptor or starts a process: the external-server actor feeds it lines and instants
and performs the effects, in order. One session per process; after ``Failed``, ``NeedsRespawn`` or ``closed``
it is over.

    NEW ─start─> PROBING ──discover answered──────────────> LISTING ──last page──> READY
          │         └─error, silence──> INITIALIZING ──ok──────┘
          └──(era LEGACY)───────────────────┘          any handshake fault ──> OVER (Failed or NeedsRespawn)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from enum import Enum, auto
from typing import Any, assert_never

from callboard.transports import jsonrpc
from callboard.transports.errors import NotSerialisable
from callboard.transports.jsonrpc import (
    INVALID_PARAMS,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
)
from callboard.transports.mcp_effects import (
    CallFailed,
    CallResult,
    Effect,
    Era,
    Failed,
    Json,
    NeedsRespawn,
    Note,
    Progress,
    Ready,
    Send,
    SessionLimits,
    ToolsChanged,
)
from callboard.transports.mcp_handshake import (
    Adopt,
    Discover,
    GiveUp,
    Handshake,
    Initialize,
    Step,
    Wait,
    error_text,
)
from callboard.transports.mcp_protocol import (
    BATCH_VERSION,
    LEGACY_VERSIONS,
    MODERN_VERSION,
    Identity,
    modern_meta,
    read_call_result,
    read_progress,
)
from callboard.transports.mcp_requests import Kind, Pending, RequestsInFlight
from callboard.transports.mcp_tool_list import ToolListing

__all__ = [
    "CallFailed",
    "CallResult",
    "Effect",
    "Era",
    "Failed",
    "McpSession",
    "NeedsRespawn",
    "Note",
    "Progress",
    "Ready",
    "Send",
    "SessionLimits",
    "ToolsChanged",
]


class _Phase(Enum):
    NEW = auto()
    PROBING = auto()
    INITIALIZING = auto()
    LISTING = auto()
    READY = auto()
    OVER = auto()


_SHAKING_HANDS = frozenset({_Phase.PROBING, _Phase.INITIALIZING})


class McpSession:
    """One session. Every method that returns effects must have them performed in order.

    ``era`` is AUTO unless the owner knows it from an earlier process (``self.era``) or from ``NeedsRespawn``.
    """

    def __init__(
        self,
        *,
        era: Era = Era.AUTO,
        limits: SessionLimits | None = None,
        client_name: str = "callboard",
        client_version: str = "0",
    ) -> None:
        self._limits = limits or SessionLimits()
        self._client_info = {"name": client_name, "version": client_version}
        self._handshake = Handshake(era)
        self._phase = _Phase.NEW
        self._identity: Identity | None = None
        self._requests = RequestsInFlight()
        self._tools: tuple[Json, ...] = ()
        self._listing: ToolListing | None = None
        self._relist_at: float | None = None
        self._counts: Counter[str] = Counter()
        self._first_garbage = ""
        self._hint = ""

    @property
    def era(self) -> Era:
        """Say which era was found; AUTO while it is not known."""
        if self._identity is None:
            return Era.AUTO
        return Era.MODERN if self._identity.protocol_version == MODERN_VERSION else Era.LEGACY

    @property
    def ready(self) -> bool:
        """True while calls may be made."""
        return self._phase is _Phase.READY

    @property
    def counts(self) -> Mapping[str, int]:
        """Count what was odd: ``garbage`` on stdout, ``unmatched`` answers, ``notes`` (shown or not), and
        ``progress_dropped``: of no call in flight, of one that did not ask, or going backwards.
        """
        return dict(self._counts)

    def next_deadline(self) -> float | None:
        """Give the instant at which ``tick`` must be called at the latest, None when nothing is timed."""
        relist_at = self._relist_at if self._listing is None else None
        instants = [at for at in (self._requests.next_deadline(), relist_at) if at is not None]
        return min(instants, default=None)

    # What the owner does.

    def start(self, now: float) -> list[Effect]:
        """Open the session: probe for the era, or shake hands at once when it is known to be legacy."""
        if self._phase is not _Phase.NEW:
            raise ValueError("a session starts once; make a new one for each process")
        return self._step(self._handshake.opening(), now)

    def call_tool(
        self,
        ref: Hashable,
        name: str,
        arguments: Json,
        now: float,
        deadline_s: float,
        *,
        progress: bool = False,
    ) -> list[Effect]:
        """Call a tool. The one ending comes as an effect, now or later, within ``deadline_s`` seconds.

        ``progress`` asks the server for progress. Raises ValueError when ``ref`` is in flight already.
        """
        if self._requests.find(ref) is not None:
            raise ValueError(f"call {ref!r} is in flight already")
        if self._phase is not _Phase.READY:
            return [CallFailed(ref, "unavailable", "the server is not ready")]
        if len(self._requests) >= self._limits.max_calls:
            return [
                CallFailed(ref, "unavailable", f"{self._limits.max_calls} calls are in flight on this server")
            ]
        if deadline_s <= 0:
            return [CallFailed(ref, "deadline", "no time was left to call the server")]
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments)}
        if progress:
            params["_meta"] = {"progressToken": self._requests.next_id}
        try:
            return [self._ask(Kind.CALL, params, now + deadline_s, ref=ref, wants_progress=progress)]
        except NotSerialisable as fault:
            return [CallFailed(ref, "bad_arguments", f"arguments of {name!r}: {fault}")]

    def cancel(self, ref: Hashable, now: float) -> list[Effect]:
        """Give a call up and tell the server; a call that has ended already is left alone."""
        request_id = self._requests.find(ref)
        if request_id is None:
            return []
        self._requests.take(request_id)
        return [_cancelled(request_id, "cancelled"), CallFailed(ref, "cancelled", "the call was cancelled")]

    def tick(self, now: float) -> list[Effect]:
        """End what is overdue at ``now``, and fetch a changed tool list when it is time."""
        effects: list[Effect] = []
        for pending in self._requests.take_overdue(now):
            if self._phase is not _Phase.OVER or pending.kind is Kind.CALL:
                effects += self._expired(pending, now)
        if self._phase is _Phase.READY and self._listing is None and _is_due(self._relist_at, now):
            self._relist_at = None
            effects += self._list_tools(now)
        return effects

    def received(self, line: bytes, now: float) -> list[Effect]:
        """Take one line from the server's stdout, whatever it is."""
        if self._phase is _Phase.OVER:
            return []
        decoded = jsonrpc.decode(line)
        effects: list[Effect] = []
        if decoded.garbage:
            effects += self._garbage(f"text around a message on stdout: {decoded.garbage}", decoded.garbage)
        if decoded.batch and not self._may_batch():
            effects += self._note("the server sent a batch, which this protocol version does not have")
        for message in decoded.messages:
            effects += self._handle(message, now)
        return effects

    def closed(self, reason: str, now: float) -> list[Effect]:
        """Take the loss of the connection (stdout ended, the process exited): every call fails at once.

        ``reason`` is shown to people: the exit status and the end of stderr belong in it.
        """
        if self._phase is _Phase.OVER:
            return []
        if self._phase in _SHAKING_HANDS:
            return self._step(self._handshake.lost(reason), now)
        failed: list[Effect] = [Failed(reason)] if self._phase is _Phase.LISTING else []
        return [*self._end(reason), *failed]

    # Messages.

    def _handle(self, message: jsonrpc.Message, now: float) -> list[Effect]:
        match message:
            case Response():
                pending = self._take(message.id)
                return [] if pending is None else self._answered(pending, message.result, now)
            case ErrorResponse():
                return self._error(message, now)
            case Malformed():
                return self._malformed(message, now)
            case Request():
                return self._asked(message)
            case Notification():
                return self._told(message, now)
        assert_never(message)

    def _take(self, message_id: jsonrpc.JsonId | None) -> Pending | None:
        pending = self._requests.take(message_id)
        if pending is None:
            self._counts["unmatched"] += 1
        return pending

    def _answered(self, pending: Pending, result: Any, now: float) -> list[Effect]:
        match pending.kind:
            case Kind.DISCOVER:
                return self._step(self._handshake.discovered(result), now)
            case Kind.INITIALIZE:
                return self._step(self._handshake.initialized(result), now)
            case Kind.LIST:
                return self._listed(result, now)
            case Kind.CALL:
                return [read_call_result(pending.ref, result)]
            case Kind.LISTEN:
                return self._note("the server ended the subscription to its tool list")
        assert_never(pending.kind)

    def _error(self, error: ErrorResponse, now: float) -> list[Effect]:
        if error.id is None:
            return self._error_without_id(error, now)
        pending = self._take(error.id)
        return [] if pending is None else self._refused(pending, error, now)

    def _error_without_id(self, error: ErrorResponse, now: float) -> list[Effect]:
        # A server that could not read our id may answer with none. While the handshake has a single request
        # open there is no doubt which one is meant; later it is a hint for the message of whatever runs out
        # of time.
        text = f"the server reported an error without an id: {error_text(error)}"
        self._hint = text
        pending = self._requests.take_only() if self._phase in _SHAKING_HANDS else None
        return self._note(text) if pending is None else self._refused(pending, error, now)

    def _malformed(self, message: Malformed, now: float) -> list[Effect]:
        effects = self._garbage(f"{message.reason} on stdout: {message.excerpt}", message.excerpt)
        pending = self._requests.take(message.answers)
        if pending is None:
            return effects
        problem = f"its answer could not be read: {message.reason}"
        if pending.kind is Kind.CALL:
            return [*effects, CallFailed(pending.ref, "bad_result", problem)]
        error = ErrorResponse(pending.id, jsonrpc.PARSE_ERROR, problem)
        return effects + self._refused(pending, error, now)

    def _refused(self, pending: Pending, error: ErrorResponse, now: float) -> list[Effect]:
        text = error_text(error)
        match pending.kind:
            case Kind.DISCOVER:
                return self._step(self._handshake.probe_refused(error), now)
            case Kind.INITIALIZE:
                return self._step(self._handshake.initialize_refused(error), now)
            case Kind.LIST:
                return self._list_refused(pending, error, now)
            case Kind.CALL:
                return [CallFailed(pending.ref, "rejected", text)]
            case Kind.LISTEN:
                return self._note(f"no notice of changed tools: {text}")
        assert_never(pending.kind)

    def _asked(self, request: Request) -> list[Effect]:
        if self.era is Era.MODERN:
            return self._note(
                f"ignored the server's request {jsonrpc.excerpt(request.method)}: {MODERN_VERSION} has none"
            )
        if request.method == "ping":
            return [Send(jsonrpc.encode_response(request.id, {}))]
        message = f"method not supported by this client: {jsonrpc.excerpt(request.method)}"
        return [Send(jsonrpc.encode_error(request.id, jsonrpc.METHOD_NOT_FOUND, message))]

    def _told(self, notification: Notification, now: float) -> list[Effect]:
        match notification.method:
            case "notifications/tools/list_changed":
                if self._phase in (_Phase.LISTING, _Phase.READY) and self._relist_at is None:
                    self._relist_at = now + self._limits.relist_delay_s
            case "notifications/progress":
                return self._progressed(notification.params)
            case "notifications/message":
                level, data = notification.params.get("level"), notification.params.get("data")
                return self._note(jsonrpc.excerpt(f"the server says ({level}): {data}"))
        return []

    def _progressed(self, params: Json) -> list[Effect]:
        token = params.get("progressToken")
        pending = self._requests.get(token) if isinstance(token, (str, int, float)) else None
        reading = read_progress(params)
        if pending is None or reading is None or not _is_further(pending, reading[0]):
            self._counts["progress_dropped"] += 1
            return []
        self._requests.progressed(pending, reading[0])
        return [Progress(pending.ref, *reading)]

    # The handshake's steps, and the tool list.

    def _step(self, step: Step, now: float) -> list[Effect]:
        match step:
            case Discover():
                self._phase = _Phase.PROBING
                return [self._ask(Kind.DISCOVER, {}, now + self._limits.probe_s)]
            case Initialize(why):
                return [*self._note(f"using the legacy handshake: {why}"), self._initialize(now)]
            case Adopt(identity):
                return self._adopt(identity, now)
            case GiveUp(reason, respawn):
                return self._give_up(reason, respawn)
            case Wait():
                return []
        assert_never(step)

    def _initialize(self, now: float) -> Send:
        self._phase = _Phase.INITIALIZING
        params = {
            "protocolVersion": LEGACY_VERSIONS[0],
            "capabilities": {},
            "clientInfo": self._client_info,
        }
        return self._ask(Kind.INITIALIZE, params, now + self._limits.startup_s)

    def _adopt(self, identity: Identity, now: float) -> list[Effect]:
        # A late discovery may come while initialize is open, or the other way round: the loser is stale.
        self._requests.clear()
        self._identity = identity
        self._phase = _Phase.LISTING
        effects: list[Effect] = []
        if self.era is Era.LEGACY:
            effects.append(Send(jsonrpc.encode_notification("notifications/initialized")))
        return effects + (self._list_tools(now) if identity.has_tools else self._become_ready(identity, ()))

    def _give_up(self, reason: str, respawn: bool) -> list[Effect]:
        effects = self._end(reason)
        if respawn:
            return [*effects, NeedsRespawn(Era.LEGACY, reason)]
        if self._first_garbage:
            reason += f"; the server prints to stdout what is no message, first: {self._first_garbage}"
        return [*effects, Failed(reason)]

    def _end(self, reason: str) -> list[Effect]:
        calls = [pending.ref for pending in self._requests.clear() if pending.kind is Kind.CALL]
        self._listing = None
        self._relist_at = None
        self._phase = _Phase.OVER
        return [CallFailed(ref, "closed", reason) for ref in calls]

    def _list_tools(self, now: float) -> list[Effect]:
        self._listing = ToolListing(max_pages=self._limits.max_pages, max_tools=self._limits.max_tools)
        return [self._ask_page(None, now)]

    def _ask_page(self, cursor: str | None, now: float) -> Send:
        params = {} if cursor is None else {"cursor": cursor}
        return self._ask(Kind.LIST, params, now + self._limits.list_s, cursor=cursor)

    def _listed(self, result: Any, now: float) -> list[Effect]:
        listing = self._listing
        if listing is None:
            return []
        try:
            cursor = listing.add(result)
        except ValueError as fault:
            return self._list_failed(str(fault))
        if cursor is not None:
            return [self._ask_page(cursor, now)]
        self._listing = None
        notes = [note for text in listing.notes for note in self._note(text)]
        return notes + self._have_tools(listing.tools)

    def _list_refused(self, pending: Pending, error: ErrorResponse, now: float) -> list[Effect]:
        expired_cursor = error.code == INVALID_PARAMS and pending.cursor is not None
        if expired_cursor and self._counts["relisted"] < 3:
            self._counts["relisted"] += 1
            return self._list_tools(now)
        return self._list_failed(error_text(error))

    def _list_failed(self, reason: str) -> list[Effect]:
        self._listing = None
        reason = f"tools/list failed: {reason}"
        if self._phase is _Phase.LISTING:
            return self._give_up(reason, respawn=False)
        return self._note(f"{reason}; the tools known before stay")

    def _have_tools(self, tools: tuple[Json, ...]) -> list[Effect]:
        if self._phase is _Phase.LISTING and self._identity is not None:
            return self._become_ready(self._identity, tools)
        if tools == self._tools:
            return []
        self._tools = tools
        return [ToolsChanged(tools)]

    def _become_ready(self, identity: Identity, tools: tuple[Json, ...]) -> list[Effect]:
        self._phase = _Phase.READY
        self._tools = tools
        effects: list[Effect] = [
            Ready(tools, identity.server_info, identity.protocol_version, identity.instructions)
        ]
        if self.era is Era.MODERN and identity.announces_tool_changes:
            effects.append(self._ask(Kind.LISTEN, {"notifications": {"toolsListChanged": True}}, None))
        return effects

    # Time, and the way out.

    def _expired(self, pending: Pending, now: float) -> list[Effect]:
        match pending.kind:
            case Kind.DISCOVER:
                self._requests.keep_without_deadline(pending)
                return self._step(self._handshake.probe_silent(self._limits.probe_s), now)
            case Kind.INITIALIZE:
                reason = f"no answer to initialize within {self._limits.startup_s:g} s"
                return self._step(self._handshake.lost(reason), now)
            case Kind.LIST:
                late: list[Effect] = [_cancelled(pending.id, "timeout")]
                return late + self._list_failed(f"no answer within {self._limits.list_s:g} s")
            case Kind.CALL:
                hint, self._hint = f" ({self._hint})" if self._hint else "", ""
                failed = CallFailed(pending.ref, "deadline", f"no answer from the server in time{hint}")
                return [_cancelled(pending.id, "timeout"), failed]
            case Kind.LISTEN:
                return []
        assert_never(pending.kind)

    def _ask(
        self,
        kind: Kind,
        params: dict[str, Any],
        deadline: float | None,
        *,
        ref: Hashable = None,
        cursor: str | None = None,
        wants_progress: bool = False,
    ) -> Send:
        if kind is Kind.DISCOVER or self.era is Era.MODERN:
            params = {**params, "_meta": {**params.get("_meta", {}), **modern_meta(self._client_info)}}
        pending = Pending(
            id=self._requests.next_id,
            kind=kind,
            deadline=deadline,
            ref=ref,
            cursor=cursor,
            wants_progress=wants_progress,
        )
        return Send(self._requests.open(pending, params))

    def _may_batch(self) -> bool:
        return self._identity is not None and self._identity.protocol_version == BATCH_VERSION

    def _garbage(self, text: str, first: str) -> list[Effect]:
        self._counts["garbage"] += 1
        self._first_garbage = self._first_garbage or first
        return self._note(text)

    def _note(self, text: str) -> list[Effect]:
        self._counts["notes"] += 1
        if self._counts["notes"] > self._limits.max_notes:
            return []
        if self._counts["notes"] == self._limits.max_notes:
            text += " (further notes of this session are counted, not shown)"
        return [Note(text[:1000])]


def _cancelled(request_id: int, reason: str) -> Send:
    params = {"requestId": request_id, "reason": reason}
    return Send(jsonrpc.encode_notification("notifications/cancelled", params))


def _is_further(pending: Pending, progress: float) -> bool:
    return pending.wants_progress and (pending.progress is None or progress > pending.progress)


def _is_due(instant: float | None, now: float) -> bool:
    return instant is not None and instant <= now
