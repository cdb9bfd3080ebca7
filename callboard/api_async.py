"""The asynchronous twin of ``callboard.api``: the same calls, each carried by a thread of its own.

A turn's thread ends with its iteration, soon after it was left early; it is never far ahead of who reads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callboard.actors.events import ApprovalRequested, Event
from callboard.api import Conversation, System, connect
from callboard.config import Config
from callboard.views import ActorInfo, ConversationInfo, ReloadReport, ServerInfo, SystemStatus, ToolListing

_END = object()
_AHEAD = 64
_LOOK_S = 0.2
_LEAVE_S = 2.0


async def aconnect(
    *,
    name: str = "default",
    config: Config | Path | str | None = None,
    private: bool | None = None,
    timeout_s: float = 60.0,
) -> AsyncSystem:
    """Attach to a daemon or start a private system, as ``connect`` does."""
    system = await asyncio.to_thread(connect, name=name, config=config, private=private, timeout_s=timeout_s)
    return AsyncSystem(system)


class AsyncSystem:
    """A running system; see ``callboard.api.System``."""

    def __init__(self, system: System) -> None:
        self._system = system

    @property
    def private(self) -> bool:
        """True when the system belongs to this object alone."""
        return self._system.private

    async def conversation(
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
    ) -> AsyncConversation:
        """Open a conversation, or the one with this id again; with ``create`` False only one that exists."""
        conversation = await asyncio.to_thread(
            self._system.conversation,
            user=user,
            team=team,
            roles=roles,
            template=template,
            tools=tools,
            conversation_id=conversation_id,
            linked=linked,
            create=create,
        )
        return AsyncConversation(conversation)

    async def conversations(
        self, *, team: str = "", user: str | None = None, limit: int = 100, before: str | None = None
    ) -> list[ConversationInfo]:
        """List a team's conversations, the last changed first."""
        return await asyncio.to_thread(
            self._system.conversations, team=team, user=user, limit=limit, before=before
        )

    async def history(
        self, conversation_id: str, *, team: str = "", user: str | None = None, after: int = 0
    ) -> list[Event]:
        """Give a conversation's log without waking the conversation."""
        return await asyncio.to_thread(
            self._system.history, conversation_id, team=team, user=user, after=after
        )

    async def attachment(
        self, conversation_id: str, digest: str, *, team: str = "", user: str | None = None
    ) -> bytes:
        """Give the whole of a result that its event only has in part."""
        return await asyncio.to_thread(self._system.attachment, conversation_id, digest, team=team, user=user)

    async def whole_history(
        self, conversation_id: str, *, team: str = "", user: str | None = None
    ) -> list[Event]:
        """Give a conversation's log with the contents of its attachments."""
        return await asyncio.to_thread(self._system.whole_history, conversation_id, team=team, user=user)

    async def delete_conversation(
        self, conversation_id: str, *, team: str = "", user: str | None = None
    ) -> None:
        """Stop the conversation and delete its log."""
        await asyncio.to_thread(self._system.delete_conversation, conversation_id, team=team, user=user)

    async def import_conversation(
        self,
        events: Iterable[Event],
        *,
        conversation_id: str | None = None,
        team: str = "",
        user: str = "",
    ) -> str:
        """Make a conversation of a log from elsewhere, and give its id."""
        return await asyncio.to_thread(
            self._system.import_conversation, events, conversation_id=conversation_id, team=team, user=user
        )

    async def tools(self) -> list[ToolListing]:
        """List all tools that exist."""
        return await asyncio.to_thread(self._system.tools)

    async def reload(self) -> ReloadReport:
        """Load all tool modules anew, and say what changed."""
        return await asyncio.to_thread(self._system.reload)

    async def switch_feature(self, name: str, enabled: bool | None, *, team: str = "") -> None:
        """Switch a feature flag, for a team or for all; None: as configured."""
        await asyncio.to_thread(self._system.switch_feature, name, enabled, team=team)

    async def servers(self) -> list[ServerInfo]:
        """List the external servers."""
        return await asyncio.to_thread(self._system.servers)

    async def tree(self) -> list[ActorInfo]:
        """List every actor."""
        return await asyncio.to_thread(self._system.tree)

    async def status(self) -> SystemStatus:
        """Say how the whole is."""
        return await asyncio.to_thread(self._system.status)

    async def stop(self) -> None:
        """Ask the system to stop, and wait until it has."""
        await asyncio.to_thread(self._system.stop)

    async def close(self) -> None:
        """Let go of the system; a private one ends."""
        await asyncio.to_thread(self._system.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncConversation:
    """One conversation; see ``callboard.api.Conversation``."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self.id = conversation.id

    async def ask(
        self,
        text: str,
        *,
        request_id: str | None = None,
        deadline_s: float | None = None,
        tool_deadline_s: float | None = None,
    ) -> AsyncIterator[Event]:
        """Take a turn and give its events as they happen, the last one its ending."""
        left = threading.Event()
        turn = self._conversation._ask(text, request_id, deadline_s, tool_deadline_s, left.is_set)
        async for event in _carried(turn, left):
            yield event

    async def events(
        self, after: int = 0, *, until_idle: bool = False, timeout_s: float | None = None
    ) -> AsyncIterator[Event]:
        """Follow the conversation, as ``Conversation.events`` does."""
        left = threading.Event()
        followed = self._conversation._events(after, until_idle, timeout_s, left.is_set)
        async for event in _carried(followed, left):
            yield event

    async def cancel(self) -> None:
        """Cancel the turn under way, and those that wait."""
        await asyncio.to_thread(self._conversation.cancel)

    async def enable(self, tool: str) -> None:
        """Let the conversation use the tool."""
        await asyncio.to_thread(self._conversation.enable, tool)

    async def disable(self, tool: str) -> None:
        """Take the tool from the conversation."""
        await asyncio.to_thread(self._conversation.disable, tool)

    async def configure(self, tool: str, settings: Mapping[str, Any] | None) -> None:
        """Give the tool settings in this conversation."""
        await asyncio.to_thread(self._conversation.configure, tool, settings)

    async def pending(self) -> tuple[ApprovalRequested, ...]:
        """List the calls that wait for a person."""
        return await asyncio.to_thread(self._conversation.pending)

    async def approve(
        self,
        call_id: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        for_conversation: bool = False,
        reason: str = "",
    ) -> None:
        """Approve of a call that waits."""
        await asyncio.to_thread(
            self._conversation.approve, call_id, arguments, for_conversation=for_conversation, reason=reason
        )

    async def deny(self, call_id: str, reason: str = "") -> None:
        """Deny a call that waits."""
        await asyncio.to_thread(self._conversation.deny, call_id, reason)

    async def tools(self) -> list[ToolListing]:
        """List every tool with its state in this conversation."""
        return await asyncio.to_thread(self._conversation.tools)

    async def history(self) -> list[Event]:
        """Give the conversation's log."""
        return await asyncio.to_thread(self._conversation.history)

    async def attachment(self, digest: str) -> bytes:
        """Give the whole of a result that its event only has in part."""
        return await asyncio.to_thread(self._conversation.attachment, digest)

    async def close(self) -> None:
        """End the conversation."""
        await asyncio.to_thread(self._conversation.close)


async def _carried(events: Iterator[Event], left: threading.Event) -> AsyncIterator[Event]:
    """Give what a thread of its own iterates over; it is never more than a few events ahead, and ends with ``left``."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Any] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)

    def put(item: object) -> None:
        while not left.is_set():
            if room.acquire(timeout=_LOOK_S):
                loop.call_soon_threadsafe(queue.put_nowait, item)
                return

    def carry() -> None:
        try:
            for event in events:
                put(event)
                if left.is_set():
                    return
            put(_END)
        except Exception as fault:
            put(fault)

    thread = threading.Thread(target=carry, name="callboard-events", daemon=True)
    thread.start()
    try:
        while (item := await queue.get()) is not _END:
            room.release()
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        left.set()
        await asyncio.to_thread(thread.join, _LEAVE_S)
