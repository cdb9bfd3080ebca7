"""The Python API: ``connect`` to a system, open conversations, ask. From any process of the same user.

Nothing of the embedding process is forked or hooked: a private system is started by exec, with a lease that ends it
when its owner ends. Objects may be shared between threads; one ``ask`` is one thread's.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callboard.actors.arrival import fault_of
from callboard.actors.events import ConversationOpened, Event
from callboard.actors.messages import (
    Ask,
    Cancel,
    CloseConversation,
    ConversationIsOpen,
    DirectoryStatus,
    DisableTool,
    EnableTool,
    GetHistory,
    GetRegistry,
    GetStatus,
    GetTools,
    History,
    News,
    OpenConversation,
    Registry,
    ToConversation,
    ToolState,
)
from callboard.actors.names import CATALOGUE, SERVERS
from callboard.actors.owner import this_process
from callboard.actors.toolbox import Toolbox, states
from callboard.config import Config, discover_config, load_config
from callboard.daemon import SystemInfo, is_running, read_info, runs
from callboard.errors import ConversationNotFound, NoDaemon, Refused, ToolNotFound, Unavailable
from callboard.mailbox import Mailbox
from callboard.paths import runtime_dir
from callboard.private_system import PrivateSystem
from callboard.supervisor.envelope import Failure, Principal
from callboard.supervisor.figures import figures_of
from callboard.supervisor.table import ProcessTable, Row
from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing

_ANSWER_S = 20.0
_SILENT_S = 30.0
_STOP_S = 8.0


def connect(
    *,
    name: str = "default",
    config: Config | Path | str | None = None,
    private: bool | None = None,
    timeout_s: float = 60.0,
) -> System:
    """Attach to the running daemon ``name`` of this user, or start a private system that ends with this process.

    ``private``: None takes the daemon when one runs and starts a private system otherwise (always, when ``config`` is
    given); True always starts one; False never does. Raises NoDaemon, DaemonFailed or ConfigError.
    """
    if private is None:
        private = config is not None or not runs(name)
    if private:
        loaded = (
            config
            if isinstance(config, Config)
            else load_config(Path(config))
            if config
            else discover_config(Path.cwd())
        )
        process = PrivateSystem.start(loaded, timeout_s)
        return System(process.folder, process.info, process)
    if not runs(name):
        raise NoDaemon(f"no system named {name} is running; start one with 'callboard serve'")
    folder = runtime_dir(name)
    return System(folder, _await_info(folder, name, timeout_s), None)


def _await_info(folder: Path, name: str, timeout_s: float) -> SystemInfo:
    give_up_at = time.monotonic() + timeout_s
    while time.monotonic() < give_up_at:
        info = read_info(folder)
        if info is not None:
            return info
        if not is_running(folder):
            break
        time.sleep(0.02)
    raise Unavailable(f"the system {name} did not come up within {timeout_s:g} s; see {folder}/log.jsonl")


class System:
    """A running system. ``private``: it was started for this object, and ``close`` ends it."""

    def __init__(self, folder: Path, info: SystemInfo, process: PrivateSystem | None) -> None:
        self._folder = folder
        self._info = info
        self._process = process
        self._mailbox = Mailbox(folder)

    @property
    def private(self) -> bool:
        """True when the system belongs to this object alone."""
        return self._process is not None

    @property
    def model_name(self) -> str:
        """The model that conversations use: ``embedded``, or the endpoint's model."""
        return self._info.model

    def conversation(
        self,
        *,
        user: str = "",
        team: str = "",
        roles: Sequence[str] = (),
        template: str = "default",
        tools: Sequence[str] | None = None,
        conversation_id: str | None = None,
        linked: bool = True,
        create: bool = True,
    ) -> Conversation:
        """Open a conversation, or the one with this id again; with ``create`` False only one that exists.

        ``tools`` are patterns of the tools that it starts with, instead of the template's. ``linked``: it ends when
        this process does. Raises Refused (no such template, a bad id), ConversationNotFound or Unavailable.
        """
        if isinstance(tools, str) or isinstance(roles, str):
            raise TypeError("tools and roles are sequences of names, not one text")
        opened = ConversationOpened(
            conversation_id=conversation_id or uuid.uuid4().hex,
            user=user,
            team=team,
            roles=tuple(roles),
            template=template,
            enabled=tuple(tools) if tools is not None else self._template_tools(template),
            owner=this_process() if linked else None,
        )
        conversation = Conversation(
            self, opened.conversation_id, Principal(user=user, team=team, roles=tuple(roles))
        )
        command = OpenConversation(opened=opened, must_exist=not create)
        answer = self._request(command, principal=conversation.principal)
        assert isinstance(answer, ConversationIsOpen)
        return conversation

    def tools(self) -> list[ToolListing]:
        """List all tools that exist, with what the default template enables; faulty modules come as ``disabled``."""
        registry = self._registry()
        enabled = Toolbox(patterns=self._template_tools("default")).enabled(registry.tools)
        listed = [_listing(state) for state in states(registry, enabled)]
        faults = [
            ToolListing(name=module, state="disabled", reason=reason, source=module)
            for module, reason in sorted(registry.faults.items())
        ]
        return listed + faults

    def servers(self) -> list[ServerInfo]:
        """List the configured external servers and how they are."""
        rows = {row.id: row for row in ProcessTable(self._folder).rows()}
        listed = []
        for report in self._registry().servers.values():
            row = rows.get(f"{SERVERS}.{report.server}")
            listed.append(
                ServerInfo(
                    name=report.server,
                    state=report.state,
                    pid=report.pid,
                    protocol=report.protocol or None,
                    tools=len(report.tools),
                    restarts=row.restarts if row else report.restarts,
                    last_error=report.last_error or None,
                )
            )
        return listed

    def tree(self) -> list[ActorInfo]:
        """List every actor, parents before children."""
        return [_actor(row) for row in ProcessTable(self._folder).rows()]

    def status(self) -> SystemStatus:
        """Say how the whole is."""
        info = read_info(self._folder) or self._info
        answer = self._request(GetStatus())
        assert isinstance(answer, DirectoryStatus)
        started = datetime.fromisoformat(info.started_at)
        return SystemStatus(
            name=info.name,
            pid=info.pid,
            version=info.version,
            started_at=info.started_at,
            uptime_s=round((datetime.now(UTC) - started).total_seconds(), 1),
            config=info.config,
            runtime_dir=str(self._folder),
            conversations=answer.conversations,
        )

    def stop(self) -> None:
        """Ask the system to stop, and wait until it has. Raises Unavailable when it does not."""
        import signal

        if self._process is not None:
            self.close()
            return
        info = read_info(self._folder)
        if info is not None:
            try:
                os.kill(info.pid, signal.SIGTERM)
            except ProcessLookupError:
                return
        give_up_at = time.monotonic() + _STOP_S
        while is_running(self._folder):
            if time.monotonic() > give_up_at:
                raise Unavailable(f"the system {self._info.name} (process {self._info.pid}) did not stop")
            time.sleep(0.02)

    def close(self) -> int:
        """Let go of the system; a private one ends, and with it all its processes. Gives its exit code, else 0."""
        self._mailbox.close()
        return self._process.close() if self._process is not None else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _registry(self) -> Registry:
        answer = self._request(GetRegistry(), to=CATALOGUE)
        assert isinstance(answer, Registry)
        return answer

    def _template_tools(self, template: str) -> tuple[str, ...]:
        tools = self._info.templates.get(template)
        if tools is None:
            known = ", ".join(sorted(self._info.templates))
            raise Refused(f"there is no template {template!r}; the configuration has: {known}")
        return tuple(tools)

    def _request(self, body: Any, *, principal: Principal | None = None, to: str | None = None) -> Any:
        extra = {} if to is None else {"to": to}
        answer = self._mailbox.request(body, timeout_s=_ANSWER_S, principal=principal, **extra)
        if isinstance(answer, Failure):
            raise _error(answer)
        return answer

    def _check_alive(self) -> None:
        if self._process is not None:
            self._process.check()
        elif not is_running(self._folder):
            raise Unavailable(f"the system {self._info.name} has ended")


class Conversation:
    """One conversation, as a caller has it. Get it from ``System.conversation``."""

    def __init__(self, system: System, id: str, principal: Principal) -> None:
        self._system = system
        self.id = id
        self.principal = principal

    def ask(
        self,
        text: str,
        *,
        request_id: str | None = None,
        deadline_s: float | None = None,
        tool_deadline_s: float | None = None,
    ) -> Iterator[Event]:
        """Take a turn and give its events as they happen, the last one its ending.

        The same ``request_id`` again joins the same turn, also after a crash of this process. Leaving the iteration
        early does not end the turn: ``cancel`` does. Raises Refused, ConversationNotFound or Unavailable.
        """
        turn_id = request_id or uuid.uuid4().hex
        problem = fault_of(Ask(text=text, deadline_s=deadline_s, tool_deadline_s=tool_deadline_s))
        if problem is not None:
            raise Refused(problem)
        seen = 0

        def command() -> ToConversation:
            ask = Ask(text=text, after=seen, deadline_s=deadline_s, tool_deadline_s=tool_deadline_s)
            return ToConversation(conversation_id=self.id, command=ask)

        with self._system._mailbox.exchange(
            command, request_id=turn_id, principal=self.principal
        ) as exchange:
            heard_at = time.monotonic()
            while True:
                answer = exchange.next(0.5)
                if answer is None:
                    self._system._check_alive()
                    if time.monotonic() - heard_at > _SILENT_S:
                        raise Unavailable(f"the conversation did not answer for {_SILENT_S:g} s")
                    continue
                heard_at = time.monotonic()
                if isinstance(answer, Failure):
                    raise _error(answer)
                assert isinstance(answer, News)
                for event in answer.events:
                    if event.seq is not None:
                        if event.seq <= seen or (seen and event.seq != seen + 1):
                            continue
                        seen = event.seq
                    yield event
                    if event.terminal and getattr(event, "turn_id", None) == turn_id:
                        return

    def cancel(self) -> None:
        """Cancel the turn under way, and those that wait. From any thread; nothing to cancel is no error."""
        self._command(Cancel())

    def enable(self, tool: str) -> None:
        """Let the conversation use the tool from its next step on. Raises ToolNotFound."""
        self._command(EnableTool(tool))

    def disable(self, tool: str) -> None:
        """Take the tool from the conversation, also for calls that have not started. Raises ToolNotFound."""
        self._command(DisableTool(tool))

    def tools(self) -> list[ToolListing]:
        """List every tool with its state in this conversation."""
        return [_listing(state) for state in self._command(GetTools())]

    def history(self) -> list[Event]:
        """Give the conversation's log."""
        events: list[Event] = []
        more = True
        while more:
            part = self._command(GetHistory(after=events[-1].seq or 0 if events else 0))
            assert isinstance(part, History)
            events += part.events
            more = part.more
        return events

    def close(self) -> None:
        """End the conversation: a turn under way is cancelled, no further one is accepted; the log stays."""
        self._command(CloseConversation())

    def _command(self, command: Any) -> Any:
        body = ToConversation(conversation_id=self.id, command=command)
        return self._system._request(body, principal=self.principal)


def _actor(row: Row) -> ActorInfo:
    used = figures_of(row.pid) if row.pid is not None else None
    return ActorInfo(
        id=row.id,
        kind=row.kind,
        pid=row.pid,
        parent=row.parent,
        state=row.state,
        restarts=row.restarts,
        rss_mb=used.rss_mb if used else None,
        cpu_s=used.cpu_s if used else None,
        threads=used.threads if used else None,
        descriptors=used.descriptors if used else None,
    )


def _listing(state: ToolState) -> ToolListing:
    spec = state.spec
    flags = ("read_only", "destructive", "idempotent", "open_world")
    source = spec.server or spec.module or ""
    return ToolListing(
        name=spec.name,
        description=spec.description,
        state=state.state,
        reason=state.reason,
        source="built-in" if source.startswith("callboard.tools.builtin") else source,
        annotations=tuple(flag for flag in flags if getattr(spec.annotations, flag)),
    )


def _error(failure: Failure) -> Exception:
    match failure.kind:
        case "not_found":
            return ConversationNotFound(failure.message)
        case "no_such_tool":
            return ToolNotFound(failure.message)
        case "unanswered" | "storage" | "child_gone" | "start_failed" | "overloaded" | "crashed":
            return Unavailable(failure.message)
        case _:
            return Refused(failure.message)
