"""The client's end of its log: numbers events, has them appended in order, and says when they are durable.

One append is on its way at a time; what comes meanwhile goes in one batch with the next. While the storage is at
fault the same batch is tried again for ever, at growing distances, and what comes queues behind it: nothing is ever
skipped. Called by the client actor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from callboard.actors.events import Event
from callboard.actors.messages import AppendEvents
from callboard.actors.names import JOURNAL
from callboard.storage.journal_terms import is_fault
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure
from callboard.supervisor.requests import UNANSWERED

STUCK_AFTER_S = 30.0
_APPEND_S = 10.0
_AGAIN_MIN_S = 0.25
_AGAIN_MAX_S = 5.0


class LogLost(RuntimeError):
    """The journal refused an append for good: the client must end, and come back with what is on disk."""


class LogWriter:
    """``durable(events)`` is called with each batch once it is on disk; then the batch's own callbacks.

    ``refused(failure, batch)`` is asked when the storage is at fault and nothing queues behind the batch: True gives
    its numbers free, as its owner does without it. ``stuck(failure)`` is called once for each fault that lasts
    ``STUCK_AFTER_S``; what has been appended stays queued, and is written when the fault goes.
    """

    def __init__(
        self,
        host: Child,
        conversation_id: str,
        team: str,
        epoch: int,
        last_seq: int,
        durable: Callable[[tuple[Event, ...]], None],
        refused: Callable[[Failure, tuple[Event, ...]], bool],
        stuck: Callable[[Failure], None],
    ) -> None:
        self._host = host
        self._conversation_id = conversation_id
        self._team = team
        self._epoch = epoch
        self._next_seq = last_seq + 1
        self._durable = durable
        self._refused = refused
        self._stuck = stuck
        self._queue: list[Event] = []
        self._callbacks: list[tuple[int, Callable[[], None]]] = []
        self._on_its_way: tuple[Event, ...] = ()
        self._fault: Failure | None = None
        self._fault_since = 0.0
        self._again_s = _AGAIN_MIN_S
        self._said_stuck = False

    @property
    def fault(self) -> Failure | None:
        """Why the present batch is not written yet; None while the storage is well."""
        return self._fault

    def append(self, events: tuple[Event, ...], then: Callable[[], None] | None = None) -> None:
        """Number and append the events; ``then`` runs when they are durable."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        for event in events:
            self._queue.append(dataclasses.replace(event, seq=self._next_seq, at=at))
            self._next_seq += 1
        if then is not None:
            self._callbacks.append((self._next_seq - 1, then))
        self._send()

    def _send(self) -> None:
        if self._on_its_way or not self._queue:
            return
        self._on_its_way, self._queue = tuple(self._queue), []
        self._send_batch(self._on_its_way)

    def _send_batch(self, batch: tuple[Event, ...]) -> None:
        command = AppendEvents(
            conversation_id=self._conversation_id, team=self._team, epoch=self._epoch, events=batch
        )
        self._host.ask(JOURNAL, command, self._answered, deadline_s=_APPEND_S)

    def _answered(self, answer: Any) -> None:
        batch = self._on_its_way
        if isinstance(answer, Failure):
            self._not_written(_as_fault(answer), batch)
            return
        self._on_its_way = ()
        self._well_again()
        self._durable(batch)
        last = batch[-1].seq or 0
        due = [then for seq, then in self._callbacks if seq <= last]
        self._callbacks = [(seq, then) for seq, then in self._callbacks if seq > last]
        for then in due:
            then()
        self._send()

    def _not_written(self, failure: Failure, batch: tuple[Event, ...]) -> None:
        """Where the owner can do without the batch (nothing has come of it yet), its numbers are free again."""
        if not is_fault(failure.kind):
            raise LogLost(f"the journal did not take {len(batch)} events: {failure.kind}: {failure.message}")
        if self._fault is None:
            self._fault_since = self._host.now()
        self._fault = failure
        if not self._queue and not self._said_stuck and self._refused(failure, batch):
            self._on_its_way = ()
            self._next_seq = batch[0].seq or self._next_seq
            self._callbacks.clear()
            self._well_again()
            return
        self._host.after(self._again_s, lambda: self._send_batch(batch))
        self._again_s = min(2 * self._again_s, _AGAIN_MAX_S)
        if not self._said_stuck and self._host.now() - self._fault_since >= STUCK_AFTER_S:
            self._said_stuck = True
            self._host.log.error("log_stuck", conversation=self._conversation_id, reason=failure.message)
            self._stuck(failure)

    def _well_again(self) -> None:
        self._fault = None
        self._again_s = _AGAIN_MIN_S
        self._said_stuck = False


def _as_fault(failure: Failure) -> Failure:
    """A journal that does not answer, or has too much to do, is a fault of the storage for who must write."""
    if failure.kind in (UNANSWERED, "overloaded"):
        return dataclasses.replace(failure, kind=f"storage_{failure.kind}")
    return failure
