"""What goes into the turn machine, as values.

Pure data, re-exported by ``actors/turn.py``, which gives it its meaning. Made by the shells: the client actor and
``callboard.run``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from callboard.actors.chat_model import ModelReply
from callboard.actors.events import ToolPinned
from callboard.actors.turn_facts import UnfinishedTurn
from callboard.tools.content import ToolResult

if TYPE_CHECKING:
    from callboard.actors.context_window import LeftOut


@dataclass(frozen=True, slots=True)
class ToolVersion:
    """A tool as it is now: an approval is bound to its ``digest``; ``pin`` is to be in the log before it runs."""

    digest: str = ""
    pin: ToolPinned | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What the shell found about the calls at hand, each by call id.

    ``refusals``: the result of a call that may not run. ``approvals``: why a person must be asked first.
    ``decisions``: the resolved decision in words, for the log. ``tool_versions`` is by tool name.
    """

    refusals: Mapping[str, ToolResult] = field(default_factory=dict)
    approvals: Mapping[str, str] = field(default_factory=dict)
    decisions: Mapping[str, str] = field(default_factory=dict)
    tool_versions: Mapping[str, ToolVersion] = field(default_factory=dict)

    def renamed(self, ids: Mapping[str, str]) -> Verdicts:
        """Give the verdicts by the ids that the calls have now; ``ids`` leads from those to the ones before."""
        return Verdicts(
            refusals={new: self.refusals[old] for new, old in ids.items() if old in self.refusals},
            approvals={new: self.approvals[old] for new, old in ids.items() if old in self.approvals},
            decisions={new: self.decisions[old] for new, old in ids.items() if old in self.decisions},
            tool_versions=self.tool_versions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Start a new turn; the first input of a turn, or ``Resume`` is."""

    turn_id: str
    text: str
    tool_deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(Verdicts):
    """Take up a turn whose owner was lost or left; the machine's ``history`` must not hold that turn.

    ``repeatable``: ids of open calls that may be run again. An open call in ``refusals`` is not repeated.
    ``elapsed_s``: what is used of the turn's deadline (``UnfinishedTurn.elapsed_s``). ``damaged``: a part of the
    log was lost, so that what the turn did is not known; it fails.
    """

    unfinished: UnfinishedTurn
    repeatable: frozenset[str] = frozenset()
    elapsed_s: float = 0.0
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class Durable:
    """Every ``Append`` up to and with this token is on disk."""

    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied(Verdicts):
    """The model's whole reply. ``left_out``: what of the history it was not shown, to make it fit."""

    reply: ModelReply
    left_out: LeftOut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """The model call failed, as ``ModelError`` tells it. ``chance``: a random number in [0, 1) for the delay."""

    kind: str
    message: str
    retryable: bool
    retry_after_s: float | None = None
    chance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A started call came to its end. ``decision``: which rule refused it after all, so that it never ran."""

    call_id: str
    result: ToolResult
    duration_s: float = 0.0
    decision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A person decided on a call that waits; once per call, a second decision is ignored.

    ``arguments`` are run instead of those asked for. ``digest``, where given, is that of the request which the
    person saw; a decision on another one is ignored. ``expired``: nobody decided in time, so it is denied.
    """

    call_id: str
    approved: bool
    arguments: Mapping[str, Any] | None = None
    by: str = ""
    reason: str = ""
    digest: str = ""
    expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """End the turn as cancelled; reasons as in ``TurnCancelled``."""

    reason: str = "user"


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The turn's own deadline is over."""


@dataclass(frozen=True, slots=True)
class StepTimedOut:
    """The deadline of this step is over; ignored in another one."""

    step: int


@dataclass(frozen=True, slots=True)
class RetryDue:
    """The delay of the last ``RetryAfter`` is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageFailed:
    """The log has not taken an event for long; ``kind`` names the fault (``storage_full`` …)."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The process is about to end on purpose; the turn is left to whoever takes it up."""


Input: TypeAlias = (
    Begin
    | Resume
    | Durable
    | ModelReplied
    | ModelFailed
    | CallFinished
    | Decided
    | Cancel
    | DeadlinePassed
    | StepTimedOut
    | RetryDue
    | StorageFailed
    | Interrupt
)
