"""What a tool printed: its head and its tail, and how much lay between. Pure."""

from __future__ import annotations

from collections import deque

HEAD_BYTES = 32 * 1024
TAIL_BYTES = 31 * 1024


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
        return f"{self._head.decode('utf-8', 'replace')}{note}{tail.decode('utf-8', 'replace')}"
