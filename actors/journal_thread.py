"""The journal's writer: one thread that has the store, and everything that is asked of the store in a queue before it.

It decides what goes into one transaction: all appends that have come while the former one was under way, bounded in
number and in size. A few other commands come between two of these, so neither waits long for the other: an append may
overtake them, as who appends waits for the answer before asking for what depends on it. The actor's thread only hands
over and takes answers, told by a pipe. The store (and with it the database's library) is loaded and opened in the
writer, so the actor starts at once.
"""

from __future__ import annotations

import importlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.actors.journal_commands import append_all, carry_out_each, weight
from callboard.actors.thread_news import ThreadNews

MAX_APPENDS = 1_000
MAX_BYTES = 16 * 1024 * 1024
_OTHERS_BETWEEN = 8
_CLOSE_S = 0.8


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a command, or (without a ticket) a sentence on damage that was found. ``bug``: it crashed."""

    ticket: str | None
    body: Any
    bug: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    ticket: str
    command: Any
    is_append: bool


class JournalThread:
    """``load`` gives the store; it is called in the thread. All methods are the actor's thread's."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.answers: ThreadNews[Answer] = ThreadNews()
        self.ready_fd = self.answers.ready_fd
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def put(self, ticket: str, command: Any, is_append: bool) -> None:
        """Have a command carried out; its answer comes out of ``take``."""
        self._jobs.put(_Job(ticket, command, is_append))

    def take(self) -> list[Answer]:
        """Give the answers since the last time."""
        return self.answers.take()

    def close(self) -> bool:
        """Let the thread finish what it does, and close the store; False when that takes too long."""
        self._jobs.put(None)
        self._thread.join(timeout=_CLOSE_S)
        return not self._thread.is_alive()

    # ------------------------------------------------------------ in the thread
    def _run(self) -> None:
        try:
            self._work(self._load())
        except BaseException as bug:  # the actor must not outlive its thread
            self.answers.put(
                Answer(None, None, RuntimeError(f"the writer ended: {type(bug).__name__}: {bug}"))
            )

    def _work(self, store: Any) -> None:
        appends: deque[_Job] = deque()
        others: deque[_Job] = deque()
        going_on = True
        while going_on or appends or others:
            going_on = self._fetch(appends, others, going_on)
            if appends:
                self._answer_all(store, _group(appends), append_all)
            for _ in range(min(len(others), _OTHERS_BETWEEN)):
                self._answer_all(store, [others.popleft()], carry_out_each)
            self.answers.put(*(Answer(None, finding) for finding in store.take_findings()))
        store.close()

    def _fetch(self, appends: deque[_Job], others: deque[_Job], going_on: bool) -> bool:
        """Take what has come, waiting only where there is nothing to do; False once the last has been seen."""
        is_idle = not appends and not others
        while going_on and (is_idle or not self._jobs.empty()):
            job = self._jobs.get()
            if job is None:
                return False
            (appends if job.is_append else others).append(job)
            is_idle = False
        return going_on

    def _answer_all(
        self, store: Any, jobs: Sequence[_Job], carry_out: Callable[[Any, Sequence[Any]], list[Any]]
    ) -> None:
        try:
            bodies = carry_out(store, [job.command for job in jobs])
        except Exception as bug:
            self.answers.put(*(Answer(job.ticket, None, bug) for job in jobs))
            return
        self.answers.put(*(Answer(job.ticket, body) for job, body in zip(jobs, bodies, strict=True)))


def load_store(url: str, wrapper: str) -> Any:
    """Open the store, within what ``wrapper`` ("module:callable") makes of it: the seam for faults of tests."""
    from callboard.storage.journal import open_journal

    store = open_journal(url)
    if not wrapper:
        return store
    module, _, name = wrapper.partition(":")
    return getattr(importlib.import_module(module), name)(store)


def _group(appends: deque[_Job]) -> list[_Job]:
    """Take what goes into one transaction."""
    group: list[_Job] = []
    size = 0
    while appends and len(group) < MAX_APPENDS and size < MAX_BYTES:
        group.append(appends.popleft())
        size += weight(group[-1].command)
    return group
