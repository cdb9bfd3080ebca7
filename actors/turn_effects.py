"""What comes out of the turn machine, as values: what its shell has to do, in this order.

Pure data, re-exported by ``actors/turn.py``. Performed by the client actor and by ``callboard.run``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.actors.events import Event
from callboard.actors.items import ChatMessage, FunctionCall, Item
from callboard.actors.turn_inputs import DeadlinePassed, StepTimedOut
from callboard.tools.content import TextBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Write these events to the log, in one piece and after all earlier ones; answer with ``Durable``.

    ``token`` grows by one with each. ``wait`` says that something rests until ``Durable`` reaches it.
    """

    events: tuple[Event, ...]
    token: int
    wait: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AskModel:
    """Ask for one reply. ``note`` is for this one request and not part of the history.

    ``turn_at`` is the index in ``items`` of the present turn's first item, its user message.
    """

    items: tuple[Item, ...]
    tools_open: bool
    step: int
    note: str | None = None
    turn_at: int = 0

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
    """Run the call, and answer with one ``CallFinished``.

    ``arguments`` is the parsed object to run, a person's where one edited it. ``approval`` is the digest of the
    approval that it runs by, empty where none was needed: the shell compares it once more.
    """

    call: FunctionCall
    arguments: dict[str, Any]
    approval: str = ""


@dataclass(frozen=True, slots=True)
class KillCall:
    """End the running call by force; its result is not wanted any more."""

    call_id: str


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """Give ``RetryDue`` after this delay in seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Give ``due`` after so many seconds, instead of any earlier one of its type; None: stop that one."""

    due: DeadlinePassed | StepTimedOut
    after_s: float | None


@dataclass(frozen=True, slots=True)
class Discard:
    """Tell readers that the text streamed in this step does not count (live ``TextDiscarded``)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Suspended:
    """The turn waits for a person, which is durable; nothing runs, and its owner is free to leave."""


@dataclass(frozen=True, slots=True)
class Left:
    """The turn is left as ``Interrupt`` wished; the last effect ever."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over and its ending durable; the last effect, but for ``Left``."""

    event: Event


Effect: TypeAlias = (
    Append
    | AskModel
    | StopModel
    | StartCall
    | KillCall
    | RetryAfter
    | SetTimer
    | Discard
    | Suspended
    | Left
    | Ended
)
