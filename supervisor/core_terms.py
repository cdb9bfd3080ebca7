"""The words of the supervisor's core: the events that it takes and the effects that it gives. Values only.

Events carry the incarnation that they speak of, so that what is late, repeated or stale is known as such.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from callboard.supervisor.commands import (
    ChildCounts,
    ChildDeleted,
    ChildNotStarted,
    ChildStatus,
    ChildTerminated,
    Command,
    State,
)
from callboard.supervisor.envelope import Failure
from callboard.supervisor.spec import ChildSpec

IGNORED = "ignored"
Purpose: TypeAlias = Literal["start", "stop", "abandon", "restart", "reset"]


# ------------------------------------------------------------------ events
@dataclass(frozen=True, slots=True)
class Boot:
    """Start the static children, in order. Comes once, first."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody gave a command; ``ref`` comes back in the Answer. A ref comes once."""

    ref: str
    command: Command


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """The incarnation finished its start; ``info`` is handed on to who asked for it."""

    id: str
    incarnation: int
    info: Any = None


@dataclass(frozen=True, slots=True)
class ChildExited:
    """The incarnation's process is gone, for this reason (IGNORED: it chose not to run)."""

    id: str
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer that SetTimer asked for."""

    id: str
    purpose: Purpose
    incarnation: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The parent wants the supervisor to end."""


@dataclass(frozen=True, slots=True)
class ExitHeld:
    """From the core to itself: decide now about a child that ended while others were being restarted."""

    id: str
    incarnation: int
    reason: str


Event: TypeAlias = Boot | Asked | ChildStarted | ChildExited | TimerDue | Stop | ExitHeld


# ------------------------------------------------------------------ effects
@dataclass(frozen=True, slots=True)
class Spawn:
    """Start this incarnation, the ``restarts``-th restart of this child."""

    spec: ChildSpec
    incarnation: int
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Send the incarnation its Shutdown."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL the incarnation."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """Look no longer after an incarnation that even SIGKILL did not end in time."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Deliver the TimerDue through the mailbox after ``delay_s`` seconds (0: after what is in it already)."""

    due: TimerDue
    delay_s: float


@dataclass(frozen=True, slots=True)
class ChildUp:
    """The answer about a child that runs; the shell adds where it is."""

    id: str
    incarnation: int
    info: Any = None
    already_started: bool = False


AnswerBody: TypeAlias = (
    ChildUp
    | ChildNotStarted
    | ChildTerminated
    | ChildDeleted
    | tuple[ChildStatus, ...]
    | ChildCounts
    | Failure
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the command ``ref``."""

    ref: str
    body: AnswerBody


@dataclass(frozen=True, slots=True)
class Show:
    """The child's row for the process table; ``state`` None removes it."""

    id: str
    kind: str
    state: State | None
    incarnation: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Report:
    """A fact of life for the log. ``consecutive``: failures in a row; ``restarts``: in all."""

    id: str
    fact: str
    incarnation: int
    reason: str
    consecutive: int
    restarts: int
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Up:
    """All static children have started."""


@dataclass(frozen=True, slots=True)
class End:
    """No child is left: the supervisor ends with this reason."""

    reason: str


Effect: TypeAlias = Spawn | AskToStop | Kill | Abandon | SetTimer | Answer | Show | Report | Up | End
