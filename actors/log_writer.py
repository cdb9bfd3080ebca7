"""The client's end of its log: numbers events, has them appended in order, and says when they are durable.

One append is on its way at a time; what comes meanwhile goes in one batch with the next. Called by the client actor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from callboard.actors.events import Event
from callboard.actors.messages import AppendEvents
from callboard.actors.names import JOURNAL
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure

_APPEND_S = 10.0
_STORAGE_AGAIN_S = 0.5
_STORAGE_PATIENCE_S = 30.0


class LogLost(RuntimeError):
    """The journal refused or did not answer: the client must end, and come back with what is on disk."""


class LogWriter:
    """``durable(events)`` is called with each batch once it is on disk; then the batch's own callbacks."""

    def __init__(
        self,
        host: Child,
        conversation_id: str,
        epoch: int,
        last_seq: int,
        durable: Callable[[tuple[Event, ...]], None],
        refused: Callable[[Failure, tuple[Event, ...]], bool],
    ) -> None:
        self._host = host
        self._conversation_id = conversation_id
        self._epoch = epoch
        self._next_seq = last_seq + 1
        self._durable = durable
        self._refused = refused
        self._queue: list[Event] = []
        self._callbacks: list[tuple[int, Callable[[], None]]] = []
        self._on_its_way: tuple[Event, ...] = ()
        self._trying: tuple[int, float] | None = None

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
        command = AppendEvents(conversation_id=self._conversation_id, epoch=self._epoch, events=batch)
        self._host.ask(JOURNAL, command, self._answered, deadline_s=_APPEND_S)

    def _patient_until(self, batch: tuple[Event, ...]) -> float:
        """A full disk may get room again: the same batch is tried for a while."""
        first = batch[0].seq or 0
        if self._trying is None or self._trying[0] != first:
            self._trying = (first, self._host.now() + _STORAGE_PATIENCE_S)
        return self._trying[1]

    def _answered(self, answer: Any) -> None:
        batch, self._on_its_way = self._on_its_way, ()
        if isinstance(answer, Failure):
            self._not_written(answer, batch)
            return
        self._durable(batch)
        last = batch[-1].seq or 0
        due = [then for seq, then in self._callbacks if seq <= last]
        self._callbacks = [(seq, then) for seq, then in self._callbacks if seq > last]
        for then in due:
            then()
        self._send()

    def _not_written(self, failure: Failure, batch: tuple[Event, ...]) -> None:
        """Where the owner can do without the batch (nothing has come of it yet), its numbers are free again."""
        if not self._queue and self._refused(failure, batch):
            self._next_seq = batch[0].seq or self._next_seq
            self._callbacks.clear()
            return
        if failure.kind == "storage" and self._host.now() < self._patient_until(batch):
            self._on_its_way = batch
            self._host.after(_STORAGE_AGAIN_S, lambda: self._send_batch(batch))
            return
        raise LogLost(f"the journal did not take {len(batch)} events: {failure.kind}: {failure.message}")
