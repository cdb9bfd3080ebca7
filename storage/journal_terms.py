"""The words of the journal: what is given to it, what it answers, and its one error.

Values only, without a database in sight: whoever talks to the journal without opening it imports these alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from callboard.storage.errors import StorageError

Record: TypeAlias = Mapping[str, Any]
State: TypeAlias = Literal["open", "closed", "unfinished", "suspended"]

CONVERSATION = "conversation"
JOURNAL_FILE = "journal.sqlite3"

CONFLICT = "conflict"
STALE_EPOCH = "stale_epoch"
UNKNOWN = "unknown"
INVALID = "invalid"

STORAGE_FULL = "storage_full"
STORAGE_READ_ONLY = "storage_read_only"
STORAGE_LOCKED = "storage_locked"
STORAGE_CORRUPT = "storage_corrupt"
STORAGE_IO = "storage_io"
STORAGE_NEWER = "storage_newer"


def url_of_folder(folder: str | Path) -> str:
    """Give the URL of the SQLite journal in a state folder."""
    return f"sqlite:///{Path(folder).absolute() / JOURNAL_FILE}"


class JournalError(StorageError):
    """An operation on the journal was refused or failed; nothing of it was written.

    ``kind`` is ``conflict`` (a gap, or other content under a number already written), ``stale_epoch`` (the
    conversation has a newer owner), ``unknown`` (the team has no such conversation), ``invalid`` (what can never be
    written, or a bad URL), or a fault of the storage, which all begin with ``storage``: ``storage_full``,
    ``storage_read_only``, ``storage_locked`` (another process has it), ``storage_corrupt``, ``storage_io``,
    ``storage_newer`` (tables of a later version). After a
    fault the same operation may be tried again: it works once the fault has gone.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    @property
    def is_fault(self) -> bool:
        """True when the storage is at fault, not the operation."""
        return is_fault(self.kind)


class Incomplete(JournalError):
    """An export has come to its end, and lacks what was damaged; everything else is in it."""

    def __init__(self, message: str) -> None:
        super().__init__(STORAGE_CORRUPT, message)


def is_fault(kind: str) -> bool:
    """Say whether a kind of error is a fault of the storage, which may go away."""
    return kind.startswith("storage")


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Records for one log, by the owner with this epoch. Each has its number ``seq``, one after the other."""

    conversation: str
    team: str
    epoch: int
    records: Sequence[Record]
    kind: str = CONVERSATION


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A log as found by its new owner: the epoch to append with, and all records.

    ``damaged``: records that had been acknowledged cannot be read, or are gone; the log counts up to the last good
    one, and what could be kept of the rest stands in the quarantine.
    """

    epoch: int
    records: tuple[Record, ...]
    damaged: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One conversation in a list. Times are ISO 8601, UTC; ``cursor`` continues a list behind this one."""

    conversation: str
    team: str
    user: str
    template: str
    created_at: str
    updated_at: str
    events: int
    turns: int
    title: str
    state: State
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What a check found. ``conversation`` is empty when the whole store is meant."""

    problem: str
    conversation: str = ""
    team: str = ""
