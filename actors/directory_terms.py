"""What happens at the front desk, and what it has done about it, as values. Pure data.

Made by the directory actor, which also performs the effects; given their meaning by ``actors/directory_desk.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.actors.events import ConversationOpened
from callboard.actors.messages import Mark
from callboard.supervisor.envelope import Envelope, Failure

Key: TypeAlias = tuple[str, str]
"""Team and conversation id: an id counts within its team."""


# ------------------------------------------------------------------ events
@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A caller's command for the conversation. ``wakes`` False: it is not worth starting a client for."""

    key: Key
    letter: Envelope
    create: ConversationOpened | None = None
    wakes: bool = True


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to ``Look``: whether the conversation's client is running all the same."""

    key: Key
    letter: Envelope
    is_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUp:
    """The answer to ``Start``: where the client is, perhaps one that was up before."""

    key: Key
    address: Any
    pid: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class ClientFailed:
    """The answer to ``Start``: there is no client, and why."""

    key: Key
    failure: Failure


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The process of this incarnation has ended."""

    key: Key
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAsked:
    """An idle client asks to leave; ``mark`` is that of the last letter that it was handed."""

    key: Key
    letter: Envelope
    incarnation: int
    pid: int
    mark: Mark | None


@dataclass(frozen=True, slots=True)
class LeaveOverdue:
    """The client that was allowed to leave is still there after a while."""

    key: Key
    incarnation: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """These conversations have a turn without an ending."""

    keys: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class DeleteAsked:
    """A caller wants the conversation deleted."""

    key: Key
    letter: Envelope


@dataclass(frozen=True, slots=True)
class ClientStopped:
    """The answer to ``Stop``: no client runs; or why that is not sure."""

    key: Key
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class LogDeleted:
    """The answer to ``Delete``: True, or a Failure."""

    key: Key
    answer: Any


Event: TypeAlias = (
    Arrived
    | Looked
    | ClientUp
    | ClientFailed
    | ClientGone
    | LeaveAsked
    | LeaveOverdue
    | Unfinished
    | DeleteAsked
    | ClientStopped
    | LogDeleted
)


# ------------------------------------------------------------------ effects
@dataclass(frozen=True, slots=True)
class Start:
    """Have a client started, or found; ``create`` is the conversation's first event when it may be new."""

    key: Key
    create: ConversationOpened | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """Say ``ClientGone`` when this process has ended."""

    key: Key
    incarnation: int
    pid: int


@dataclass(frozen=True, slots=True)
class ExpectGone:
    """Say ``LeaveOverdue`` after a while."""

    key: Key
    incarnation: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """Send the letter to the client, with this mark."""

    address: Any
    letter: Envelope
    mark: Mark


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the letter."""

    letter: Envelope
    body: Any


@dataclass(frozen=True, slots=True)
class Look:
    """See whether the conversation's client is running, though it is not known here."""

    key: Key
    letter: Envelope


@dataclass(frozen=True, slots=True)
class Revive:
    """Ask the journal, soon, which conversations are unfinished."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Have the client, if there is one, stopped for good."""

    key: Key


@dataclass(frozen=True, slots=True)
class Delete:
    """Have the log deleted."""

    key: Key


Effect: TypeAlias = Start | Watch | ExpectGone | HandOver | Answer | Look | Revive | Stop | Delete
