"""What a tool printed: its head and its tail, and how much lay between. Pure.

Where its process crashed, Python has printed the frames that led there; those below the tool's own are ours, the
same at each crash, and left out. Called by ``actors/worker_process.py``.
"""

from __future__ import annotations

import re
from collections import deque
from pathlib import Path

from callboard.tools import content

HEAD_BYTES = 32 * 1024
TAIL_BYTES = 31 * 1024
_DUMP = "(most recent call first):"
_OURS = re.compile(
    rf'  File "{re.escape(str(Path(content.__file__).parent))}/(execute|runner|decorator|keeper)\.py", line [0-9]+ in '
)


class Captured:
    """Takes pieces of bytes in order; holds at most 64 KiB of them and a few pieces more."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self.total_bytes += len(piece)
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        if not piece:
            return
        self._tail.append(piece)
        self._tail_bytes += len(piece)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    def text(self) -> str:
        """Give what is held, with a note where bytes were left out; bytes that are no UTF-8 are replaced."""
        tail = b"".join(self._tail)[-TAIL_BYTES:]
        left_out = self.total_bytes - len(self._head) - len(tail)
        note = f"\n[… {left_out} bytes left out …]\n" if left_out else ""
        text = f"{self._head.decode('utf-8', 'replace')}{note}{tail.decode('utf-8', 'replace')}"
        return _without_our_frames(text) if _DUMP in text else text


def _without_our_frames(text: str) -> str:
    """Take out of each thread's frames (a dump of ``faulthandler``'s) the first that is ours, and all below it."""
    lines: list[str] = []
    in_dump = in_ours = False
    for line in text.splitlines(keepends=True):
        is_frame = line.startswith("  File ")
        if line.rstrip().endswith(_DUMP):
            in_dump, in_ours = True, False
        elif in_dump and not is_frame and line != "  ...\n":
            in_dump = in_ours = False
        in_ours = in_ours or (in_dump and is_frame and _OURS.match(line) is not None)
        if not in_ours:
            lines.append(line)
    return "".join(lines)
