"""The history of a campaign: one JSON line per fact, on one clock; a fault is written before it is done."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fact: ``at`` in monotonic seconds since the campaign began, its ``kind``, and what belongs to it."""

    at: float
    kind: str
    facts: dict[str, Any] = field(default_factory=dict)


class History:
    """Append-only; safe for several threads. Lines are on disk before ``write`` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8")

    def now(self) -> float:
        """Give the campaign's clock."""
        return time.monotonic() - self._began

    def write(self, kind: str, **facts: Any) -> Entry:
        """Write one fact down."""
        with self._lock:
            entry = Entry(at=round(self.now(), 4), kind=kind, facts=facts)
            self._file.write(json.dumps({"at": entry.at, "kind": kind, **facts}) + "\n")
            self._file.flush()
            return entry

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_history(path: Path) -> list[Entry]:
    """Read a history back, in the order in which it was written."""
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        facts = json.loads(line)
        entries.append(Entry(at=facts.pop("at"), kind=facts.pop("kind"), facts=facts))
    return entries
