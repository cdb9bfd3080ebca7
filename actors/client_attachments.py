"""The large contents of a client's results: stored with the journal before the result counts, and then let go of.

They go a few pieces at a time, the next when these are durable, so that neither the journal nor its other writers are
held up; the client has them only meanwhile, and no reader is sent them. A result whose contents cannot be stored, or
not in time, goes on without them, and says so. Used by ``actors/client.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from callboard.actors.messages import KeepPieces
from callboard.actors.names import JOURNAL
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure
from callboard.tools.content import TextBlock, ToolResult, pieces_of

_AT_ONCE = 4
_ANSWER_S = 10.0


@dataclass(slots=True, eq=False)
class _Job:
    """A result whose pieces are being stored."""

    result: ToolResult
    pieces: deque[bytes]
    then: Callable[[ToolResult], None]


class ClientAttachments:
    """Stores for the log of this conversation, in the name of its owner with this epoch."""

    def __init__(self, host: Child, conversation_id: str, team: str, epoch: int) -> None:
        self._host = host
        self._conversation_id = conversation_id
        self._team = team
        self._epoch = epoch
        self._jobs: list[_Job] = []

    def store(self, result: ToolResult, then: Callable[[ToolResult], None]) -> None:
        """Call ``then`` with the result as it is to be logged: at once, or when its contents are durable.

        What an attachment without content speaks of is nothing of this result's: it is left out.
        """
        given = tuple(attachment for attachment in result.attachments if attachment.content is not None)
        pieces = deque(piece for attachment in given for piece in pieces_of(attachment.content or b""))
        slim = replace(result, attachments=tuple(replace(attachment, content=None) for attachment in given))
        if not pieces:
            then(slim if result.attachments else result)
            return
        job = _Job(slim, pieces, then)
        self._jobs.append(job)
        self._go_on(job)

    def wait_no_longer(self) -> None:
        """Call ``then`` of all that are being stored, without their contents: the turn is about to be cut off."""
        for job in tuple(self._jobs):
            self._end_without(job, "the turn was cut off")

    def _go_on(self, job: _Job) -> None:
        if not job.pieces:
            self._jobs.remove(job)
            job.then(job.result)
            return
        command = KeepPieces(
            conversation_id=self._conversation_id,
            team=self._team,
            epoch=self._epoch,
            pieces=tuple(job.pieces.popleft() for _ in range(min(_AT_ONCE, len(job.pieces)))),
        )
        self._host.ask(JOURNAL, command, lambda answer: self._answered(job, answer), deadline_s=_ANSWER_S)

    def _answered(self, job: _Job, answer: Any) -> None:
        if job not in self._jobs:
            return
        if isinstance(answer, Failure):
            self._host.log.warning("attachment_not_kept", kind=answer.kind, reason=answer.message)
            self._end_without(job, answer.kind)
        else:
            self._go_on(job)

    def _end_without(self, job: _Job, why: str) -> None:
        self._jobs.remove(job)
        note = TextBlock(f"[… the whole could not be kept: {why} …]")
        job.then(replace(job.result, attachments=(), content=(*job.result.content, note)))
