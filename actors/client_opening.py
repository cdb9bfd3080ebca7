"""A client's way in: it asks the journal for the log, and keeps what comes meanwhile.

Where there is nothing to open, what comes is answered with why; what may change that (a command that creates the
conversation, a fault of the storage that may have gone) leads to another attempt. Used by ``actors/client.py``.
"""

from __future__ import annotations

from collections.abc import Callable

from callboard.actors.events import ConversationOpened
from callboard.actors.messages import LogOpened, OpenConversation, OpenLog
from callboard.actors.names import JOURNAL
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure

_ANSWER_S = 15.0
_RETRY_S = 2.0
_AGAIN_S = 2.0
_WAITING_LIMIT = 100
_FOR_GOOD = ("not_found", "unreadable")


class Opening:
    """``opened(log, create)`` is called when the log is there, ``failed(failure)`` when it is known why it is not.

    ``failure`` is set while there is nothing to own. Whoever is told of an opened log calls ``done``, or ``fail``.
    """

    def __init__(
        self,
        host: Child,
        key: tuple[str, str],
        opened: Callable[[LogOpened, ConversationOpened | None], None],
        failed: Callable[[Failure], None],
    ) -> None:
        self._host = host
        self._team, self._conversation_id = key
        self._opened = opened
        self._failed = failed
        self._waiting: list[Envelope] = []
        self.failure: Failure | None = None

    @property
    def is_for_good(self) -> bool:
        """True when only a command that creates the conversation can change that there is none."""
        return self.failure is not None and self.failure.kind in _FOR_GOOD

    @property
    def is_waited_for(self) -> bool:
        """True while a letter waits."""
        return bool(self._waiting)

    def begin(self, create: ConversationOpened | None) -> None:
        """Ask for the log; ``create`` is its first event where it may be new."""
        self.failure = None
        command = OpenLog(conversation_id=self._conversation_id, team=self._team, create=create)
        self._host.ask(
            JOURNAL,
            command,
            lambda answer: self._log_is(answer, create),
            deadline_s=_ANSWER_S,
            retry_s=_RETRY_S,
        )

    def keep(self, letter: Envelope) -> None:
        """Keep the letter until the log is open, or answer it with why it will not be."""
        if self.is_for_good and creation(letter) is None:
            self._host.reply(letter, self.failure)
        elif len(self._waiting) >= _WAITING_LIMIT:
            full = Failure(kind="overloaded", message="too much waits for this conversation", retryable=True)
            self._host.reply(letter, full)
        else:
            self._waiting.append(letter)
            if self.failure is not None:
                self.begin(creation(letter))

    def done(self) -> list[Envelope]:
        """Give the letters that waited, in order."""
        waiting, self._waiting = self._waiting, []
        return waiting

    def fail(self, failure: Failure) -> None:
        """There is nothing to own: tell all who wait, and try again soon where a fault may go by itself."""
        self.failure = failure
        for letter in self.done():
            self._host.reply(letter, failure)
        if not self.is_for_good:
            self._host.after(_AGAIN_S, self._again)
        self._failed(failure)

    def _log_is(self, answer: LogOpened | Failure, create: ConversationOpened | None) -> None:
        if isinstance(answer, LogOpened):
            self._opened(answer, create)
            return
        wanted = next(filter(None, map(creation, self._waiting)), None)
        if answer.kind == "not_found" and create is None and wanted is not None:
            self.begin(wanted)
        else:
            self.fail(answer)

    def _again(self) -> None:
        if self.failure is not None and not self.is_for_good:
            self.begin(None)


def creation(letter: Envelope) -> ConversationOpened | None:
    """Give the opening that the letter brings, where the conversation may be new."""
    body = letter.body
    return body.opened if isinstance(body, OpenConversation) and not body.must_exist else None


__all__ = ["Opening", "creation"]
