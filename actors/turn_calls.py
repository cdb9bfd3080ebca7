"""The calls of a turn that have no result yet: which run, which wait for a person, which are refused (FEATURES T8).

Each call goes one way: refused at once; or planned (its start is being written), then running; or waiting for a
person, and then planned or denied. It notes every turn of fate in the turn's record. Pure; used by the turn machine
alone, which says when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callboard.actors.asked_calls import parse_arguments
from callboard.actors.events import ApprovalDecided, ApprovalRequested, ToolPinned
from callboard.actors.items import FunctionCall
from callboard.actors.turn_approval import approval_digest
from callboard.actors.turn_effects import KillCall, StartCall
from callboard.actors.turn_inputs import CallFinished, Decided, ToolVersion, Verdicts
from callboard.actors.turn_limits import TurnLimits
from callboard.actors.turn_record import TurnRecord
from callboard.actors.turn_words import NOT_RUN, OUTCOME_UNKNOWN, denied
from callboard.supervisor.envelope import Principal
from callboard.tools.content import ToolResult, error_result

NEVER_RAN = error_result(NOT_RUN, "cancelled")


@dataclass(frozen=True, slots=True)
class _Waiting:
    call: FunctionCall
    request: ApprovalRequested
    decision: str
    version: ToolVersion


class TurnCalls:
    """The calls in hand. ``lost``: ids of those that an earlier process had started."""

    def __init__(
        self,
        record: TurnRecord,
        limits: TurnLimits,
        principal: Principal,
        lost: frozenset[str] = frozenset(),
    ) -> None:
        self._record = record
        self._limits = limits
        self._principal = principal
        self._lost = lost
        self._planned: dict[str, tuple[int, StartCall]] = {}
        self._running: dict[str, StartCall] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._pinned: dict[str, ToolPinned] = {}

    @property
    def are_under_way(self) -> bool:
        """True while a call runs, or is about to."""
        return bool(self._planned or self._running)

    @property
    def waiting(self) -> tuple[ApprovalRequested, ...]:
        """The requests that a person has not decided on, in the order of asking."""
        return tuple(waiting.request for waiting in self._waiting.values())

    def take_up(self, calls: Sequence[FunctionCall], verdicts: Verdicts, token: int) -> None:
        """Send each call its way, in order; the starts among them are written by the append ``token``."""
        asked_before = len(self._record.facts.calls) - len(calls)
        for position, call in enumerate(calls, start=1):
            arguments = parse_arguments(call.arguments)
            refusal = verdicts.refusals.get(call.call_id) or self._refusal(position, asked_before, arguments)
            if refusal is None:
                self._admit(call, arguments or {}, verdicts, token)
            else:
                decision = verdicts.decisions.get(call.call_id, "")
                self._record.finished(call, refusal, decision=decision)

    def _refusal(
        self, position: int, asked_before: int, arguments: Mapping[str, Any] | None
    ) -> ToolResult | None:
        if position > self._limits.max_calls:
            return error_result(f"not run: at most {self._limits.max_calls} calls may be made in one step")
        if asked_before + position > self._limits.max_turn_calls:
            return error_result(
                f"not run: at most {self._limits.max_turn_calls} calls may be made in one turn"
            )
        return error_result("not run: the arguments are not a JSON object") if arguments is None else None

    def _admit(
        self, call: FunctionCall, arguments: Mapping[str, Any], verdicts: Verdicts, token: int
    ) -> None:
        """A person may have been asked, and may have decided, in a former life of the turn."""
        facts = self._record.facts
        request, decided = facts.requests.get(call.call_id), facts.decisions.get(call.call_id)
        reason = verdicts.approvals.get(call.call_id)
        decision = verdicts.decisions.get(call.call_id, "")
        version = verdicts.tool_versions.get(call.tool, ToolVersion())
        if request is None and reason is not None:
            request = self._record.requested(call, arguments, self._digest(call, version), reason)
        if request is None:
            self._plan(StartCall(call=call, arguments=dict(arguments)), token, decision, version.pin)
        elif decided is None:
            self._waiting[call.call_id] = _Waiting(call, request, decision, version)
        else:
            self._follow(_Waiting(call, request, decision, version), decided, token)

    def _plan(self, start: StartCall, token: int, decision: str, pin: ToolPinned | None) -> None:
        self._planned[start.call.call_id] = (token, start)
        if pin is not None and pin != self._pinned.get(pin.tool):
            self._pinned[pin.tool] = pin
            self._record.note(pin)
        self._record.begun(start, decision)

    def _digest(self, call: FunctionCall, version: ToolVersion) -> str:
        return approval_digest(call, tool_version=version.digest, principal=self._principal)

    def _follow(self, waiting: _Waiting, decided: ApprovalDecided, token: int) -> None:
        if not decided.approved:
            result = self._without_run(waiting.call, denied(decided))
            self._record.finished(waiting.call, result, decision=waiting.decision)
            return
        edited = decided.arguments
        arguments = edited if isinstance(edited, dict) else parse_arguments(waiting.call.arguments) or {}
        start = StartCall(call=waiting.call, arguments=arguments, approval=waiting.request.digest)
        is_as_asked = self._digest(waiting.call, waiting.version) == waiting.request.digest
        self._plan(start, token, waiting.decision, waiting.version.pin if is_as_asked else None)

    def wait_again(self, calls: Sequence[FunctionCall], versions: Mapping[str, ToolVersion]) -> None:
        """Wait for the decisions that a former process was waiting for; nothing of it is new to the log."""
        for call in calls:
            request = self._record.facts.requests[call.call_id]
            version = versions.get(call.tool, ToolVersion())
            self._waiting[call.call_id] = _Waiting(call, request, "", version)

    def expects(self, given: Decided) -> bool:
        """True when this decision is the first on a call that waits, and on what the person saw of it."""
        waiting = self._waiting.get(given.call_id)
        return waiting is not None and given.digest in ("", waiting.request.digest)

    def decide(self, given: Decided, token: int) -> None:
        """Follow a decision that is expected."""
        waiting = self._waiting.pop(given.call_id)
        self._follow(waiting, self._record.decided(given), token)

    def start_due(self, upto: int) -> list[StartCall]:
        """Give the calls whose start is durable by now; they run from here on."""
        due = [start for token, start in self._planned.values() if token <= upto]
        for start in due:
            del self._planned[start.call.call_id]
            self._running[start.call.call_id] = start
        return due

    def finish(self, given: CallFinished) -> bool:
        """Take a result; False when no such call runs."""
        start = self._running.pop(given.call_id, None)
        if start is None:
            return False
        self._record.finished(start.call, given.result, given.duration_s, decision=given.decision)
        return True

    def cut_off(self, ran: ToolResult, planned: ToolResult = NEVER_RAN) -> list[KillCall]:
        """Give the running calls the result ``ran``, and those about to run ``planned``; the waiting ones stay."""
        running, self._running = self._running, {}
        coming, self._planned = self._planned, {}
        for start in running.values():
            self._record.finished(start.call, ran)
        for _, start in coming.values():
            self._record.finished(start.call, self._without_run(start.call, planned))
        return [KillCall(call_id) for call_id in running]

    def close(self, calls: Sequence[FunctionCall], result: ToolResult = NEVER_RAN) -> None:
        """Give these calls the result ``result``."""
        for call in calls:
            self._record.finished(call, self._without_run(call, result))

    def close_waiting(self) -> None:
        """Nobody decides on the waiting calls any more."""
        waiting, self._waiting = self._waiting, {}
        self.close([w.call for w in waiting.values()])

    def abandon(self) -> list[KillCall]:
        """Let go of all calls as they are; whoever takes the turn up finds them in the log."""
        running, self._running, self._planned = self._running, {}, {}
        return [KillCall(call_id) for call_id in running]

    def _without_run(self, call: FunctionCall, result: ToolResult) -> ToolResult:
        """Give ``result`` to a call that this process did not run, unless an earlier one did, perhaps."""
        return error_result(OUTCOME_UNKNOWN, "unknown") if call.call_id in self._lost else result
