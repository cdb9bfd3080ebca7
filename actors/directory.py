"""The directory: the front desk. It knows which conversation has a client, and nobody else holds a client's address.

The shell of ``actors/directory_desk.py``, which decides. It has clients started and stopped by the conversations
supervisor, watches their processes, and asks the journal which conversations were left with a turn under way. It
never looks into a command.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from callboard.actors import names
from callboard.actors.directory_desk import Desks
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
from callboard.actors.messages import (
    DeleteConversation,
    DeleteLog,
    Delivery,
    DirectoryStatus,
    Follow,
    GetStatus,
    GetUnfinished,
    LeaveConversation,
    OpenConversation,
    ToConversation,
    UnfinishedLog,
)
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.supervisor.spec import ChildSpec
from callboard.supervisor.supervisor import ChildAt, StartChild, TerminateChild

_START_S = 20.0
_STOP_S = 10.0
_JOURNAL_S = 20.0
_LEAVE_LIMIT_S = 10.0
_REVIVE_AFTER_S = 0.1
_REVIVE_AGAIN_S = 3.0


class DirectoryActor(Child):
    """``args``: ``client``, the ChildSpec of which each conversation's own is made."""

    def start(self) -> None:
        """Look for turns that were left open by a former life of the system."""
        self._client: ChildSpec = self.init.args["client"]
        self._desks = Desks(self.init.incarnation)
        self._revival_due = True
        self.then_continue(self._revive)

    def handle(self, envelope: Envelope) -> None:
        """Open a conversation, hand mail to one, let a client go, delete one, or say how many there are."""
        team = envelope.principal.team if envelope.principal is not None else ""
        match envelope.body:
            case GetStatus():
                self.reply(envelope, DirectoryStatus(conversations=self._desks.active))
            case OpenConversation(opened=opened, must_exist=must_exist):
                key, create = (team, opened.conversation_id), None if must_exist else opened
                if opened.team != team:
                    message = f"a conversation of team {opened.team!r} was asked for in the name of {team!r}"
                    self.reply(envelope, Failure(kind="not_found", message=message, origin=self.init.id))
                elif self._is_good(envelope, key):
                    self._take(Arrived(key=key, letter=envelope, create=create))
            case ToConversation(conversation_id=conversation, command=command):
                key, wakes = (team, conversation), not isinstance(command, Follow) or command.wakes
                if self._is_good(envelope, key):
                    self._take(Arrived(key=key, letter=envelope, wakes=wakes))
            case DeleteConversation(conversation_id=conversation):
                if self._is_good(envelope, (team, conversation)):
                    self._take(DeleteAsked((team, conversation), envelope))
            case LeaveConversation() as leave:
                self._take(_leave_asked(leave, envelope))

    def _is_good(self, envelope: Envelope, key: Key) -> bool:
        if names.is_conversation_id(key[1]):
            return True
        message = f"a conversation id is 1 to 64 characters of A-Z a-z 0-9 _ -, got {key[1]!r}"
        self.reply(envelope, Failure(kind="bad_id", message=message, origin=self.init.id))
        return False

    # ------------------------------------------------------------ effects
    def _take(self, event: Event) -> None:
        for effect in self._desks.handle(event):
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case HandOver(address, letter, mark):
                body = letter.body
                command = body.command if isinstance(body, ToConversation) else body
                self.send(address, dataclasses.replace(letter, body=Delivery(mark=mark, command=command)))
            case Answer(letter, body):
                self.reply(letter, body)
            case Start():
                self._start_client(effect)
            case Watch(key, incarnation, pid):
                self.monitor(pid, lambda: self._take(ClientGone(key, incarnation)))
            case ExpectGone(key, incarnation):
                self.after(_LEAVE_LIMIT_S, lambda: self._take(LeaveOverdue(key, incarnation)))
            case Look(key, letter):
                found = self.table.find(f"{names.CONVERSATIONS}.{_name(key)}")
                self.then_continue(lambda: self._take(Looked(key, letter, found is not None)))
            case Revive():
                self._revive_in(_REVIVE_AFTER_S)
            case Stop(key):
                self._stop_client(key)
            case Delete((team, conversation) as key):
                delete = DeleteLog(conversation_id=conversation, team=team)
                self.ask(
                    names.JOURNAL,
                    delete,
                    lambda answer: self._take(LogDeleted(key, answer)),
                    deadline_s=_JOURNAL_S,
                    retry_s=_JOURNAL_S,
                )

    def _start_client(self, start: Start) -> None:
        (team, conversation), name = start.key, _name(start.key)
        own = {"conversation_id": conversation, "team": team, "create": start.create}
        spec = dataclasses.replace(self._client, id=name, args={**self._client.args, **own})

        def answered(answer: Any) -> None:
            match answer:
                case ChildAt():
                    up = ClientUp(
                        key=start.key, address=answer.address, pid=answer.pid, incarnation=answer.incarnation
                    )
                    self._take(up)
                case Failure():
                    self._take(ClientFailed(start.key, answer))
                case _:
                    failure = Failure(kind="start_failed", message=f"{name} was not started: {answer}")
                    self._take(ClientFailed(start.key, failure))

        self.ask(names.CONVERSATIONS, StartChild(spec), answered, deadline_s=_START_S)

    def _stop_client(self, key: Key) -> None:
        def answered(answer: Any) -> None:
            failed = isinstance(answer, Failure) and answer.kind != "not_found"
            self._take(ClientStopped(key, answer if failed else None))

        self.ask(names.CONVERSATIONS, TerminateChild(_name(key)), answered, deadline_s=_STOP_S)

    # ------------------------------------------------------------ unfinished turns
    def _revive_in(self, delay_s: float) -> None:
        if not self._revival_due:
            self._revival_due = True
            self.after(delay_s, self._revive)

    def _revive(self) -> None:
        """Have a client started for each conversation whose log has a turn without an ending."""
        self._revival_due = False

        def answered(answer: tuple[UnfinishedLog, ...] | Failure) -> None:
            if isinstance(answer, Failure):
                self.log.warning("unfinished_unknown", reason=answer.message)
                self._revive_in(_REVIVE_AGAIN_S)
                return
            self._take(Unfinished(tuple((log.team, log.conversation_id) for log in answer)))

        self.ask(names.JOURNAL, GetUnfinished(), answered, deadline_s=_JOURNAL_S)


def _name(key: Key) -> str:
    team, conversation = key
    return names.client_actor(conversation, team)


def _leave_asked(leave: LeaveConversation, envelope: Envelope) -> LeaveAsked:
    return LeaveAsked(
        key=(leave.team, leave.conversation_id),
        letter=envelope,
        incarnation=leave.incarnation,
        pid=leave.pid,
        mark=leave.mark,
    )
