"""The directory: the front desk. It knows which conversation has a client, and nobody else holds a client's address.

Mail for a conversation without a client waits here, bounded, while one is started; a client that is lost is started
again when mail comes, or at once when its log has a turn without an ending. It never looks into a command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from callboard.actors import names
from callboard.actors.events import ConversationOpened
from callboard.actors.messages import (
    DirectoryStatus,
    GetStatus,
    GetUnfinished,
    OpenConversation,
    ToConversation,
)
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.supervisor.spec import ChildSpec
from callboard.supervisor.supervisor import ChildAt, StartChild

_START_S = 20.0
_MAIL_LIMIT = 100
_REVIVE_AFTER_S = 0.1


@dataclass(slots=True)
class _Desk:
    """One conversation as the front desk sees it: its client's address, or the mail that waits for one."""

    address: Any = None
    starting: bool = False
    create: ConversationOpened | None = None
    mail: list[Envelope] = field(default_factory=list)
    unwatch: Callable[[], None] | None = None


class DirectoryActor(Child):
    """``args``: ``client``, the ChildSpec of which each conversation's own is made."""

    def start(self) -> None:
        """Look for turns that were left open by a former life of the system."""
        self._client: ChildSpec = self.init.args["client"]
        self._desks: dict[str, _Desk] = {}
        self.then_continue(self._revive)

    def handle(self, envelope: Envelope) -> None:
        """Open a conversation, hand mail to one, or say how many there are."""
        match envelope.body:
            case OpenConversation(opened=opened, must_exist=must_exist):
                self._hand_over(opened.conversation_id, envelope, None if must_exist else opened)
            case ToConversation(conversation_id=conversation):
                self._hand_over(conversation, envelope, None)
            case GetStatus():
                active = sum(1 for desk in self._desks.values() if desk.address is not None)
                self.reply(envelope, DirectoryStatus(conversations=active))

    # ------------------------------------------------------------ mail
    def _hand_over(self, conversation: str, envelope: Envelope, create: ConversationOpened | None) -> None:
        if not names.is_conversation_id(conversation):
            message = f"a conversation id is 1 to 64 characters of A-Z a-z 0-9 _ -, got {conversation!r}"
            self.reply(envelope, Failure(kind="bad_id", message=message, origin=self.init.id))
            return
        desk = self._desks.setdefault(conversation, _Desk())
        desk.create = desk.create or create
        if desk.address is not None:
            self._deliver(desk, envelope)
            return
        self._keep(desk, envelope)
        self._start_client(conversation, desk)

    def _keep(self, desk: _Desk, envelope: Envelope) -> None:
        """Hold the mail; the same request again takes the place of the first."""
        desk.mail = [kept for kept in desk.mail if kept.request_id != envelope.request_id]
        if len(desk.mail) >= _MAIL_LIMIT:
            full = Failure(
                kind="overloaded", message="too much mail waits for this conversation", retryable=True
            )
            self.reply(envelope, full)
            return
        desk.mail.append(envelope)

    def _deliver(self, desk: _Desk, envelope: Envelope) -> None:
        body = envelope.body
        command = body.command if isinstance(body, ToConversation) else body
        self.send(desk.address, dataclasses.replace(envelope, body=command))

    # ------------------------------------------------------------ clients
    def _start_client(self, conversation: str, desk: _Desk) -> None:
        if desk.starting:
            return
        desk.starting = True
        args = {**self._client.args, "conversation_id": conversation, "create": desk.create}
        spec = dataclasses.replace(self._client, id=conversation, args=args)

        def answered(answer: Any) -> None:
            self._client_is(conversation, desk, answer)

        self.ask(names.CONVERSATIONS, StartChild(spec), answered, deadline_s=_START_S)

    def _client_is(self, conversation: str, desk: _Desk, answer: ChildAt | Failure) -> None:
        desk.starting = False
        mail, desk.mail = desk.mail, []
        if isinstance(answer, Failure):
            del self._desks[conversation]
            failure = answer
            for kind in ("not_found", "unreadable", "storage"):
                if f"{kind}: " in answer.message:
                    failure = Failure(kind=kind, message=answer.message.partition(f"{kind}: ")[2])
            for envelope in mail:
                self.reply(envelope, failure)
            return
        desk.address = answer.address
        desk.unwatch = self.monitor(answer.pid, lambda: self._client_lost(conversation, desk))
        for envelope in mail:
            self._deliver(desk, envelope)

    def _client_lost(self, conversation: str, desk: _Desk) -> None:
        desk.address = None
        if desk.mail:
            self._start_client(conversation, desk)
        elif self._desks.get(conversation) is desk:
            del self._desks[conversation]
        self.after(_REVIVE_AFTER_S, self._revive)

    def _revive(self) -> None:
        """Start a client for each conversation whose log has a turn without an ending."""

        def answered(answer: tuple[str, ...] | Failure) -> None:
            if isinstance(answer, Failure):
                self.log.warning("unfinished_unknown", reason=answer.message)
                return
            for conversation in answer:
                desk = self._desks.setdefault(conversation, _Desk())
                if desk.address is None:
                    self._start_client(conversation, desk)

        self.ask(names.JOURNAL, GetUnfinished(), answered, deadline_s=_START_S)
