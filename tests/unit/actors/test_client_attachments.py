"""A result's large contents go to the journal before the result counts, and a result never waits for ever for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from callboard.actors.client_attachments import ClientAttachments
from callboard.actors.messages import KeepPieces
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Failure
from callboard.tools.content import PIECE_BYTES, Attachment, TextBlock, ToolResult, pieces_of

CONTENT = b"".join(bytes((n,)) * PIECE_BYTES for n in range(5))


class _Log:
    def warning(self, *_: Any, **__: Any) -> None:
        """Nobody reads it."""


class _Host:
    """Keeps what is asked, to be answered by the test."""

    log = _Log()

    def __init__(self) -> None:
        self.asked: list[tuple[KeepPieces, Callable[[Any], None]]] = []

    def ask(
        self, _target: str, command: KeepPieces, then: Callable[[Any], None], *, deadline_s: float
    ) -> None:
        self.asked.append((command, then))


@pytest.fixture
def host() -> _Host:
    return _Host()


@pytest.fixture
def attachments(host: _Host) -> ClientAttachments:
    return ClientAttachments(cast("Child", host), "c", "red", 7)


def test_a_few_pieces_are_on_their_way_at_a_time_and_the_result_comes_last(
    host: _Host, attachments: ClientAttachments
) -> None:
    done: list[ToolResult] = []
    result = ToolResult(attachments=(Attachment.of(CONTENT, "text/plain"),))
    attachments.store(result, done.append)
    pieces = tuple(pieces_of(CONTENT))
    for expected in (pieces[:4], pieces[4:]):
        assert done == []
        command, then = host.asked.pop()
        assert (command.pieces, command.epoch, host.asked) == (expected, 7, [])
        then(True)
    (stored,) = done
    assert [(a.digest, a.content) for a in stored.attachments] == [(result.attachments[0].digest, None)]


def test_a_result_without_contents_goes_on_at_once(host: _Host, attachments: ClientAttachments) -> None:
    done: list[ToolResult] = []
    result = ToolResult(content=(TextBlock("a"),))
    attachments.store(result, done.append)
    assert done[0] is result
    assert host.asked == []


def test_what_a_tool_names_without_having_it_is_left_out(attachments: ClientAttachments) -> None:
    """The process of a call is not trusted: it might name what another conversation of the team has."""
    done: list[ToolResult] = []
    named = Attachment(digest="d", size=1, mime_type="text/plain", pieces=("d",))
    attachments.store(ToolResult(attachments=(named,)), done.append)
    assert done == [ToolResult()]


def test_what_is_on_its_way_is_given_up_once_and_the_rest_of_the_result_stays(
    host: _Host, attachments: ClientAttachments
) -> None:
    done: list[ToolResult] = []
    result = ToolResult(content=(TextBlock("head"),), attachments=(Attachment.of(CONTENT, "text/plain"),))
    attachments.store(result, done.append)
    attachments.wait_no_longer()
    note = TextBlock("[… the whole could not be kept: the turn was cut off …]")
    assert done == [ToolResult(content=(TextBlock("head"), note))]
    host.asked.pop()[1](True)
    attachments.wait_no_longer()
    assert (len(done), host.asked) == (1, [])


def test_a_result_whose_contents_cannot_be_stored_says_so_and_goes_on(
    host: _Host, attachments: ClientAttachments
) -> None:
    done: list[ToolResult] = []
    attachments.store(ToolResult(attachments=(Attachment.of(CONTENT, "text/plain"),)), done.append)
    host.asked.pop()[1](Failure(kind="storage_full", message="no room", retryable=True))
    assert done == [ToolResult(content=(TextBlock("[… the whole could not be kept: storage_full …]"),))]
    assert host.asked == []
