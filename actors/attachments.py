"""The attachments that a log speaks of: found by digest, put together from their pieces, and told apart from it.

Pure. The events name them, the journal keeps their pieces beside the log; only an exported history, and the events of
``callboard.run``, carry the contents themselves. Called by the journal, the API and the command line.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable

from callboard.actors.events import Event, ToolCallFinished
from callboard.tools.content import Attachment, pieces_of


class NoAttachment(Exception):
    """The log has no such attachment, or more than one, or its content is lost; the message says which."""


def attachments_of(events: Iterable[Event]) -> list[tuple[ToolCallFinished, Attachment]]:
    """List the attachments with the calls whose they are, in the log's order."""
    calls = (event for event in events if isinstance(event, ToolCallFinished))
    return [(call, attachment) for call in calls for attachment in call.attachments]


def find(events: Iterable[Event], digest: str) -> Attachment:
    """Give the attachment whose digest begins so; raises NoAttachment for none, or several."""
    found = {a.digest: a for _, a in attachments_of(events) if digest and a.digest.startswith(digest.lower())}
    if len(found) == 1:
        return next(iter(found.values()))
    what = f"{len(found)} attachments begin" if found else "no attachment begins"
    raise NoAttachment(f"{what} with {digest[:80]!r} in this conversation")


def whole(attachment: Attachment, piece: Callable[[str], bytes]) -> bytes:
    """Put the content together; ``piece`` gives a piece by digest, or raises NoAttachment for one that is lost.

    Raises NoAttachment when the whole is not what it was.
    """
    if attachment.content is not None:
        return attachment.content
    content = b"".join(piece(digest) for digest in attachment.pieces)
    if hashlib.sha256(content).hexdigest() != attachment.digest:
        raise NoAttachment(f"the content of the attachment {attachment.digest[:12]} is not what was attached")
    return content


def with_contents(events: Iterable[Event], piece: Callable[[str], bytes]) -> list[Event]:
    """Give the events with the contents of their attachments in them; one whose content is lost stays without."""

    def filled(attachment: Attachment) -> Attachment:
        try:
            return dataclasses.replace(attachment, content=whole(attachment, piece))
        except NoAttachment:
            return attachment

    return [_changed(event, filled) for event in events]


def without_contents(events: Iterable[Event]) -> tuple[list[Event], list[bytes]]:
    """Give the events without the contents, and all the pieces; an attachment that came without content is left out."""
    pieces: dict[str, bytes] = {}

    def slim(attachment: Attachment) -> Attachment | None:
        if attachment.content is None:
            return None
        pieces.update(zip(attachment.pieces, pieces_of(attachment.content), strict=True))
        return dataclasses.replace(attachment, content=None)

    return [_changed(event, slim) for event in events], list(pieces.values())


def _changed(event: Event, change: Callable[[Attachment], Attachment | None]) -> Event:
    if not isinstance(event, ToolCallFinished) or not event.attachments:
        return event
    changed = tuple(c for attachment in event.attachments if (c := change(attachment)) is not None)
    return dataclasses.replace(event, attachments=changed)
