"""What goes into the turn machine and what comes out: its limits, its inputs and its effects, as values.

Pure data, re-exported by ``actors/turn.py``, which gives them their meaning. Made and performed by the
shells: the client actor and ``callboard.run``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from callboard.actors.chat_model import ModelReply
from callboard.actors.events import Event
from callboard.actors.history import UnfinishedTurn
from callboard.actors.items import ChatMessage, FunctionCall, Item
from callboard.tools.content import TextBlock, ToolResult

OnCap: TypeAlias = Literal["answer", "return"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """What one turn may use.

    ``max_steps`` model calls may ask for tools; ``on_cap`` says what follows. ``deadline_s`` is written down
    at the start, and the shell gives ``DeadlinePassed`` when it is over. ``model_attempts`` counts per step,
    ``max_calls`` per reply. After ``max_resumes`` resumptions the next one fails as poison.
    """

    max_steps: int = 10
    on_cap: OnCap = "answer"
    deadline_s: float | None = None
    model_attempts: int = 3
    max_calls: int = 64
    max_resumes: int = 1

    def __post_init__(self) -> None:
        for name in ("max_steps", "model_attempts", "max_calls"):
            if getattr(self, name) < 1:
                raise ValueError(f"turn limit {name} must be 1 or more, got {getattr(self, name)}")
        if self.on_cap not in ("answer", "return"):
            raise ValueError(f"turn limit on_cap must be 'answer' or 'return', got {self.on_cap!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """Start a new turn; the first input of a turn, or ``Resume`` is."""

    turn_id: str
    text: str
    tool_deadline_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Take up a turn whose owner was lost; the machine's ``history`` must not hold that turn.

    ``repeatable``: ids of open calls that may be run again. ``refusals``: results of pending calls that may
    not run any more; an open call among them is not repeated.
    """

    unfinished: UnfinishedTurn
    repeatable: frozenset[str] = frozenset()
    refusals: Mapping[str, ToolResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Durable:
    """Every ``Append`` up to and with this token is on disk."""

    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """The model's whole reply, and for each call in it that may not run (by its id) the result instead."""

    reply: ModelReply
    refusals: Mapping[str, ToolResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """The model call failed, as ``ModelError`` tells it."""

    kind: str
    message: str
    retryable: bool
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A started call came to its end."""

    call_id: str
    result: ToolResult
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    """End the turn as cancelled; reasons as in ``TurnCancelled``."""

    reason: str = "user"


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The turn's own deadline is over."""


@dataclass(frozen=True, slots=True)
class RetryDue:
    """The delay of the last ``RetryAfter`` is over."""


Input: TypeAlias = (
    Begin | Resume | Durable | ModelReplied | ModelFailed | CallFinished | Cancel | DeadlinePassed | RetryDue
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write these events to the log, in one piece and after all earlier ones.

    ``token`` grows by one with each; where ``wait`` is set, the machine rests until ``Durable`` reaches it.
    """

    events: tuple[Event, ...]
    token: int
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Ask for one reply. ``note`` is for this one request and not part of the history."""

    items: tuple[Item, ...]
    tools_open: bool
    step: int
    note: str | None = None

    @property
    def context(self) -> tuple[Item, ...]:
        """Give the items with the note, if any, as a last user message (system messages must come first)."""
        if self.note is None:
            return self.items
        return (*self.items, ChatMessage(role="user", content=(TextBlock(self.note),)))


@dataclass(frozen=True, slots=True)
class StopModel:
    """Give up the running model request; nothing of it may come in after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCall:
    """Run the call, and answer with one ``CallFinished``. ``arguments`` is the parsed object."""

    call: FunctionCall
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class KillCall:
    """End the running call by force; its result is not wanted any more."""

    call_id: str


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Give ``RetryDue`` after this delay in seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Discard:
    """Tell readers that the text streamed in this step does not count (live ``TextDiscarded``)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over and its ending durable; the last effect ever."""

    event: Event


Effect: TypeAlias = Append | AskModel | StopModel | StartCall | KillCall | RetryAfter | Discard | Ended
