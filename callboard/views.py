"""What the system shows of itself: tools, servers, actors, and its own state, as plain values.

Pure data, made by the directory and the daemon, read by the command line and by embedding services. Each
field is a JSON value or a tuple of such, so ``dataclasses.asdict`` gives a view's JSON form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ToolState: TypeAlias = Literal["enabled", "available", "disabled"]
ServerState: TypeAlias = Literal["starting", "ready", "restarting", "parked", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolListing:
    """One tool of the registry, as seen from a conversation or, without one, from the system.

    ``reason`` says why a tool is ``disabled`` and is empty otherwise. ``source`` is ``built-in``, a module's
    name or path, or an external server's name. ``annotations`` are the names of those that are set:
    ``read_only``, ``destructive``, ``idempotent``, ``open_world``.
    """

    name: str
    description: str = ""
    state: ToolState = "available"
    reason: str = ""
    source: str = ""
    annotations: tuple[str, ...] = ()


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
