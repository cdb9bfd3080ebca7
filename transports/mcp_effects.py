"""What an MCP session asks of its shell: frozen values, performed in order; and the limits it is given.

``McpSession`` makes them, the external-server actor performs them. ``ref`` is the caller's own name for a
call; every ref that was given to ``call_tool`` gets exactly one ``CallResult`` or ``CallFailed``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]


class Era(Enum):
    """Which kind of protocol a server speaks, or ``AUTO``: find out.

    ``LEGACY`` is 2024-11-05 to 2025-11-25 (an ``initialize`` handshake), ``MODERN`` is 2026-07-28 (none).
    """

    AUTO = "auto"
    LEGACY = "legacy"
    MODERN = "modern"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The session's time limits, in seconds, and bounds.

    ``probe_s`` is how long a server may be silent on ``server/discover`` before it is taken for a legacy one
    (a late answer still counts); ``startup_s`` is for ``initialize``, ``list_s`` for each page of tools; a
    changed list is fetched ``relist_delay_s`` after the first notice.
    """

    probe_s: float = 10.0
    startup_s: float = 60.0
    list_s: float = 30.0
    relist_delay_s: float = 0.2
    max_calls: int = 1000
    max_pages: int = 100
    max_tools: int = 2000
    max_notes: int = 100


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes, one whole line, to the server's stdin."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Ready:
    """The handshake is done and the tools (raw MCP tool objects) are known; calls may be made."""

    tools: tuple[Json, ...]
    server_info: Json
    protocol_version: str
    instructions: str | None


@dataclass(frozen=True, slots=True)
class ToolsChanged:
    """The server's tools differ from those announced before; this is the whole new list."""

    tools: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class CallResult:
    """The server's result. ``content`` are raw MCP content objects, ``structured`` is any JSON value.

    ``structured`` is None when absent; ``meta`` is the result's ``_meta`` object as the server sent it.
    """

    ref: Hashable
    content: Sequence[Json]
    structured: Any
    is_error: bool
    meta: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The call has no result.

    ``kind`` is ``unavailable`` (never sent: no session, too many calls), ``bad_arguments`` (never sent),
    ``rejected`` (the server answered with a protocol error), ``bad_result`` (an answer that is not a tool
    result), ``deadline``, ``cancelled`` or ``closed`` (the connection was lost: it may have run).
    """

    ref: Hashable
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The server reports how far a call is; ``progress`` increases, ``total`` may be unknown."""

    ref: Hashable
    progress: float
    total: float | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handshake is impossible; the session is over. Stop the process."""

    reason: str


@dataclass(frozen=True, slots=True)
class NeedsRespawn:
    """The era probe spoilt the process; this session is over. Start it afresh with a session of ``era``."""

    era: Era
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log: bounded in length, and in number per session."""

    text: str


Effect: TypeAlias = (
    Send | Ready | ToolsChanged | CallResult | CallFailed | Progress | Failed | NeedsRespawn | Note
)
