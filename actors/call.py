"""Running calls: a worker or a server each, at most so many at a time, one result for each. Client and caller use it.

It is a stream of tasks as OTP's ``Task.async_stream`` is: the next is started when a place is free, and a place is free
when the former task's process is *down*, not when it replied; a task that runs too long is killed. The order of results
is the turn's concern. Every way for a call to end comes out as one ToolResult, and no call is ever tried again here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.actors import prepared
from callboard.actors.call_forks import CallForks
from callboard.actors.call_server import ServerCall
from callboard.actors.call_worker import Listener, WorkerCall
from callboard.actors.messages import Work
from callboard.supervisor.child import Child
from callboard.tools.content import Progress, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec

Finished: TypeAlias = Callable[[str, ToolResult, float], None]
ProgressTold: TypeAlias = Callable[[str, str, float | None], None]


@dataclass(slots=True)
class _Call:
    """One call that waits or is under way."""

    call_id: str
    work: Work
    began: float = 0.0
    way: WorkerCall | ServerCall | None = None


class Calls:
    """The calls of one actor, at most ``limit`` at a time; the rest wait in order.

    ``finished(call_id, result, duration_s)`` is called once for each call, unless it was killed;
    ``progressed(call_id, text, fraction)`` for what it tells on the way.
    """

    def __init__(
        self, host: Child, finished: Finished, limit: int, progressed: ProgressTold | None = None
    ) -> None:
        self._host = host
        self._finished = finished
        self._progressed = progressed or _unheard
        self._limit = limit
        self._running: dict[str, _Call] = {}
        self._prepared: list[WorkerCall] = []
        self._workers: list[WorkerCall] = []
        self._waiting: deque[_Call] = deque()
        self._forks = CallForks(host, self._has_no_worker)
        self._taken = 0
        self._count = 0

    def start(
        self,
        call_id: str,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        context: ToolContext,
        deadline_s: float,
    ) -> None:
        """Run the call when there is a place for it; its ``deadline_s`` seconds count from then."""
        work = Work(spec=spec, arguments=arguments, context=context, deadline_s=deadline_s)
        self._waiting.append(_Call(call_id, work))
        self._fill()

    def prepare(self, wanted: Sequence[ToolSpec]) -> None:
        """Have a worker stand ready for each of these, and for nothing else; none: end those that do."""
        needed = prepared.change([worker.spec for worker in self._prepared], wanted)
        for place in reversed(needed.end):
            self._prepared.pop(place).stop()
        for spec in needed.start:
            worker = self._new_worker(spec, "prepared")
            if worker.is_free:
                self._prepared.append(worker)

    @property
    def ready(self) -> int:
        """How many workers stand prepared and have loaded their tools."""
        return sum(worker.is_loaded for worker in self._prepared)

    def kill(self, call_id: str) -> None:
        """End the call by force; nothing more is heard of it."""
        self._waiting = deque(call for call in self._waiting if call.call_id != call_id)
        call = self._running.pop(call_id, None)
        if call is not None and call.way is not None:
            call.way.stop()

    def stop(self) -> None:
        """End all calls by force, and wait a moment for their workers to be gone; nothing more is heard of them."""
        self._waiting.clear()
        self._prepared.clear()
        running, self._running = self._running, {}
        for call in running.values():
            if isinstance(call.way, ServerCall):
                call.way.stop()
        for worker in self._workers:
            worker.end_now()
        for worker in self._workers:
            worker.leave_now()
        self._workers.clear()
        self._forks.close()

    # ------------------------------------------------------------ places
    def _fill(self) -> None:
        while self._waiting and self._taken < self._limit:
            self._begin(self._waiting.popleft())

    def _begin(self, call: _Call) -> None:
        self._taken += 1
        self._running[call.call_id] = call
        call.began = self._host.now()
        if call.work.spec.is_local:
            call.way = worker = self._worker_for(call.work.spec)
            worker.call(call.work, self._listener(call))
        else:
            call.way = server = ServerCall(self._host, call.work, self._listener(call))
            server.start()

    def _worker_for(self, spec: ToolSpec) -> WorkerCall:
        """Give a worker that stands prepared for just this, or a new one."""
        self._prepared = [worker for worker in self._prepared if worker.is_free]
        place = prepared.pick([worker.spec for worker in self._prepared], spec)
        if place is not None:
            return self._prepared.pop(place)
        return self._new_worker(spec, "running")

    def _new_worker(self, spec: ToolSpec, state: str) -> WorkerCall:
        worker = WorkerCall(self._host, self._next_row(), spec, _DEAF, self._forks.fork)
        worker.start(state)
        self._workers = [*(worker for worker in self._workers if not worker.is_buried), worker]
        return worker

    def _has_no_worker(self) -> bool:
        return all(worker.is_buried for worker in self._workers)

    def _next_row(self) -> str:
        self._count += 1
        return f"{self._host.init.id}.call-{self._count}"

    def _listener(self, call: _Call) -> Listener:
        def ended(result: ToolResult) -> None:
            if self._running.get(call.call_id) is call:
                del self._running[call.call_id]
                self._finished(call.call_id, result, self._host.now() - call.began)

        def progressed(progress: Progress) -> None:
            if self._running.get(call.call_id) is call:
                self._progressed(call.call_id, progress.text, progress.fraction)

        def gone() -> None:
            self._taken -= 1
            self._fill()

        return Listener(ended=ended, progressed=progressed, gone=gone)


def _nothing(_told: object = None) -> None:
    """Nobody waits for a worker that has no call."""


_DEAF = Listener(ended=_nothing, progressed=_nothing, gone=_nothing)


def _unheard(_call_id: str, _text: str, _fraction: float | None) -> None:
    """Nobody listens to progress."""
