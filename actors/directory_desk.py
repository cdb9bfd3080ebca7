"""The front desk's decisions: who gets which mail, and when a client is started, may leave, or is followed by another.

A conversation has at most one client, and only the desk holds its address. Whatever comes while there is none is kept
here, bounded, until the next is up. An idle client leaves by asking (DESIGN, decision 6): it names the last letter that
it was handed, and may go when none was handed over since. It never starts a process, reads a clock or looks into a
command. Called by ``actors/directory.py`` alone.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import Any, assert_never

from callboard.actors.directory_terms import (
    Answer,
    Arrived,
    ClientFailed,
    ClientGone,
    ClientStopped,
    ClientUp,
    Delete,
    DeleteAsked,
    Effect,
    Event,
    ExpectGone,
    HandOver,
    Key,
    LeaveAsked,
    LeaveOverdue,
    LogDeleted,
    Look,
    Looked,
    Revive,
    Start,
    Stop,
    Unfinished,
    Watch,
)
from callboard.actors.events import ConversationOpened
from callboard.actors.messages import Mark, MayLeave, News, StayHere
from callboard.supervisor.envelope import Envelope, Failure

MAIL_LIMIT = 100
REVIVALS_AT_ONCE = 16


class Phase(enum.Enum):
    """Where a conversation's client stands, as the desk sees it. No desk: there is none, as far as is known."""

    STARTING = "starting"
    UP = "up"
    LEAVING = "leaving"
    STOPPING = "stopping"


@dataclass(slots=True)
class Desk:
    """One conversation with a client, or about to have one; ``mark`` is that of the last letter handed over."""

    key: Key
    phase: Phase
    incarnation: int = 0
    address: Any = None
    mark: Mark | None = None
    mail: dict[tuple[str, str], Arrived] = field(default_factory=dict)
    deleting: dict[tuple[str, str], Envelope] = field(default_factory=dict)


class Desks:
    """All desks of one life of the directory, whose number is ``life``."""

    def __init__(self, life: int) -> None:
        self._life = life
        self._handed = 0
        self._desks: dict[Key, Desk] = {}
        self._to_revive: deque[Key] = deque()

    @property
    def active(self) -> int:
        """How many conversations have a client that takes mail."""
        return sum(1 for desk in self._desks.values() if desk.phase is Phase.UP)

    def __len__(self) -> int:
        """How many conversations are known at all."""
        return len(self._desks)

    def handle(self, event: Event) -> list[Effect]:
        """Take one event and say what is to be done, in order."""
        match event:
            case Arrived():
                return self._arrived(event)
            case Looked():
                return self._looked(event)
            case ClientUp():
                return self._up(event)
            case ClientFailed(key, failure):
                return self._failed(key, failure)
            case ClientGone(key, incarnation):
                return self._gone(key, incarnation)
            case LeaveAsked():
                return self._leave(event)
            case LeaveOverdue(key, incarnation):
                desk = self._desks.get(key)
                leaving = desk is not None and desk.phase is Phase.LEAVING
                return [Stop(key)] if desk and leaving and desk.incarnation == incarnation else []
            case Unfinished(keys):
                waiting = set(self._to_revive)
                self._to_revive.extend(key for key in keys if key not in self._desks and key not in waiting)
                return self._revive_next()
            case DeleteAsked(key, letter):
                return self._delete(key, letter)
            case ClientStopped(key, failure):
                return self._stopped(key, failure)
            case LogDeleted(key, answer):
                return self._deleted(key, answer)
            case _:
                assert_never(event)

    # ------------------------------------------------------------ mail
    def _arrived(self, arrived: Arrived) -> list[Effect]:
        desk = self._desks.get(arrived.key)
        if desk is not None and desk.phase is Phase.UP:
            return [self._hand_over(desk, arrived.letter)]
        if not arrived.wakes:
            if desk is None:
                return [Look(arrived.key, arrived.letter)]
            if desk.phase is Phase.LEAVING:
                return [Answer(arrived.letter, News(state="resting"))]
        if desk is None:
            return self._start(arrived.key, arrived)
        return self._keep(desk, arrived)

    def _looked(self, looked: Looked) -> list[Effect]:
        """A client that is running belongs to a former life of the directory: it is found by being started."""
        if looked.is_running or looked.key in self._desks:
            return self._arrived(Arrived(key=looked.key, letter=looked.letter))
        return [Answer(looked.letter, News(state="resting"))]

    def _start(self, key: Key, *mail: Arrived) -> list[Effect]:
        desk = self._desks[key] = Desk(key, Phase.STARTING)
        for arrived in mail:
            desk.mail[_of(arrived.letter)] = arrived
        return [Start(key, _create(mail))]

    def _keep(self, desk: Desk, arrived: Arrived) -> list[Effect]:
        """Hold the mail; the same request again takes the place of the first."""
        if _of(arrived.letter) not in desk.mail and len(desk.mail) >= MAIL_LIMIT:
            message = f"{MAIL_LIMIT} letters wait for this conversation already"
            return [Answer(arrived.letter, Failure(kind="overloaded", message=message, retryable=True))]
        desk.mail[_of(arrived.letter)] = arrived
        return []

    def _hand_over(self, desk: Desk, letter: Envelope) -> Effect:
        self._handed += 1
        desk.mark = (self._life, self._handed)
        return HandOver(desk.address, letter, desk.mark)

    # ------------------------------------------------------------ clients
    def _up(self, up: ClientUp) -> list[Effect]:
        desk = self._desks.get(up.key)
        if desk is None or desk.phase is not Phase.STARTING:
            return []
        desk.incarnation, desk.address = up.incarnation, up.address
        if desk.deleting:
            return [*self._stop(desk), *self._revive_next()]
        desk.phase = Phase.UP
        mail, desk.mail = desk.mail, {}
        watch = Watch(desk.key, up.incarnation, up.pid)
        handed = [self._hand_over(desk, arrived.letter) for arrived in mail.values()]
        return [watch, *handed, *self._revive_next()]

    def _failed(self, key: Key, failure: Failure) -> list[Effect]:
        desk = self._desks.get(key)
        if desk is None or desk.phase is not Phase.STARTING:
            return []
        effects: list[Effect] = [Answer(arrived.letter, failure) for arrived in desk.mail.values()]
        desk.mail = {}
        if desk.deleting:
            return [*effects, *self._stop(desk), *self._revive_next()]
        del self._desks[key]
        return [*effects, *self._revive_next()]

    def _gone(self, key: Key, incarnation: int) -> list[Effect]:
        """Who left was idle; who was lost may have had a turn: the journal tells."""
        desk = self._desks.get(key)
        if desk is None or desk.incarnation != incarnation or desk.phase not in (Phase.UP, Phase.LEAVING):
            return []
        lost: list[Effect] = [Revive()] if desk.phase is Phase.UP else []
        return lost + self._go_on(desk)

    def _go_on(self, desk: Desk) -> list[Effect]:
        """The desk has no client now: start the next one if mail waits."""
        del self._desks[desk.key]
        return self._start(desk.key, *desk.mail.values()) if desk.mail else []

    def _leave(self, asked: LeaveAsked) -> list[Effect]:
        desk = self._desks.get(asked.key)
        go = Answer(asked.letter, MayLeave())
        if desk is None:
            self._desks[asked.key] = Desk(asked.key, Phase.LEAVING, asked.incarnation)
            watch = Watch(asked.key, asked.incarnation, asked.pid)
            return [watch, go, ExpectGone(asked.key, asked.incarnation)]
        if desk.phase is Phase.STARTING or asked.incarnation > desk.incarnation:
            return [Answer(asked.letter, StayHere(None))]
        if desk.phase is not Phase.UP or asked.incarnation < desk.incarnation:
            return [go]
        if asked.mark != desk.mark:
            return [Answer(asked.letter, StayHere(desk.mark))]
        desk.phase, desk.address = Phase.LEAVING, None
        return [go, ExpectGone(asked.key, asked.incarnation)]

    def _revive_next(self) -> list[Effect]:
        if not self._to_revive:
            return []
        starting = sum(1 for desk in self._desks.values() if desk.phase is Phase.STARTING)
        effects: list[Effect] = []
        while self._to_revive and starting < REVIVALS_AT_ONCE:
            key = self._to_revive.popleft()
            if key not in self._desks:
                starting += 1
                effects += self._start(key)
        return effects

    # ------------------------------------------------------------ deleting
    def _delete(self, key: Key, letter: Envelope) -> list[Effect]:
        """Also where no client is known: a former life of the directory may have left one."""
        desk = self._desks.get(key)
        if desk is None:
            desk = self._desks[key] = Desk(key, Phase.STOPPING, deleting={_of(letter): letter})
            return [Stop(key)]
        if len(desk.deleting) < MAIL_LIMIT:
            desk.deleting[_of(letter)] = letter
        return self._stop(desk) if desk.phase in (Phase.UP, Phase.LEAVING) else []

    def _stop(self, desk: Desk) -> list[Effect]:
        desk.phase, desk.address = Phase.STOPPING, None
        return [Stop(desk.key)]

    def _stopped(self, key: Key, failure: Failure | None) -> list[Effect]:
        desk = self._desks.get(key)
        if desk is None or desk.phase is not Phase.STOPPING:
            return []
        return [Delete(key)] if failure is None else self._deleted(key, failure)

    def _deleted(self, key: Key, answer: Any) -> list[Effect]:
        desk = self._desks.get(key)
        if desk is None or desk.phase is not Phase.STOPPING:
            return []
        answers: list[Effect] = [Answer(letter, answer) for letter in desk.deleting.values()]
        left: list[Effect] = [Revive()] if isinstance(answer, Failure) else []
        return answers + left + self._go_on(desk)


def _of(letter: Envelope) -> tuple[str, str]:
    """The same request of the same caller has the same place."""
    return letter.request_id, str(letter.reply_to)


def _create(mail: tuple[Arrived, ...]) -> ConversationOpened | None:
    return next((arrived.create for arrived in mail if arrived.create is not None), None)
