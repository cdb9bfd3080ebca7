"""What a check of a value by a schema can come to, as values and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]


class BrokenSchema(Exception):
    """The schema itself is at fault; the message says in what."""


class TooMuchWork(Exception):
    """The check would take longer than any honest schema and value do."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and the place in the value where it is."""

    path: Path
    message: str
