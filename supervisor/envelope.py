"""The words that actors say to one another: envelope, reply, failure, and the life-cycle notices.

Values only. Every command travels in an ``Envelope``; every answer is a ``Reply`` with the same request id.
Exceptions stay inside an actor: a ``Failure`` travels instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard.supervisor.figures import Figures

ENVELOPE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """For whom a command is carried out; given by the embedding service when a conversation opens."""

    user: str = ""
    team: str = ""
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why something did not work, as a value.

    ``kind`` is one word a program can test, ``message`` one sentence for a person, ``origin`` the actor that says so.
    """

    kind: str
    message: str
    retryable: bool = False
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A command on its way. The same ``request_id`` again is the same command.

    ``reply_to`` is an actor address (None: no answer is wanted); ``deadline_s`` is what remained when it was sent.
    """

    request_id: str
    body: Any
    reply_to: Any = None
    deadline_s: float | None = None
    principal: Principal | None = None
    traceparent: str | None = None
    version: int = ENVELOPE_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to the envelope with this request id: a value, or a Failure. ``origin`` is who answers."""

    request_id: str
    body: Any
    origin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """The first message of every actor: who it is, whose child, and with what to start.

    ``incarnation`` is never given twice to one id; ``restarts`` counts this child's restarts under its present
    supervisor.
    """

    id: str
    kind: str
    incarnation: int
    runtime_dir: str
    args: Mapping[str, Any] = field(default_factory=dict)
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The actor is ready. ``address`` is where it can be reached, ``info`` what it tells whoever asked for it."""

    id: str
    incarnation: int
    pid: int
    address: Any
    info: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """The actor has nothing to do and ends; that is no failure (OTP's ``ignore``)."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The actor could not start, and says why; it ends."""

    id: str
    incarnation: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Exiting:
    """The actor is about to end, for this reason (``normal``, ``shutdown`` or ``crashed: …``)."""

    id: str
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Shutdown:
    """The parent asks the actor to end in order."""


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there? ``number`` comes back in the Pong."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to the Ping with this number, with what the actor uses."""

    number: int
    figures: Figures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The actor will answer no heartbeat for so many seconds, and is not to be taken for hung."""

    id: str
    incarnation: int
    for_s: float
