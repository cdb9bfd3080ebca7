"""The external-server actor: owns one stdio MCP server's process and its session, and carries everybody's calls.

A shell around ``transports.mcp_session``. When the process is lost, every call under way fails at once and this actor
ends with the reason: its supervisor starts it again, with backoff, and parks it after repeated failure.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from callboard.actors.child_io import ChildIO
from callboard.actors.mcp_content import result_of, specs_of_server
from callboard.actors.messages import CallTool, CancelCall, ServerReport, ServerState
from callboard.actors.names import CATALOGUE
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
        self._calls: dict[str, Envelope] = {}
        self._waiting: dict[str, Envelope] = {}
        self._tick: Timer | None = None
        self.then_continue(lambda: self._open(Era.AUTO))
        self._repeat_report()

    def handle(self, envelope: Envelope) -> None:
        """Make a call, or give one up."""
        match envelope.body:
            case CallTool() if envelope.request_id in self._calls or envelope.request_id in self._waiting:
                return
            case CallTool() if self._session is not None and self._session.ready:
                self._call(envelope)
            case CallTool():
                self._waiting[envelope.request_id] = envelope
                self.after(_READY_WAIT_S, lambda: self._not_ready(envelope.request_id))
            case CancelCall(request_id):
                self._waiting.pop(request_id, None)
                if self._calls.pop(request_id, None) is not None and self._session is not None:
                    self._perform(self._session.cancel(request_id, self.now()))

    def stopping(self) -> bool:
        """End the process in order first."""
        self._fail_all(error_result("the server is being stopped", "unavailable"))
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
        message = f"the server {self._server.name} failed: {why}"
        self._fail_all(error_result(message, "unavailable"))
        self._state = "failed" if not self._specs and self._state == "starting" else "restarting"
        self._error = why
        self._report()
        if self._io is not None:
            self._io.close()
            self._io = None
        self.finish(f"crashed: {why}")

    # ------------------------------------------------------------ effects
    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._perform_one(effect)
        self._schedule_tick()

    def _perform_one(self, effect: Effect) -> None:
        match effect:
            case Send(data):
                self._send(data)
            case Ready(tools=tools, protocol_version=protocol):
                self._protocol = protocol
                self._now_ready(tools)
            case ToolsChanged(tools):
                self._now_ready(tools)
            case CallResult(ref=ref, content=content, structured=structured, is_error=is_error):
                self._finish(str(ref), result_of(content, structured, is_error))
            case CallFailed(ref=ref, kind=kind, message=message):
                self._finish(str(ref), self._failure(kind, message))
            case NeedsRespawn(era, reason):
                self.log.info("server_respawned", server=self._server.name, era=era.value, reason=reason)
                if self._io is not None:
                    self._io.close()
                    self._io = None
                self._open(era)
            case Failed(reason):
                self._give_up(reason)
            case Note(text):
                self.log.info("server_note", server=self._server.name, note=text)
            case Progress():
                return

    def _send(self, data: bytes) -> None:
        try:
            if self._io is not None:
                self._io.send(data)
        except TransportError as fault:
            self._give_up(str(fault))

    def _schedule_tick(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        at = self._session.next_deadline() if self._session is not None else None
        if at is not None and self._session is not None:
            session = self._session
            self._tick = self.after(at - self.now(), lambda: self._perform(session.tick(self.now())))

    def _now_ready(self, tools: Any) -> None:
        server = self._server
        fit = screened(tools)
        for flag in fit.flags:
            self.log.warning("tool_definition_flagged", server=server.name, flag=flag)
        self._specs = specs_of_server(
            server.name, fit.tools, call_deadline_s=server.call_deadline_s, trusted=server.trust_annotations
        )
        self._state, self._error = "ready", ""
        self.log.info("server_ready", server=server.name, protocol=self._protocol, tools=len(self._specs))
        self._report()
        waiting, self._waiting = self._waiting, {}
        for envelope in waiting.values():
            self._call(envelope)

    # ------------------------------------------------------------ calls
    def _call(self, envelope: Envelope) -> None:
        assert self._session is not None
        self._calls[envelope.request_id] = envelope
        call: CallTool = envelope.body
        effects = self._session.call_tool(
            envelope.request_id, call.tool, call.arguments, self.now(), call.deadline_s
        )
        self._perform(effects)

    def _finish(self, request_id: str, result: ToolResult) -> None:
        envelope = self._calls.pop(request_id, None)
        if envelope is not None:
            self.reply(envelope, result)

    def _failure(self, kind: str, message: str) -> ToolResult:
        outcome = {"deadline": "deadline", "closed": "unknown", "unavailable": "unavailable"}.get(
            kind, "error"
        )
        text = message
        if kind == "closed":
            text = f"the server {self._server.name} was lost while the call ran, its outcome is unknown: {message}"
        return error_result(text, outcome)

    def _not_ready(self, request_id: str) -> None:
        envelope = self._waiting.pop(request_id, None)
        if envelope is not None:
            message = f"the server {self._server.name} is not ready; the call was not made"
            self.reply(envelope, error_result(message, "unavailable"))

    def _fail_all(self, result: ToolResult) -> None:
        for envelope in (*self._calls.values(), *self._waiting.values()):
            self.reply(envelope, result)
        self._calls.clear()
        self._waiting.clear()

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
