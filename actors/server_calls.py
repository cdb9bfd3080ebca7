"""The calls that one external server has in hand: who asked, how far each is, and what was answered a moment ago.

Bookkeeping for the external-server actor, which makes the calls. A call has one result, whatever the mail does: who
asks again under its request id hears the same, and nothing is called twice. On the way it is told how far the call
is, at most every 50 ms and the last of it before the result, however often the server says so; progress does not move
the deadline. Progress is an answer before the last: the asker waits on with ``AwaitCall`` (``call_server.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from callboard.actors.mcp_content import progress_of
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.tools.content import ToolResult, error_result
from callboard.transports.mcp_effects import Progress

TELL_EVERY_S = 0.05
_KEPT_S = 5.0
_CROSSED_S = 0.5
_IDS_KEPT = 10_000


@dataclass(slots=True)
class _Call:
    envelope: Envelope
    told_at: float = float("-inf")
    untold: Progress | None = None
    is_due: bool = False


@dataclass(slots=True)
class _Answer:
    at: float
    result: ToolResult | None


class ServerCalls:
    """The calls by request id."""

    def __init__(self, host: Child, server: str) -> None:
        self._host = host
        self._server = server
        self._calls: dict[str, _Call] = {}
        self._answers: OrderedDict[str, _Answer] = OrderedDict()

    def add(self, envelope: Envelope) -> bool:
        """Take a call in; False for one that is known: it is not to be made again."""
        request_id = envelope.request_id
        if request_id in self._answers:
            self.ask_on(envelope)
            return False
        if request_id in self._calls:
            return False
        self._calls[request_id] = _Call(envelope)
        return True

    def ask_on(self, envelope: Envelope) -> None:
        """Hear that a call is waited for still: its result is sent again, if it did not just cross this in the mail."""
        answer = self._answers.get(envelope.request_id)
        if answer is not None and self._host.now() - answer.at > _CROSSED_S:
            self._host.reply(envelope, answer.result or self._forgotten())

    def envelope(self, request_id: str) -> Envelope | None:
        """Give the request of a call that has no result yet."""
        call = self._calls.get(request_id)
        return None if call is None else call.envelope

    def drop(self, request_id: str) -> bool:
        """Forget a call that nobody waits for; False when it has ended, or if it comes only now: it is not made."""
        call = self._calls.pop(request_id, None)
        if call is None:
            if request_id not in self._answers:
                self._remember(request_id, None)
            return False
        call.untold = None
        self._remember(request_id, None)
        return True

    def answer(self, request_id: str, result: ToolResult) -> None:
        """Give a call its result, after the last of its progress; ignored when it has ended."""
        call = self._calls.pop(request_id, None)
        if call is None:
            return
        self._tell(call)
        self._host.reply(call.envelope, result)
        self._remember(request_id, result)
        self._host.after(_KEPT_S, lambda: self._forget(request_id))

    def answer_all(self, result: ToolResult) -> None:
        """Give every call this result."""
        for request_id in list(self._calls):
            self.answer(request_id, result)

    def progressed(self, request_id: str, progress: Progress) -> None:
        """Tell how far a call is: now, or when it is time, unless more is known by then."""
        call = self._calls.get(request_id)
        if call is None:
            return
        call.untold = progress
        wait_s = call.told_at + TELL_EVERY_S - self._host.now()
        if wait_s <= 0:
            self._tell(call)
        elif not call.is_due:
            call.is_due = True
            self._host.after(wait_s, lambda: self._tell(call))

    def _tell(self, call: _Call) -> None:
        """A call that has ended has nothing untold."""
        call.is_due = False
        if call.untold is not None:
            told, call.untold = call.untold, None
            call.told_at = self._host.now()
            self._host.reply(call.envelope, progress_of(told))

    def _remember(self, request_id: str, result: ToolResult | None) -> None:
        self._answers[request_id] = _Answer(self._host.now(), result)
        if len(self._answers) > _IDS_KEPT:
            self._answers.popitem(last=False)

    def _forget(self, request_id: str) -> None:
        """Results may be large; that the call was made is remembered for longer."""
        answer = self._answers.get(request_id)
        if answer is not None:
            answer.result = None

    def _forgotten(self) -> ToolResult:
        message = (
            f"the call was given up, or its result is gone; the server {self._server} was not asked again"
        )
        return error_result(message, "unknown")
