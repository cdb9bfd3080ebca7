"""Cut a byte stream into lines: the framing of MCP over stdio (MCP specification, "stdio transport").

It decides where a message ends and when a line is too long. It never decodes, reads or closes anything;
whoever reads the child's stdout feeds it chunk by chunk.
"""

from __future__ import annotations

from callboard.transports.errors import LineTooLong

DEFAULT_CAP_BYTES = 64 * 1024 * 1024


class LineFramer:
    """Collect chunks and give complete lines, in linear time whatever the chunks are.

    A line ends at the byte ``\\n`` and nowhere else: U+2028, U+0085 and ``\\r`` are legal inside a JSON
    string. One trailing ``\\r`` is dropped, blank lines are skipped. A line above ``cap_bytes`` raises
    LineTooLong once; after that the framer is broken and everything fed is thrown away.
    """

    def __init__(self, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        if cap_bytes < 1:
            raise ValueError(f"cap_bytes must be at least 1, not {cap_bytes}")
        self._cap_bytes = cap_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._broken = False

    @property
    def pending_bytes(self) -> int:
        """Say how many bytes of an unfinished line are held."""
        return len(self._buffer)

    @property
    def broken(self) -> bool:
        """True after an overflow."""
        return self._broken

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and give the lines they complete, without their ends.

        Raises LineTooLong, which carries the lines completed before the long one.
        """
        if self._broken:
            return []
        self._buffer += data
        lines: list[bytes] = []
        start = 0
        while (end := self._buffer.find(b"\n", max(start, self._searched))) >= 0:
            if end - start > self._cap_bytes:
                raise self._overflow(lines)
            _keep(lines, self._cut(start, end))
            start = end + 1
        del self._buffer[:start]
        self._searched = len(self._buffer)
        if self._searched > self._cap_bytes:
            raise self._overflow(lines)
        return lines

    def finish(self) -> bytes | None:
        """Take the end of the stream: give the last line if it has no end of line, None if there is none."""
        lines: list[bytes] = []
        _keep(lines, self._cut(0, len(self._buffer)))
        self._buffer.clear()
        self._searched = 0
        return lines[0] if lines else None

    def _cut(self, start: int, end: int) -> bytes:
        with memoryview(self._buffer) as view:
            return bytes(view[start:end])

    def _overflow(self, lines: list[bytes]) -> LineTooLong:
        self._broken = True
        self._buffer.clear()
        self._searched = 0
        return LineTooLong(self._cap_bytes, tuple(lines))


def _keep(lines: list[bytes], line: bytes) -> None:
    line = line.removesuffix(b"\r")
    if line and not line.isspace():
        lines.append(line)
