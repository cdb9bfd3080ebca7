"""One call of one tool in a running system, for a person: what ``callboard tools call`` does.

The call takes the path of a model's call in a new conversation (``actors/caller_run.py``), but no conversation logs it.
It is run once at most: where the system or a part of it is lost in mid-call, that is said. It ends with the process
that asked, and with an interrupt.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from callboard.actors.events import ApprovalDecided, ApprovalRequested
from callboard.actors.messages import CallQueued, CallWaits, RunTool, StopTool, ToolRan, ToolRuns
from callboard.actors.names import CALLER
from callboard.actors.owner import this_process
from callboard.actors.turn_words import denied
from callboard.errors import CallboardError, Unavailable
from callboard.failures import error_of
from callboard.supervisor.envelope import Failure, Principal
from callboard.supervisor.table import ProcessTable
from callboard.tools import decision_layers
from callboard.tools.content import JsonBlock, Progress, ResourceBlock, TextBlock, ToolResult
from callboard.tools.decision import RefusalKind

if TYPE_CHECKING:
    from callboard.api import System
    from callboard.gateway.terminal.approvals import Choice

News: TypeAlias = ToolRuns | Progress

_LOOK_S = 0.5
_SILENCE_S = 60.0
_STOP_S = 3.0
_TEXTS = ("text/plain", "application/json")
_NOBODY = Principal()
_NOBODY_ASKED = "nobody was asked"


def call(
    system: System,
    tool: str,
    arguments: str = "",
    *,
    principal: Principal = _NOBODY,
    template: str = "default",
    enable: bool = False,
    deadline_s: float | None = None,
    decide: Callable[[ApprovalRequested], Choice] | None = None,
    heard: Callable[[News], None] | None = None,
) -> ToolRan:
    """Run the tool with ``arguments`` (JSON text) for the principal, and give what came of it, or why it was refused.

    ``deadline_s`` shortens the tool's own; ``enable``: where the template does not. ``decide`` is asked where the call
    needs a person (None: denied). ``heard`` is told when the call runs, and its progress. Raises Refused (no such
    template) or Unavailable.
    """
    command = RunTool(
        call_id=uuid.uuid4().hex,
        tool=tool,
        arguments=arguments,
        caller_pid=0,
        template=template,
        enable=enable,
        deadline_s=deadline_s,
        owner=this_process(),
    )
    hear = heard or (lambda _news: None)
    answer = _exchanged(system, command, principal, hear)
    if isinstance(answer, CallWaits):
        choice = None if decide is None else decide(answer.asked)
        if choice is None or not choice.approved:
            return _denied(answer, principal, _NOBODY_ASKED if choice is None else choice.reason)
        approved = replace(command, approval=answer.asked.digest, edited=choice.arguments)
        answer = _exchanged(system, approved, principal, hear)
    if isinstance(answer, ToolRan):
        return answer
    raise CallboardError(f"the caller answered with {type(answer).__name__}")


def shown(result: ToolResult) -> str:
    """Give the result as text: what the model reads, or the whole of it where that was cut."""
    if len(result.attachments) == len(result.content) == 1 and isinstance(result.content[0], TextBlock):
        (attachment,) = result.attachments
        if attachment.mime_type in _TEXTS and attachment.content is not None:
            return attachment.content.decode("utf-8", "replace")
    lines = []
    for block in result.content:
        match block:
            case TextBlock(text):
                lines.append(text)
            case JsonBlock(value):
                lines.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
            case ResourceBlock(uri=uri, text=text):
                lines.append(text or f"[resource {uri}]")
            case _:
                lines.append(f"[an image of type {block.mime_type}]")
    return "\n".join(lines)


def _exchanged(system: System, command: RunTool, principal: Principal, heard: Callable[[News], None]) -> Any:
    """Ask until there is an answer. The command names the life of the caller that it was first sent to."""
    table = ProcessTable(system._folder)
    sent: list[RunTool] = []

    def body() -> RunTool:
        if not sent:
            row = table.get(CALLER)
            sent.append(replace(command, caller_pid=(row.pid if row is not None else None) or 0))
        return sent[0]

    with (
        _ended_with_this(system, command.call_id),
        system._mailbox.exchange(body, principal=principal, to=CALLER) as exchange,
    ):
        silent_since, is_told = time.monotonic(), False
        while time.monotonic() - silent_since < _SILENCE_S:
            answer = exchange.next(_LOOK_S)
            if answer is None:
                _check_alive(system, command, bool(sent))
                continue
            silent_since = time.monotonic()
            if isinstance(answer, Failure):
                raise error_of(answer)
            if isinstance(answer, CallQueued):
                continue
            if not isinstance(answer, ToolRuns | Progress):
                return answer
            if isinstance(answer, Progress) or not is_told:
                heard(answer)
            is_told = True
    _stop(system, command.call_id)
    raise Unavailable(f"the system does not say what became of the call of {command.tool}")


def _check_alive(system: System, command: RunTool, was_sent: bool) -> None:
    try:
        system._check_alive(True)
    except Unavailable as fault:
        if not was_sent:
            raise
        told = f"{fault}; what became of the call of {command.tool} is not known"
        raise Unavailable(told) from fault


@contextmanager
def _ended_with_this(system: System, call_id: str) -> Iterator[None]:
    """Whatever ends the waiting early (an interrupt, a reader that is gone) ends the call."""
    try:
        yield
    except CallboardError:
        raise
    except BaseException:
        _stop(system, call_id)
        raise


def _stop(system: System, call_id: str) -> None:
    with suppress(CallboardError, OSError):
        system._mailbox.request(StopTool(call_id), timeout_s=_STOP_S, to=CALLER)


def _denied(waits: CallWaits, principal: Principal, reason: str) -> ToolRan:
    decided = ApprovalDecided(
        turn_id="", call_id=waits.asked.call_id, approved=False, by=principal.user, reason=reason
    )
    return ToolRan(
        result=denied(decided),
        duration_s=0.0,
        decision=f"{RefusalKind.NOT_APPROVED}: {reason or waits.asked.reason}",
        layers=decision_layers.denied(waits.layers, reason or "a person said no"),
    )
