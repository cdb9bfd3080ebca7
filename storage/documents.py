"""The document index: full-text search over a folder of text and Markdown files, in one SQLite file (FTS5).

It decides what must be indexed again and how passages rank; what a document is, the folder decides. Opened
per call by the document tools, in their worker. Several processes may refresh one index at the same time:
each batch is one immediate transaction, and whoever comes second finds the work done.
"""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from callboard.storage.errors import DocumentsError
from callboard.storage.folder import MARKDOWN_SUFFIXES, Document, DocumentFolder
from callboard.storage.passages import split_passages

LOCK_WAIT_S = 30.0
MAX_RESULTS = 50
_VERSION = 1
_BATCH = 64
_QUERY_WORDS = 32
_RECENT_NS = 1_000_000_000
_SNIPPET_WORDS = 48

_SCHEMA = (
    "DROP TABLE IF EXISTS folder",
    "DROP TABLE IF EXISTS files",
    "DROP TABLE IF EXISTS passages",
    "DROP TABLE IF EXISTS passage_text",
    "CREATE TABLE folder (path TEXT NOT NULL)",
    "CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, mtime_ns INTEGER NOT NULL,"
    " size INTEGER NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE passages (id INTEGER PRIMARY KEY, file INTEGER NOT NULL, line INTEGER NOT NULL,"
    " line_end INTEGER NOT NULL)",
    "CREATE INDEX passages_by_file ON passages (file)",
    "CREATE VIRTUAL TABLE passage_text USING fts5 (heading, body,"
    " tokenize = 'porter unicode61 remove_diacritics 2')",
    f"PRAGMA user_version = {_VERSION}",
)
_SEARCH = f"""
    SELECT files.path, passages.line, passages.line_end, heading, body,
           snippet(passage_text, 1, '', '', ' … ', {_SNIPPET_WORDS}), -bm25(passage_text, 2.0, 1.0) AS score
    FROM passage_text JOIN passages ON passages.id = passage_text.rowid JOIN files ON files.id = passages.file
    WHERE passage_text MATCH ? ORDER BY score DESC, files.path, passages.line LIMIT ?
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One found passage: lines count from 1, both ends included; a higher ``score`` is a better match."""

    document: str
    line: int
    line_end: int
    heading: str
    text: str
    snippet: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed:
    """What a refresh found: all documents, those indexed anew or removed, and why some were passed over."""

    documents: int
    indexed: int = 0
    removed: int = 0
    skipped: tuple[str, ...] = ()


class DocumentIndex:
    """The index of one folder; a context manager. ``index`` None keeps it in memory, for small folders.

    Raises DocumentsError on opening when the folder is missing or the index file cannot be written or read.
    """

    def __init__(self, folder: str | Path, index: str | Path | None = None) -> None:
        self.folder = DocumentFolder(folder)
        self._path = None if index is None else Path(index).expanduser()
        with self._mapped():
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(self._path or ":memory:", timeout=LOCK_WAIT_S, isolation_level=None)
        try:
            with self._mapped():
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the index file."""
        self._db.close()

    def refresh(self) -> Refreshed:
        """Bring the index up to date: only files whose time or size changed are read again."""
        with self._mapped():
            found = self.folder.files()
            known = self._known()
            gone = [path for path in known if path not in found]
            changed = [path for path, state in found.items() if known.get(path) != state]
            skipped: list[str] = []
            if gone:
                with self._transaction():
                    for path in gone:
                        self._forget(path)
            for start in range(0, len(changed), _BATCH):
                skipped += self._index_batch(changed[start : start + _BATCH])
        return Refreshed(
            documents=len(found),
            indexed=len(changed) - len(skipped),
            removed=len(gone),
            skipped=tuple(skipped),
        )

    def search(self, query: str, limit: int = 5) -> tuple[Passage, ...]:
        """Give the passages that share most words with ``query``, best first (bm25); any text is a query."""
        words = re.findall(r"\w+", query)[:_QUERY_WORDS]
        if not words:
            return ()
        match = " OR ".join(f'"{word}"' for word in words)  # quoted: no word is an operator of FTS5
        with self._mapped():
            rows = self._db.execute(_SEARCH, (match, max(1, min(limit, MAX_RESULTS)))).fetchall()
        return tuple(
            Passage(
                document=path,
                line=line,
                line_end=line_end,
                heading=heading,
                text=body,
                snippet=snippet,
                score=float(f"{score:.4g}"),
            )
            for path, line, line_end, heading, body, snippet, score in rows
        )

    def _prepare(self) -> None:
        if self._is_ours():
            return
        with self._transaction():
            if not self._is_ours():  # another process may have been first
                for statement in _SCHEMA:
                    self._db.execute(statement)
                self._db.execute("INSERT INTO folder VALUES (?)", (str(self.folder.root),))

    def _is_ours(self) -> bool:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            return False
        row = self._db.execute("SELECT path FROM folder").fetchone()
        return row is not None and row[0] == str(self.folder.root)

    def _known(self) -> dict[str, tuple[int, int]]:
        rows = self._db.execute("SELECT path, mtime_ns, size FROM files")
        return {path: (mtime_ns, size) for path, mtime_ns, size in rows}

    def _index_batch(self, paths: Sequence[str]) -> list[str]:
        documents: list[tuple[str, Document]] = []
        skipped: dict[str, str] = {}
        for path in paths:
            try:
                documents.append((path, self.folder.read(path)))
            except DocumentsError as error:
                skipped[path] = str(error)
        with self._transaction():
            for path, document in documents:
                self._store(path, document)
            for path in skipped:
                self._forget(path)  # what can no longer be read is no longer found
        return list(skipped.values())

    def _store(self, path: str, document: Document) -> None:
        digest = hashlib.sha256(document.data).hexdigest()
        # A file changed a moment ago may change again within the clock's grain: 0 makes us look again.
        is_recent = time.time_ns() - document.mtime_ns < _RECENT_NS
        state = (0 if is_recent else document.mtime_ns, document.size)
        row = self._db.execute(
            "SELECT id FROM files WHERE path = ? AND digest = ?", (path, digest)
        ).fetchone()
        if row is not None:
            self._db.execute("UPDATE files SET mtime_ns = ?, size = ? WHERE id = ?", (*state, row[0]))
            return
        self._forget(path)
        added = self._db.execute(
            "INSERT INTO files (path, mtime_ns, size, digest) VALUES (?, ?, ?, ?)", (path, *state, digest)
        )
        if b"\0" not in document.data:
            self._store_passages(added.lastrowid, path, document)

    def _store_passages(self, file: int | None, path: str, document: Document) -> None:
        markdown = Path(path).suffix.lower() in MARKDOWN_SUFFIXES
        for piece in split_passages(document.text, markdown=markdown):
            added = self._db.execute(
                "INSERT INTO passages (file, line, line_end) VALUES (?, ?, ?)",
                (file, piece.line, piece.line_end),
            )
            self._db.execute(
                "INSERT INTO passage_text (rowid, heading, body) VALUES (?, ?, ?)",
                (added.lastrowid, piece.heading, piece.body),
            )

    def _forget(self, path: str) -> None:
        row = self._db.execute("SELECT id FROM files WHERE path = ?", (path,)).fetchone()
        if row is not None:
            own = "SELECT id FROM passages WHERE file = ?"
            self._db.execute(f"DELETE FROM passage_text WHERE rowid IN ({own})", row)
            self._db.execute("DELETE FROM passages WHERE file = ?", row)
            self._db.execute("DELETE FROM files WHERE id = ?", row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """The one seam where SQLite's and the system's errors become ours."""
        try:
            yield
        except OSError as error:
            raise DocumentsError(self._complaint(error.strerror or str(error))) from error
        except sqlite3.Error as error:
            raise DocumentsError(self._complaint(str(error))) from error

    def _complaint(self, problem: str) -> str:
        return (
            f"the document index {str(self._path or 'in memory')!r} cannot be used: {problem}. "
            "Set 'index' to a file in a folder that can be written; a damaged index may be deleted"
        )
