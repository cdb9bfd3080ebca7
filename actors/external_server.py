"""The external-server actor: owns one stdio MCP server's process and its session, and carries everybody's calls.

A shell around ``transports.mcp_session``. When the process is lost, every call under way fails at once and this actor
ends with the reason: its supervisor starts it again, with backoff, and parks it after repeated failure.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from callboard.actors.child_io import ChildIO
from callboard.actors.mcp_content import change_since, result_of, specs_of_server
from callboard.actors.messages import AwaitCall, CallTool, CancelCall, ServerReport, ServerState
from callboard.actors.names import CATALOGUE
from callboard.actors.server_calls import ServerCalls
from callboard.actors.settings import ServerSettings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.supervisor.timers import Timer
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolSpec
from callboard.tools.definitions import screened
from callboard.transports.errors import TransportError
from callboard.transports.mcp_effects import (
    CallFailed,
    CallResult,
    Effect,
    Era,
    Failed,
    NeedsRespawn,
    Note,
    Progress,
    Ready,
    Send,
    SessionLimits,
    ToolsChanged,
)
from callboard.transports.mcp_session import McpSession
from callboard.transports.redaction import redacted

_REPORT_S = 30.0
_REPORT_AGAIN_S = 2.0
_READY_WAIT_S = 10.0


class ExternalServerActor(Child):
    """``args``: ``server`` (ServerSettings)."""

    holds_secrets = True

    def start(self) -> None:
        """Be there at once; the process starts right after, so that a bad server keeps nobody waiting."""
        self._server: ServerSettings = self.init.args["server"]
        self._io: ChildIO | None = None
        self._session: McpSession | None = None
        self._specs: tuple[ToolSpec, ...] = ()
        self._state: ServerState = "starting" if self.init.restarts == 0 else "restarting"
        self._error = ""
        self._protocol = ""
        self._origin: tuple[str, ...] = ()
        self._calls = ServerCalls(self, self._server.name)
        self._waiting: set[str] = set()
        self._tick: Timer | None = None
        self._tick_at: float | None = None
        self.then_continue(lambda: self._open(Era.AUTO))
        self._repeat_report()

    def handle(self, envelope: Envelope) -> None:
        """Make a call, or give one up."""
        match envelope.body:
            case CallTool() if self._calls.add(envelope):
                if self._session is not None and self._session.ready:
                    self._call(envelope)
                else:
                    self._waiting.add(envelope.request_id)
                    self.after(_READY_WAIT_S, lambda: self._not_ready(envelope.request_id))
            case AwaitCall():
                self._calls.ask_on(envelope)
            case CancelCall(request_id):
                self._waiting.discard(request_id)
                if self._calls.drop(request_id) and self._session is not None:
                    self._perform(self._session.cancel(request_id, self.now()))

    def stopping(self) -> bool:
        """End the process in order first."""
        self._calls.answer_all(error_result("the server is being stopped", "unavailable"))
        self._tell_oddities()
        if self._io is None:
            return True
        self._io.stop(lambda: self.finish("shutdown"))
        return False

    # ------------------------------------------------------------ process and session
    def _open(self, era: Era) -> None:
        server = self._server
        limits = SessionLimits(startup_s=server.startup_s, probe_s=min(10.0, server.startup_s))
        self._session = McpSession(era=era, limits=limits, client_version=version("callboard"))
        try:
            self._io = ChildIO(self, server.argv, server.env, server.cwd, self._line, self._lost)
        except TransportError as fault:
            self._give_up(str(fault))
            return
        self._report()
        self._perform(self._session.start(self.now()))

    def _line(self, line: bytes) -> None:
        if self._session is not None:
            self._perform(self._session.received(line, self.now()))

    def _lost(self, why: str) -> None:
        """The process is gone: the session says what becomes of the calls, and whether it was only the probe."""
        self._io = None
        assert self._session is not None
        effects = self._session.closed(why, self.now())
        self._perform(effects)
        if not any(isinstance(effect, Failed | NeedsRespawn) for effect in effects):
            self._give_up(why)

    def _give_up(self, why: str) -> None:
        why = self._redacted(why)
        message = f"the server {self._server.name} failed: {why}"
        self._calls.answer_all(error_result(message, "unavailable"))
        self._tell_oddities()
        self._state = "failed" if not self._specs and self._state == "starting" else "restarting"
        self._error = why
        self._report()
        if self._io is not None:
            self._io.close()
            self._io = None
        self.finish(f"crashed: {why}")

    def _redacted(self, text: str) -> str:
        return redacted(text, self._server.env)

    # ------------------------------------------------------------ effects
    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._perform_one(effect)
        self._schedule_tick()

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(data):
                self._send(data)
            case Ready(tools=tools, protocol_version=protocol, server_info=info):
                self._protocol = protocol
                self._origin = (*self._server.argv, *(str(info.get(key, "")) for key in ("name", "version")))
                self._now_ready(tools)
            case ToolsChanged(tools):
                self._now_ready(tools)
            case CallResult(ref=ref, content=content, structured=structured, is_error=is_error):
                self._calls.answer(str(ref), result_of(content, structured, is_error))
            case CallFailed(ref=ref, kind=kind, message=message):
                self._calls.answer(str(ref), self._failure(kind, self._redacted(message)))
            case NeedsRespawn(era, reason):
                why = self._redacted(reason)
                self.log.info("server_respawned", server=self._server.name, era=era.value, reason=why)
                if self._io is not None:
                    self._io.close()
                    self._io = None
                self._open(era)
            case Failed(reason):
                self._give_up(reason)
            case Note(text):
                self.log.info("server_note", server=self._server.name, note=self._redacted(text))
            case Progress(ref=ref):
                self._calls.progressed(str(ref), effect)

    def _send(self, data: bytes) -> None:
        try:
            if self._io is not None:
                self._io.send(data)
        except TransportError as fault:
            self._give_up(str(fault))

    def _schedule_tick(self) -> None:
        """A flood of lines that change nothing leaves the timer alone."""
        session = self._session
        at = session.next_deadline() if session is not None else None
        if at == self._tick_at:
            return
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._tick_at = at
        if at is not None:
            self._tick = self.after(at - self.now(), self._ticked)

    def _ticked(self) -> None:
        self._tick = self._tick_at = None
        if self._session is not None:
            self._perform(self._session.tick(self.now()))

    def _now_ready(self, tools: Any) -> None:
        server = self._server
        fit = screened(tools)
        for flag in fit.flags:
            self.log.warning("tool_definition_flagged", server=server.name, flag=flag)
        former, self._specs = (
            self._specs,
            specs_of_server(
                server.name,
                fit.tools,
                call_deadline_s=server.call_deadline_s,
                trusted=server.trust_annotations,
                origin=self._origin,
            ),
        )
        self._tell_changes(former)
        self._state, self._error = "ready", ""
        self.log.info("server_ready", server=server.name, protocol=self._protocol, tools=len(self._specs))
        self._report()
        waiting, self._waiting = self._waiting, set()
        for request_id in waiting:
            envelope = self._calls.envelope(request_id)
            if envelope is not None:
                self._call(envelope)

    def _tell_changes(self, former: tuple[ToolSpec, ...]) -> None:
        known = {spec.name: spec.digest for spec in former}
        for spec in self._specs:
            old = known.get(spec.name, spec.digest)
            if old != spec.digest:
                self.log.warning(
                    "tool_changed", server=self._server.name, tool=spec.name, old=old, new=spec.digest
                )

    def _tell_oddities(self) -> None:
        """What a session only counts is said at its end."""
        if self._session is not None and self._session.counts:
            self.log.info("server_oddities", server=self._server.name, **self._session.counts)

    # ------------------------------------------------------------ calls
    def _call(self, envelope: Envelope) -> None:
        assert self._session is not None
        call: CallTool = envelope.body
        change = change_since(self._specs, call.tool, call.version)
        if change is not None:
            self._calls.answer(envelope.request_id, error_result(change, "denied"))
            return
        effects = self._session.call_tool(
            envelope.request_id, call.tool, call.arguments, self.now(), call.deadline_s, progress=True
        )
        self._perform(effects)

    def _failure(self, kind: str, message: str) -> ToolResult:
        outcome = {"deadline": "deadline", "closed": "unknown", "unavailable": "unavailable"}.get(
            kind, "error"
        )
        text = message
        if kind == "closed":
            text = f"the server {self._server.name} was lost while the call ran, its outcome is unknown: {message}"
        return error_result(text, outcome)

    def _not_ready(self, request_id: str) -> None:
        if request_id in self._waiting:
            self._waiting.discard(request_id)
            message = f"the server {self._server.name} is not ready; the call was not made"
            self._calls.answer(request_id, error_result(message, "unavailable"))

    # ------------------------------------------------------------ reports
    def _report(self) -> None:
        report = ServerReport(
            server=self._server.name,
            state=self._state,
            tools=self._specs,
            pid=self._io.pid if self._io is not None else None,
            protocol=self._protocol,
            restarts=self.init.restarts,
            last_error=self._error[-500:],
        )
        self.ask(CATALOGUE, report, lambda _answer: None, deadline_s=_REPORT_S)

    def _repeat_report(self) -> None:
        """A catalogue that was restarted has forgotten us."""
        self.after(_REPORT_AGAIN_S, self._repeat_report)
        self._report()
