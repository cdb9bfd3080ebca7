"""The asynchronous twin of ``callboard.api``: the same calls, each carried by a thread of its own.

A turn's thread ends with its iteration; leaving it early lets the thread end at its next event.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from callboard.actors.events import Event
from callboard.api import Conversation, System, connect
from callboard.config import Config
from callboard.views import ActorInfo, ServerInfo, SystemStatus, ToolListing

_END = object()


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

    async def tools(self) -> list[ToolListing]:
        """List all tools that exist."""
        return await asyncio.to_thread(self._system.tools)

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
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Any] = asyncio.Queue()
        left = threading.Event()

        def put(event: object) -> None:
            if not left.is_set():
                loop.call_soon_threadsafe(events.put_nowait, event)

        def carry() -> None:
            try:
                turn = self._conversation.ask(
                    text, request_id=request_id, deadline_s=deadline_s, tool_deadline_s=tool_deadline_s
                )
                for event in turn:
                    if left.is_set():
                        return
                    put(event)
                put(_END)
            except Exception as fault:
                put(fault)

        threading.Thread(target=carry, name="callboard-turn", daemon=True).start()
        try:
            while (event := await events.get()) is not _END:
                if isinstance(event, Exception):
                    raise event
                yield event
        finally:
            left.set()

    async def cancel(self) -> None:
        """Cancel the turn under way, and those that wait."""
        await asyncio.to_thread(self._conversation.cancel)

    async def enable(self, tool: str) -> None:
        """Let the conversation use the tool."""
        await asyncio.to_thread(self._conversation.enable, tool)

    async def disable(self, tool: str) -> None:
        """Take the tool from the conversation."""
        await asyncio.to_thread(self._conversation.disable, tool)

    async def tools(self) -> list[ToolListing]:
        """List every tool with its state in this conversation."""
        return await asyncio.to_thread(self._conversation.tools)

    async def history(self) -> list[Event]:
        """Give the conversation's log."""
        return await asyncio.to_thread(self._conversation.history)

    async def close(self) -> None:
        """End the conversation."""
        await asyncio.to_thread(self._conversation.close)
