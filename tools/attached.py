"""What is kept of a result's parts that were cut or left out: each whole, as an attachment, while there is room.

Pure. It decides nothing about what the model sees (``tools/bounds.py``, which calls it, does), and stores nothing:
whoever has the result hands the contents to where they stay.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Sequence

from callboard.tools.content import Attachment, Block, block_to_json

ATTACHED_BYTES = 64 * 1024 * 1024


class Attached:
    """The attachments of one result, ``ATTACHED_BYTES`` together; ``former`` are those that it has already.

    Each method gives the words for the note: empty when all was kept.
    """

    def __init__(self, former: Sequence[Attachment]) -> None:
        self.attachments = tuple(former)
        self._left = ATTACHED_BYTES - sum(attachment.size for attachment in former)

    def keep_text(self, encoded: bytes, mime_type: str) -> str:
        """Keep a text, given in UTF-8, or as much of its beginning as there is room for."""
        kept = encoded
        if len(encoded) > self._left:
            kept = encoded[: max(0, self._left)].decode("utf-8", "ignore").encode("utf-8")
        if kept:
            self._add(kept, mime_type)
        lost = len(encoded) - len(kept)
        return f", {lost} bytes at the end not kept" if lost else ""

    def keep_blob(self, base64_text: str, mime_type: str) -> str:
        """Keep what a base64 text says (the text itself where it is none): whole or, for want of room, not at all."""
        try:
            content = binascii.a2b_base64(base64_text, strict_mode=True)
        except ValueError:
            content = base64_text.encode("utf-8", "replace")
        return self._keep_whole(content, mime_type)

    def keep_blocks(self, blocks: Sequence[Block]) -> str:
        """Keep whole blocks, as a JSON list of their forms, or none of them."""
        forms = [block_to_json(block) for block in blocks]
        return self._keep_whole(json.dumps(forms).encode("ascii"), "application/json")

    def _keep_whole(self, content: bytes, mime_type: str) -> str:
        if len(content) > self._left:
            return ", not kept"
        self._add(content, mime_type)
        return ""

    def _add(self, content: bytes, mime_type: str) -> None:
        self._left -= len(content)
        self.attachments = (*self.attachments, Attachment.of(content, mime_type))
