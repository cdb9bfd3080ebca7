"""What may be asked of a supervisor, and what it answers: OTP's administration of children, as values.

Each command travels in an envelope to a supervisor actor; its answer is one of the values here or a ``Failure``, whose
``kind`` is ``already_present``, ``not_found``, ``running``, ``restarting``, ``parked``, ``max_children``,
``start_failed``, ``not_supported``, ``stopping``, ``overloaded`` or the kind of a SpecError.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from callboard.supervisor.spec import ChildSpec, ChildType

State: TypeAlias = Literal["stopped", "starting", "running", "stopping", "restarting", "parked"]


# ------------------------------------------------------------------ commands
@dataclass(frozen=True, slots=True)
class StartChild:
    """Start this child. Answer: ``ChildAt`` (of the one that lives already, if so), or ``ChildNotStarted``."""

    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class TerminateChild:
    """Stop the child; a static supervisor keeps its spec, a dynamic one forgets it. Answer: ``ChildTerminated``."""

    id: str


@dataclass(frozen=True, slots=True)
class RestartChild:
    """Start a stopped or parked child of a static supervisor again. Answer: ``ChildAt`` or ``ChildNotStarted``."""

    id: str


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Forget a stopped child of a static supervisor. Answer: ``ChildDeleted``."""

    id: str


@dataclass(frozen=True, slots=True)
class WhichChildren:
    """List the children in start order. Answer: a tuple of ``ChildStatus``."""


@dataclass(frozen=True, slots=True)
class CountChildren:
    """Count the children. Answer: ``ChildCounts``."""


Command: TypeAlias = StartChild | TerminateChild | RestartChild | DeleteChild | WhichChildren | CountChildren


# ------------------------------------------------------------------ answers
@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAt:
    """Where a running child is. ``info`` is what it said when it had started."""

    id: str
    address: Any
    pid: int
    incarnation: int
    info: Any = None
    already_started: bool = False


@dataclass(frozen=True, slots=True)
class ChildNotStarted:
    """The child chose not to run; ``kept``: its spec is still there, without a process."""

    id: str
    kept: bool


@dataclass(frozen=True, slots=True)
class ChildTerminated:
    """The child has no process now, and none will be started for it."""

    id: str


@dataclass(frozen=True, slots=True)
class ChildDeleted:
    """The child is forgotten."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildStatus:
    """One child as its supervisor sees it; ``pid`` None: no process."""

    id: str
    state: State
    type: ChildType
    kind: str
    incarnation: int
    restarts: int
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCounts:
    """``specs``: all children; ``active``: those that run; ``supervisors`` and ``workers``: all, by type."""

    specs: int
    active: int
    supervisors: int
    workers: int
