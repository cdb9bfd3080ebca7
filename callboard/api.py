"""The Python API: ``connect`` to a system, open conversations, list and delete them. From any process of the same user.

Nothing of the embedding process is forked or hooked: a private system is started by exec, with a lease that ends it
when its owner ends. Objects may be shared between threads; one ``ask`` is one thread's.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callboard.actors.attachments import NoAttachment, find, whole, with_contents
from callboard.actors.events import ConversationOpened, Event
from callboard.actors.messages import (
    ConversationIsOpen,
    DeleteConversation,
    DirectoryStatus,
    GetRegistry,
    GetStatus,
    History,
    ImportLog,
    ListLogs,
    LogList,
    OpenConversation,
    ReadLog,
    ReadPiece,
    Registry,
    Reloaded,
    ReloadTools,
    SwitchFeature,
)
from callboard.actors.names import CATALOGUE, JOURNAL, SERVERS, is_conversation_id
from callboard.actors.owner import this_process
from callboard.actors.toolbox import Toolbox, states
from callboard.config import Config, discover_config, load_config
from callboard.conversation import Conversation
from callboard.daemon import SystemInfo, is_running, read_info, runs
from callboard.errors import CallboardError, ConversationNotFound, NoDaemon, Refused, Unavailable
from callboard.failures import error_of
from callboard.mailbox import Mailbox
from callboard.paths import runtime_dir
from callboard.private_system import PrivateSystem
from callboard.shown import actor_info, conversation_info, tool_listing
from callboard.supervisor.envelope import Failure, Principal
from callboard.supervisor.table import ProcessTable
from callboard.views import ActorInfo, ConversationInfo, ReloadReport, ServerInfo, SystemStatus, ToolListing

__all__ = ["Conversation", "System", "connect"]

_ANSWER_S = 20.0
_RELOAD_S = 30.0
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

    def conversations(
        self, *, team: str = "", user: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[ConversationInfo]:
        """List a team's conversations (of one user of it, where given), the last changed first.

        At most ``limit`` come at a time; ``before`` is the ``cursor`` of the last one of the page before.
        """
        answer = self._request(ListLogs(team=team, user=user, limit=limit, before=before), to=JOURNAL)
        assert isinstance(answer, LogList)
        return [conversation_info(summary) for summary in answer.conversations]

    def history(
        self, conversation_id: str, *, team: str = "", user: str | None = None, after: int = 0
    ) -> list[Event]:
        """Give a conversation's log after event number ``after``, without waking the conversation.

        ``user`` None: whosever in the team it is. Raises ConversationNotFound.
        """
        if user is not None:
            self._check_user(conversation_id, team, user)
        events: list[Event] = []
        more = True
        while more:
            last = (events[-1].seq or 0) if events else after
            part = self._read_log(conversation_id, team, last)
            events += part.events
            more = part.more and bool(part.events)
        return events

    def attachment(
        self, conversation_id: str, digest: str, *, team: str = "", user: str | None = None
    ) -> bytes:
        """Give the whole of a result that its event only has in part: an attachment of a ToolCallFinished.

        ``digest`` is the attachment's, or how it begins. ``user`` None: whosever in the team the conversation is.
        Raises ConversationNotFound, Refused (no such attachment) or Unavailable.
        """
        events = self.history(conversation_id, team=team, user=user)
        try:
            return whole(find(events, digest), lambda piece: self._piece(conversation_id, team, piece))
        except NoAttachment as fault:
            raise Refused(str(fault)) from fault

    def whole_history(self, conversation_id: str, *, team: str = "", user: str | None = None) -> list[Event]:
        """Give a conversation's log with the contents of its attachments, for an export; may be very large.

        An attachment whose stored content is damaged has none (``content`` is None).
        """
        events = self.history(conversation_id, team=team, user=user)
        return with_contents(events, lambda piece: self._piece(conversation_id, team, piece))

    def _piece(self, conversation_id: str, team: str, digest: str) -> bytes:
        command = ReadPiece(conversation_id=conversation_id, team=team, digest=digest)
        try:
            answer = self._request(command, to=JOURNAL)
        except CallboardError as fault:
            if fault.kind in ("storage_corrupt", "unknown"):
                raise NoAttachment(str(fault)) from fault
            raise
        assert isinstance(answer, bytes)
        return answer

    def delete_conversation(self, conversation_id: str, *, team: str = "", user: str | None = None) -> None:
        """Stop the conversation, whatever it is doing, and delete its log and what only it needs.

        ``user`` None: whosever in the team it is. Raises ConversationNotFound or Unavailable.
        """
        if user is not None:
            self._check_user(conversation_id, team, user)
        principal = Principal(user=user or "", team=team)
        self._request(DeleteConversation(conversation_id=conversation_id), principal=principal)

    def import_conversation(
        self,
        events: Iterable[Event],
        *,
        conversation_id: str | None = None,
        team: str = "",
        user: str = "",
    ) -> str:
        """Make a conversation of a log from elsewhere, for this user; what is not whole in it is repaired and said so.

        Gives its id. Raises Refused when a conversation of that id exists.
        """
        from callboard.actors.history_import import adopted, repaired

        name = conversation_id or uuid.uuid4().hex
        if not is_conversation_id(name):
            raise Refused(f"a conversation id is 1 to 64 characters of A-Z a-z 0-9 _ -, got {name!r}")
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        log, _ = repaired(adopted(events, conversation_id=name, user=user, team=team, at=at))
        self._request(ImportLog(conversation_id=name, team=team, events=log), to=JOURNAL)
        return name

    def _read_log(self, conversation_id: str, team: str, after: int, limit: int = 1000) -> History:
        command = ReadLog(conversation_id=conversation_id, team=team, after=after, limit=limit)
        answer = self._request(command, to=JOURNAL)
        assert isinstance(answer, History)
        return answer

    def _check_user(self, conversation_id: str, team: str, user: str) -> None:
        head = self._read_log(conversation_id, team, 0, 1).events
        if not (head and isinstance(head[0], ConversationOpened) and head[0].user == user):
            raise ConversationNotFound(f"there is no conversation {conversation_id}")

    def tools(self) -> list[ToolListing]:
        """List all tools that exist, with what the default template enables; faulty modules come as ``disabled``."""
        registry = self._registry()
        enabled = Toolbox(patterns=self._template_tools("default")).enabled(registry.tools)
        listed = [tool_listing(state) for state in states(registry, enabled)]
        faults = [
            ToolListing(name=module, state="disabled", reason=reason, source=module)
            for module, reason in sorted(registry.faults.items())
        ]
        return listed + faults

    def reload(self) -> ReloadReport:
        """Load all tool modules anew; calls under way end undisturbed, later ones use the new code.

        A module that cannot be loaded keeps the tools that it had, and is among the report's ``faults``. Takes as
        long as the slowest module, at most about 10 s, and twice that when another reload is under way.
        """
        found = self._request(ReloadTools(), to=CATALOGUE, timeout_s=_RELOAD_S)
        assert isinstance(found, Reloaded)
        faults = tuple(sorted(found.faults.items()))
        return ReloadReport(added=found.added, changed=found.changed, removed=found.removed, faults=faults)

    def switch_feature(self, name: str, enabled: bool | None, *, team: str = "") -> None:
        """Switch a feature flag on or off, for one team or (``""``) for all; None: as the configuration has it.

        It holds for the next step of every conversation, for calls asked for but not started, and over restarts.
        """
        self._request(SwitchFeature(name=name, team=team, enabled=enabled), to=CATALOGUE)

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
        return [actor_info(row) for row in ProcessTable(self._folder).rows()]

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

    def _request(
        self,
        body: Any,
        *,
        principal: Principal | None = None,
        to: str | None = None,
        timeout_s: float = _ANSWER_S,
    ) -> Any:
        extra = {} if to is None else {"to": to}
        answer = self._mailbox.request(body, timeout_s=timeout_s, principal=principal, **extra)
        if isinstance(answer, Failure):
            if answer.kind == "unanswered":
                self._check_alive(True)
            raise error_of(answer)
        return answer

    def _check_alive(self, patience_is_over: bool) -> None:
        """A private system that ended does not come back; a daemon of a name may, and is given time."""
        if self._process is not None:
            self._process.check()
        elif patience_is_over and not is_running(self._folder):
            raise Unavailable(
                f"the system {self._info.name} has ended; start it again with 'callboard serve'"
            )
