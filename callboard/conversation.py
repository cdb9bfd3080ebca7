"""One conversation, as a caller has it: ask, follow, cancel, toggle, read.

An answer that is under way survives the loss of any process of the system, and a restart of a daemon under its name:
the request is repeated under its id, saying how far this side has got, until the answer is whole.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from callboard.actors.command_check import fault_of_command
from callboard.actors.events import ApprovalRequested, ConversationClosed, Event
from callboard.actors.messages import (
    Ask,
    Cancel,
    CloseConversation,
    ConfigureTool,
    DecideCall,
    DisableTool,
    EnableTool,
    Follow,
    GetApprovals,
    GetHistory,
    GetTools,
    History,
    News,
    ToConversation,
)
from callboard.cursor import Cursor
from callboard.errors import Refused, Unavailable
from callboard.failures import error_of, is_passing
from callboard.shown import tool_listing
from callboard.supervisor.envelope import Failure, Principal
from callboard.views import ToolListing

if TYPE_CHECKING:
    from callboard.api import System

_LOOK_S = 0.25
_MAX_SETTINGS = 64 * 1024
_SILENT_S = 30.0
_PATIENT_S = 10.0
_LOOK_INTO_LOG_S = 5.0
_NEVER: Callable[[], bool] = lambda: False  # noqa: E731


class Conversation:
    """One conversation. Get it from ``System.conversation``."""

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

        The same ``request_id`` again joins the same turn, also after a crash of this process or of the system. Leaving
        the iteration early does not end the turn: ``cancel`` does. A daemon that is restarted under its name within
        30 s is waited for. Raises Refused, ConversationNotFound or Unavailable.
        """
        return self._ask(text, request_id, deadline_s, tool_deadline_s, _NEVER)

    def _ask(
        self,
        text: str,
        request_id: str | None,
        deadline_s: float | None,
        tool_deadline_s: float | None,
        left: Callable[[], bool],
    ) -> Iterator[Event]:
        turn_id = request_id or uuid.uuid4().hex
        problem = fault_of_command(Ask(text=text, deadline_s=deadline_s, tool_deadline_s=tool_deadline_s))
        if problem is not None:
            raise Refused(problem)
        cursor = Cursor(begins_anywhere=True)

        def command() -> Ask:
            return Ask(
                text=text,
                after=cursor.seq,
                heard=cursor.heard,
                deadline_s=deadline_s,
                tool_deadline_s=tool_deadline_s,
            )

        for event in self._read(cursor, command, turn_id, left):
            if event is not None:
                yield event
                if event.terminal and getattr(event, "turn_id", None) == turn_id:
                    return

    def events(
        self, after: int = 0, *, until_idle: bool = False, timeout_s: float | None = None
    ) -> Iterator[Event]:
        """Follow the conversation: its logged events after number ``after``, in order, with live ones between them.

        No logged event is missing and none comes twice, whatever is restarted meanwhile, a named daemon included. The
        iteration ends after ``conversation_closed``, with ``until_idle`` once everything was given and no turn is under
        way, and after ``timeout_s`` seconds without an event; otherwise it waits for more, until the caller leaves it.
        A follower may be as slow as it likes: it delays nobody. It does not keep an idle conversation in memory.
        Raises ConversationNotFound, or Unavailable when the system does not answer for 30 s.
        """
        return self._events(after, until_idle, timeout_s, _NEVER)

    def _events(
        self, after: int, until_idle: bool, timeout_s: float | None, left: Callable[[], bool]
    ) -> Iterator[Event]:
        fault = fault_of_command(Follow(after=after))
        if fault is not None:
            raise Refused(fault)
        cursor = Cursor(after)

        def command() -> Follow:
            return Follow(after=cursor.seq, heard=cursor.heard, wakes=cursor.state != "resting")

        given_at = looked_at = time.monotonic()
        for event in self._read(cursor, command, uuid.uuid4().hex, left):
            now = time.monotonic()
            if cursor.state == "resting" and now - looked_at > _LOOK_INTO_LOG_S:
                looked_at = now
                self._look_into_log(cursor)
            if event is not None:
                yield event
                given_at = time.monotonic()
                if isinstance(event, ConversationClosed):
                    return
            elif until_idle and cursor.state != "active":
                return
            if timeout_s is not None and time.monotonic() - given_at > timeout_s:
                return

    def _look_into_log(self, cursor: Cursor) -> None:
        """Much may have happened between two signs of life. Raises ConversationNotFound when it was deleted."""
        try:
            part = self._system._read_log(self.id, self.principal.team, cursor.seq, 1)
        except Unavailable:
            return
        if part.events:
            cursor.state = "active"

    def _read(
        self, cursor: Cursor, command: Callable[[], Any], request_id: str, left: Callable[[], bool]
    ) -> Iterator[Event | None]:
        """Give the events of the answers to one repeated request; None after each answer, and now and then."""

        def body() -> ToConversation:
            said = command()
            cursor.told()
            return ToConversation(conversation_id=self.id, command=said)

        mailbox = self._system._mailbox
        with mailbox.exchange(body, request_id=request_id, principal=self.principal) as exchange:
            heard_at = time.monotonic()
            while not left():
                answer = exchange.next(_LOOK_S)
                silent_s = time.monotonic() - heard_at
                match answer:
                    case News():
                        yield from cursor.take(answer)
                        heard_at = time.monotonic()
                        if cursor.has_to_tell:
                            exchange.repeat()
                    case Failure() if not (is_passing(answer) and silent_s < _PATIENT_S):
                        raise error_of(answer)
                    case _:
                        self._system._check_alive(silent_s > _SILENT_S)
                        if silent_s > _SILENT_S:
                            raise Unavailable(f"the conversation did not answer for {_SILENT_S:g} s")
                yield None

    def cancel(self) -> None:
        """Cancel the turn under way, and those that wait. From any thread; nothing to cancel is no error."""
        self._command(Cancel())

    def enable(self, tool: str) -> None:
        """Let the conversation use the tool from its next step on. Raises ToolNotFound, or Refused where it may not."""
        self._command(EnableTool(tool))

    def disable(self, tool: str) -> None:
        """Take the tool from the conversation, also for calls that have not started. Raises ToolNotFound."""
        self._command(DisableTool(tool))

    def configure(self, tool: str, settings: Mapping[str, Any] | None) -> None:
        """Give the tool settings in this conversation, over its table of the configuration; None takes them back.

        They are JSON, at most 64 KiB of it, and stand in the log, so no secrets. They hold from the next step on, and
        for calls that have not started. Raises ToolNotFound, or Refused for what is no JSON.
        """
        try:
            size = len(json.dumps(settings, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as fault:
            raise Refused(f"the settings of {tool} are not JSON: {fault}") from fault
        if size > _MAX_SETTINGS or not isinstance(settings, Mapping | None):
            raise Refused(f"the settings of {tool} must be an object of at most {_MAX_SETTINGS} characters")
        self._command(ConfigureTool(tool, settings))

    def pending(self) -> tuple[ApprovalRequested, ...]:
        """List the calls that wait for a person, in the order in which they were asked for."""
        found = self._command(GetApprovals())
        assert isinstance(found, tuple)
        return found

    def approve(
        self,
        call_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        for_conversation: bool = False,
        reason: str = "",
    ) -> None:
        """Approve of a call that waits; ``arguments`` are run instead of those asked for.

        ``for_conversation``: and of every further call of this version of the tool here. Returns once it is durable;
        the same decision again changes nothing. Raises Refused when the call does not wait (any more), when the tool
        has changed since it was asked for, and for arguments that do not fit it or are not permitted.
        """
        self._command(
            DecideCall(
                call_id=call_id,
                approved=True,
                arguments=arguments,
                scope="conversation" if for_conversation else "once",
                reason=reason,
            )
        )

    def deny(self, call_id: str, reason: str = "") -> None:
        """Deny a call that waits; the model reads the ``reason``. The same again changes nothing. Raises Refused."""
        self._command(DecideCall(call_id=call_id, approved=False, reason=reason))

    def tools(self) -> list[ToolListing]:
        """List every tool with its state in this conversation."""
        return [tool_listing(state) for state in self._command(GetTools())]

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

    def attachment(self, digest: str) -> bytes:
        """Give the whole of a result that its event only has in part; ``digest`` is an attachment's, or how it begins.

        Raises Refused when there is none.
        """
        return self._system.attachment(self.id, digest, team=self.principal.team, user=self.principal.user)

    def close(self) -> None:
        """End the conversation: a turn under way is cancelled, no further one is accepted; the log stays."""
        self._command(CloseConversation())

    def _command(self, command: Any) -> Any:
        fault = fault_of_command(command)
        if fault is not None:
            raise Refused(fault)
        body = ToConversation(conversation_id=self.id, command=command)
        return self._system._request(body, principal=self.principal)
