"""The journal of a system that has stopped, opened to look: what is really on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callboard.storage.journal import Journal, open_journal

FILE_NAME = "journal.sqlite3"


@contextmanager
def read_log(state_dir: Path) -> Iterator[Journal]:
    """Open the journal in a state folder, for reading alone."""
    journal = open_journal(f"sqlite:///{state_dir / FILE_NAME}", read_only=True)
    try:
        yield journal
    finally:
        journal.close()
