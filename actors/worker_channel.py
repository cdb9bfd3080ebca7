"""What a call's process says, taken line by line: that it is up and loaded, its progress, and its one result.

Lines come in pieces of any size, from a process that may send anything. Pure; used by ``actors/worker_process.py``.
"""

from __future__ import annotations

import json
from typing import Any

from callboard.tools.content import ContentError, Progress, ToolResult, error_result, result_from_json
from callboard.tools.execute import PROGRESS_CHARS


class ChannelLines:
    """The lines of one process of the tool ``name``; what it says after its result is not heard."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pieces: list[bytes] = []
        self.pending_bytes = 0
        self.told = 0
        self.is_up = self.is_loaded = False
        self.resident_bytes = 0
        self.result: ToolResult | None = None

    def take(self, piece: bytes) -> list[Progress]:
        """Take the next piece; gives the progress in it."""
        first, *rest = piece.split(b"\n")
        self._pieces.append(first)
        self.pending_bytes += len(first)
        if not rest:
            return []
        lines = [b"".join(self._pieces), *rest[:-1]]
        self._pieces, self.pending_bytes = [rest[-1]], len(rest[-1])
        return [progress for line in lines if self.result is None for progress in self._take(line)]

    def _take(self, line: bytes) -> list[Progress]:
        try:
            match _parsed(line):
                case {"up": int(resident)} if not self.is_up:
                    self.is_up = True
                    self.resident_bytes = resident
                case {"loaded": int(resident)} if not self.is_loaded:
                    self.is_loaded = True
                    self.resident_bytes = resident
                case {"progress": [str(text), float() | int() | None as fraction]}:
                    self.told += 1
                    return [Progress(text[:PROGRESS_CHARS], fraction)]
                case {"result": {} as form}:
                    self.result = result_from_json(form)
                case _:
                    raise ContentError("a line of no known form")
        except (ValueError, KeyError, TypeError, RecursionError) as fault:
            self.result = error_result(f"{self._name} gave a result that cannot be read: {fault}")
        return []


def _parsed(line: bytes) -> Any:
    return json.loads(line.decode("utf-8"))
