"""The journal of a system that has stopped, opened to look: what is really on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from callboard.storage.journal import Journal, open_journal
from callboard.storage.journal_terms import url_of_folder


@contextmanager
def read_log(state_dir: Path) -> Iterator[Journal]:
    """Open the journal in a state folder, for reading alone."""
    journal = open_journal(url_of_folder(state_dir), read_only=True)
    try:
        yield journal
    finally:
        journal.close()
