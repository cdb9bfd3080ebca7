"""Running calls: a worker or a server each, at most so many at a time, one result for each. The client uses it.

It is a stream of tasks as OTP's ``Task.async_stream`` is: the next is started when a place is free, and a place is free
when the former task's process is *down*, not when it replied; a task that runs too long is killed. The order of results
is the turn's concern. Every way for a call to end comes out as one ToolResult, and no call is ever tried again here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from callboard.actors.call_server import ServerCall
from callboard.actors.call_worker import Listener, WorkerCall
from callboard.actors.messages import Progressed, Work, Worked
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
        self._waiting: deque[_Call] = deque()
        self._workers: dict[str, _Call] = {}
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

    def kill(self, call_id: str) -> None:
        """End the call by force; nothing more is heard of it."""
        self._waiting = deque(call for call in self._waiting if call.call_id != call_id)
        call = self._running.pop(call_id, None)
        if call is not None and call.way is not None:
            call.way.stop()

    def stop(self) -> None:
        """End all calls by force; nothing more is heard of them."""
        self._waiting.clear()
        for call_id in list(self._running):
            self.kill(call_id)

    def take(self, message: Any) -> None:
        """Take a notice from a worker; other messages are nobody's."""
        if isinstance(message, Worked | Progressed):
            call = self._workers.get(message.worker)
            if call is not None and isinstance(call.way, WorkerCall):
                call.way.take(message)

    # ------------------------------------------------------------ places
    def _fill(self) -> None:
        while self._waiting and self._taken < self._limit:
            self._begin(self._waiting.popleft())

    def _begin(self, call: _Call) -> None:
        self._taken += 1
        self._running[call.call_id] = call
        call.began = self._host.now()
        if call.work.spec.is_local:
            self._count += 1
            row = f"{self._host.init.id}.call-{self._count}"
            self._workers[row] = call
            call.way = WorkerCall(self._host, row, call.work, self._listener(call, row))
        else:
            call.way = ServerCall(self._host, call.work, self._listener(call))
        call.way.start()

    def _listener(self, call: _Call, row: str = "") -> Listener:
        def ended(result: ToolResult) -> None:
            if self._running.get(call.call_id) is call:
                del self._running[call.call_id]
                self._finished(call.call_id, result, self._host.now() - call.began)

        def progressed(progress: Progress) -> None:
            if self._running.get(call.call_id) is call:
                self._progressed(call.call_id, progress.text, progress.fraction)

        def gone() -> None:
            self._workers.pop(row, None)
            self._taken -= 1
            self._fill()

        return Listener(ended=ended, progressed=progressed, gone=gone)


def _unheard(_call_id: str, _text: str, _fraction: float | None) -> None:
    """Nobody listens to progress."""
