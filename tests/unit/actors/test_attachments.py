"""Attachments in a log: found, put together, told apart from it, and carried by an export."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest

from callboard.actors.attachments import NoAttachment, find, whole, with_contents, without_contents
from callboard.actors.events import (
    ConversationOpened,
    Event,
    ToolCallFinished,
    event_from_json,
    event_to_json,
)
from callboard.actors.history_forms import read_history
from callboard.history_export import to_json, to_markdown
from callboard.tools.content import PIECE_BYTES, Attachment, pieces_of

CONTENT = b"a" * PIECE_BYTES + b"b" * 10
STORE = {hashlib.sha256(piece).hexdigest(): piece for piece in pieces_of(CONTENT)}
LARGE = Attachment.of(CONTENT, "text/plain")
SMALL = Attachment.of(b"\x89PNG", "image/png")


def _finished(*attachments: Attachment) -> ToolCallFinished:
    return ToolCallFinished(
        seq=2, turn_id="t", call_id="c", tool="big", is_error=False, outcome="ok", attachments=attachments
    )


def _slim(*attachments: Attachment) -> ToolCallFinished:
    return _finished(*(dataclasses.replace(attachment, content=None) for attachment in attachments))


def test_an_attachment_is_found_by_the_beginning_of_its_digest() -> None:
    events = [_slim(LARGE), _slim(LARGE, SMALL)]
    assert find(events, LARGE.digest[:8].upper()).digest == LARGE.digest
    with pytest.raises(NoAttachment, match="2 attachments begin with"):
        two = [dataclasses.replace(LARGE, digest=digest) for digest in ("ab1", "ab2")]
        find([_slim(*two)], "ab")
    for digest in ("", "zz"):
        with pytest.raises(NoAttachment, match="no attachment begins with"):
            find(events, digest)


def test_a_content_is_put_together_and_checked() -> None:
    slim = _slim(LARGE).attachments[0]
    assert whole(slim, STORE.__getitem__) == CONTENT
    with pytest.raises(NoAttachment, match="is not what was attached"):
        whole(slim, lambda _digest: b"other")


def test_contents_go_out_of_the_events_and_into_them_again() -> None:
    events, pieces = without_contents([_finished(LARGE, SMALL)])
    assert events == [_slim(LARGE, SMALL)]
    assert pieces == [*pieces_of(CONTENT), b"\x89PNG"]
    store = {hashlib.sha256(piece).hexdigest(): piece for piece in pieces}
    assert with_contents(events, store.__getitem__) == [_finished(LARGE, SMALL)]


def test_an_attachment_whose_content_is_lost_stays_without_and_costs_no_other() -> None:
    def piece(digest: str) -> bytes:
        if digest == LARGE.pieces[1]:
            raise NoAttachment("it is damaged")
        return {**STORE, SMALL.digest: b"\x89PNG"}[digest]

    slim = _slim(LARGE, SMALL)
    assert with_contents([slim], piece) == [_finished(slim.attachments[0], SMALL)]


def test_an_attachment_that_came_without_its_content_is_left_out() -> None:
    """An import that names digests alone must not be given contents that it never had."""
    events, pieces = without_contents([_slim(LARGE), _finished(SMALL)])
    assert events == [_finished(), _slim(SMALL)]
    assert pieces == [b"\x89PNG"]


@pytest.mark.parametrize("event", [_finished(LARGE), _slim(LARGE, SMALL)])
def test_the_json_form_reads_back(event: Event) -> None:
    assert event_from_json(json.loads(json.dumps(event_to_json(event)))) == event


def test_a_content_decides_over_the_digest_that_is_said() -> None:
    form = event_to_json(_finished(SMALL))
    form["attachments"][0] |= {"digest": LARGE.digest, "size": 1, "pieces": list(LARGE.pieces)}
    assert event_from_json(form) == _finished(SMALL)


def test_an_export_carries_the_contents() -> None:
    opened = ConversationOpened(seq=1, conversation_id="c", user="", team="")
    events, _ = read_history(to_json([opened, _finished(LARGE, SMALL)]))
    assert events[1] == _finished(LARGE, SMALL)
    assert f"`{SMALL.digest}`: `image/png`, 4 bytes" in to_markdown([opened, _slim(SMALL)])
