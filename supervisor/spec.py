"""Child specs and supervisor flags: what is to live, and by which policy. Values, checked before any effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from callboard.supervisor.backoff import Backoff
from callboard.supervisor.intensity import Intensity

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Exhausted: TypeAlias = Literal["escalate", "park", "drop"]


class SpecError(ValueError):
    """A child spec or a supervisor's flags are wrong; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """One child of a supervisor.

    ``actor`` is a dotted class path; ``args`` must pickle. ``shutdown_s`` 0 kills at once. After ``max_consecutive``
    failures in a row ``on_exhausted`` decides: ``escalate`` (the supervisor ends), ``park`` (kept, and tried again
    every ``backoff.max_s``) or ``drop`` (removed, and said).
    """

    id: str
    actor: str
    kind: str
    args: Mapping[str, Any] = field(default_factory=dict)
    restart: Restart = "permanent"
    shutdown_s: float = 1.0
    start_s: float = 20.0
    backoff: Backoff | None = None
    max_consecutive: int | None = None
    on_exhausted: Exhausted = "escalate"

    def __post_init__(self) -> None:
        if not self.id or "/" in self.id:
            raise SpecError(f"child id must be a non-empty name without '/', got {self.id!r}")
        if "." not in self.actor:
            raise SpecError(f"child {self.id}: actor must be a dotted class path, got {self.actor!r}")
        if self.restart not in ("permanent", "transient", "temporary"):
            raise SpecError(f"child {self.id}: restart must be permanent, transient or temporary")
        if self.on_exhausted not in ("escalate", "park", "drop"):
            raise SpecError(f"child {self.id}: on_exhausted must be escalate, park or drop")
        if self.shutdown_s < 0 or self.start_s <= 0:
            raise SpecError(f"child {self.id}: shutdown_s must be 0 or more and start_s positive")
        if self.max_consecutive is not None and self.max_consecutive < 0:
            raise SpecError(f"child {self.id}: max_consecutive must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorFlags:
    """A supervisor's own policy. ``dynamic``: children come by request, in no order, and are stopped all at once."""

    intensity: Intensity = Intensity()
    dynamic: bool = False
    max_children: int | None = None
