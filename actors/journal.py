"""The journal actor: owns the logs' store. A shell over ``storage.journal``, which a thread of its own works on.

An append is answered after it is durable. It decides nothing about turns; the log's rules (epochs, gaps, repetition,
teams) are the storage's. It never forks. A fault of the storage is an answer, never a crash: the actor stays up, and
what is asked once the fault has gone is carried out.
"""

from __future__ import annotations

from callboard.actors.journal_commands import NOT_FOUND, Expire
from callboard.actors.journal_thread import Answer, JournalThread, load_store
from callboard.actors.messages import AppendEvents, LogOpened, OpenLog
from callboard.actors.settings import Settings
from callboard.storage.journal_terms import url_of_folder
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure

MAX_WAITING = 10_000
_EXPIRE = "expire"
_EXPIRE_FIRST_S = 60.0
_EXPIRE_EVERY_S = 3600.0


def journal_url(settings: Settings) -> str:
    """Give where a system's journal is: what the settings say, else a SQLite file in its state folder."""
    return settings.storage_url or url_of_folder(settings.state_dir)


class JournalActor(Child):
    """``args``: ``settings``."""

    holds_secrets = True

    def start(self) -> None:
        """Start the thread that opens the store, and watch its pipe."""
        settings: Settings = self.init.args["settings"]
        url, wrapper = journal_url(settings), settings.journal_wrapper
        self._waiting: dict[str, Envelope] = {}
        self._thread = JournalThread(lambda: load_store(url, wrapper))
        self.watch(self._thread.ready_fd, lambda _events: self._take_answers())
        self._expire = Expire(settings.retention_s, settings.team_retention_s)
        if settings.retention_s is not None or settings.team_retention_s:
            self.after(_EXPIRE_FIRST_S, self._delete_expired)

    def handle(self, envelope: Envelope) -> None:
        """Hand the command to the thread; one that comes again while it waits is the same command."""
        is_append = isinstance(envelope.body, AppendEvents)
        if envelope.request_id in self._waiting:
            self._waiting[envelope.request_id] = envelope
        elif len(self._waiting) >= MAX_WAITING:
            message = "too many commands wait for the journal"
            self.reply(envelope, Failure(kind="overloaded", message=message, retryable=True))
        else:
            self._waiting[envelope.request_id] = envelope
            self._thread.put(envelope.request_id, envelope.body, is_append)

    def stopping(self) -> None:
        """Let what is under way be written, and close the store."""
        self.unwatch(self._thread.ready_fd)
        if not self._thread.close():
            self.log.warning("journal_busy", reason="the store was not closed in time")
        self._take_answers()

    def _delete_expired(self) -> None:
        self._thread.put(_EXPIRE, self._expire, False)

    def _are_deleted(self, answer: int | Failure) -> None:
        """Some hundred are deleted at a time, so that appends come between; then there may be more."""
        more = isinstance(answer, int) and answer > 0
        self.log.info("journal_expired", result=answer if isinstance(answer, int) else answer.message)
        self.after(0.0 if more else _EXPIRE_EVERY_S, self._delete_expired)

    def _take_answers(self) -> None:
        for answer in self._thread.take():
            if answer.ticket == _EXPIRE and answer.bug is None:
                self._are_deleted(answer.body)
                continue
            envelope = self._waiting.pop(answer.ticket, None) if answer.ticket else None
            if answer.bug is not None:
                self._crashed(envelope, answer.bug)
            elif envelope is None:
                self.log.error("journal_damaged", reason=answer.body)
            else:
                self._log(envelope, answer)
                self.reply(envelope, answer.body)

    def _crashed(self, envelope: Envelope | None, bug: Exception) -> None:
        """Who asked for what crashes us is told so, and does not ask each of our successors."""
        if envelope is not None:
            reason = f"{type(bug).__name__}: {bug}"
            self.reply(envelope, Failure(kind="crashed", message=reason, origin=self.init.id))
        raise bug

    def _log(self, envelope: Envelope, answer: Answer) -> None:
        match answer.body:
            case Failure(kind=kind, message=message) if kind != NOT_FOUND:
                self.log.warning("journal_refused", kind=kind, reason=message)
            case LogOpened(damaged=True) if isinstance(envelope.body, OpenLog):
                self.log.error("journal_cut", conversation=envelope.body.conversation_id)
