"""What the system shows of itself: tools, servers, actors, and its own state, as plain values.

Pure data, made by the directory and the daemon, read by the command line and by embedding services. Each
field is a JSON value or a tuple of such, so ``dataclasses.asdict`` gives a view's JSON form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

ToolState: TypeAlias = Literal["enabled", "available", "disabled"]
ConversationState: TypeAlias = Literal["open", "closed", "unfinished", "suspended"]
ServerState: TypeAlias = Literal["starting", "ready", "restarting", "parked", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolListing:
    """One tool of the registry, as seen from a conversation or, without one, from the system.

    ``reason`` says why a tool is ``disabled`` and is empty otherwise. ``source`` is ``built-in``, a module's
    name or path, or an external server's name. ``annotations`` are the names of those that are set:
    ``read_only``, ``destructive``, ``idempotent``, ``open_world``. ``limits`` has ``deadline_s`` and, for a local tool,
    the fields of ``callboard.tools.limits.Limits`` as they hold here; ``parameters`` is the JSON Schema.
    """

    name: str
    description: str = ""
    state: ToolState = "available"
    reason: str = ""
    source: str = ""
    annotations: tuple[str, ...] = ()
    limits: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadReport:
    """What a reload of the tools changed, by tools' names. ``faults``: (module, reason) of those that kept the old."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """One external server. ``tools`` counts its tools; ``protocol`` is the revision agreed on."""

    name: str
    state: ServerState
    pid: int | None = None
    protocol: str | None = None
    tools: int = 0
    restarts: int = 0
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorInfo:
    """One actor of the tree. ``parent`` is the parent's ``id``, None for the root; ``restarts`` counts since
    start. What the process uses: resident memory in MiB, CPU in seconds, threads, open descriptors; None where it
    has no process, or does not let itself be counted.
    """

    id: str
    kind: str
    pid: int | None = None
    parent: str | None = None
    state: str = "running"
    restarts: int = 0
    rss_mb: float | None = None
    cpu_s: float | None = None
    threads: int | None = None
    descriptors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """One running system. ``started_at`` is ISO 8601 in UTC, ``config`` the file it was started with."""

    name: str
    pid: int
    version: str
    started_at: str
    uptime_s: float
    config: str | None
    runtime_dir: str
    conversations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationInfo:
    """One conversation of a team, active or not. Times are ISO 8601 in UTC; ``title`` is how its first message begins.

    ``state``: ``open`` takes turns, ``closed`` takes no more, ``unfinished`` has a turn under way (or one to be taken
    up again), ``suspended`` waits for a person. ``cursor`` continues a list behind this one.
    """

    conversation_id: str
    team: str = ""
    user: str = ""
    template: str = "default"
    created_at: str = ""
    updated_at: str = ""
    events: int = 0
    turns: int = 0
    title: str = ""
    state: ConversationState = "open"
    cursor: str = ""
