"""The journal's connection: opened at first use, held by one process, opened again after a fault.

It decides how a database is used safely (SQLite: write-ahead log, every commit synced, one writing process by a
file lock; PostgreSQL: bounded waits), and that foreign errors leave as JournalError. It knows no tables but the
version's. One thread at a time; called by ``storage/journal.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from callboard.storage import journal_wal
from callboard.storage.journal_faults import journal_error
from callboard.storage.journal_sql import raw_sqlite
from callboard.storage.journal_terms import (
    INVALID,
    STORAGE_CORRUPT,
    STORAGE_IO,
    STORAGE_LOCKED,
    STORAGE_READ_ONLY,
    UNKNOWN,
    JournalError,
)
from callboard.storage.journal_version import is_current, prepare

LOCK_WAIT_S = 5.0
_CACHE_KIB = 16 * 1024
_LOG_BYTES = 64 * 1024 * 1024
_POSTGRES = {
    "connect_timeout": 5,
    "keepalives_idle": 30,
    "tcp_user_timeout": 10_000,
    "application_name": "callboard journal",
}
_POSTGRES_OPTIONS = (
    "-c synchronous_commit=on -c lock_timeout=5000 -c statement_timeout=60000"
    " -c idle_in_transaction_session_timeout=60000"
)


class JournalStore:
    """One database. ``findings`` are sentences on damage met at opening, for the log; whoever reads them clears them.

    ``cut`` says that acknowledged transactions were lost, until the journal has dealt with it; ``life`` counts the
    connections: what was remembered over an earlier one may not hold.

    Raises JournalError ``invalid`` for a URL that is none of a database we know.
    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self._url = _checked(url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.read_only = read_only
        self.path = Path(self._url.database or "") if self.is_sqlite else None
        self.findings: list[str] = []
        self.cut = False
        self.life = 0
        self._engine: Engine | None = None
        self._connection: Connection | None = None
        self._lock_fd = -1
        self._file: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """Where the journal is, for messages; without a password."""
        shown = self._url.set(password=None, query={})
        return str(self.path) if self.path else shown.render_as_string()

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[Connection]:
        """Give the connection in a transaction, committed at the end; raises JournalError, with nothing written.

        The connection is made anew where the last fault, or somebody who took the file away, broke it.
        """
        if write and self.read_only:
            raise JournalError(STORAGE_READ_ONLY, f"the journal {self.name} is opened for reading only")
        with self.mapped():
            connection = self._connected()
            with _transaction(connection, write):
                yield connection

    def sqlite(self) -> sqlite3.Connection:
        """Give SQLite's own connection, outside any transaction; for pragmas and the online backup."""
        with self.mapped():
            return raw_sqlite(self._connected())

    def wipe(self) -> None:
        """Write SQLite's log into its file and empty it, so that nothing of what was deleted stays in it."""
        if self.is_sqlite:
            with self.mapped():
                self.sqlite().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the connection and let another process have the database; it opens again at the next use."""
        self._disconnect()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # ------------------------------------------------------------ faults
    @contextmanager
    def mapped(self, folder: Path | None = None) -> Iterator[None]:
        """Turn foreign errors into JournalError; ``folder`` is where files are written, if not the database's."""
        try:
            yield
        except JournalError:
            raise
        except Exception as fault:
            beside = self.path.parent if self.path is not None else None
            error = journal_error(self.name, fault, folder or beside)
            broken = getattr(fault, "connection_invalidated", False)
            if broken or error.kind == STORAGE_CORRUPT or (error.is_fault and not self.is_sqlite):
                self._disconnect()
            raise error from fault

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        engine, self._engine = self._engine, None
        # What is broken may fail to close, too: it is dropped all the same.
        with contextlib.suppress(Exception):
            if connection is not None:
                connection.close()
        if engine is not None:
            engine.dispose()

    # ------------------------------------------------------------ connecting
    def _connected(self) -> Connection:
        if self._connection is not None and self._is_there():
            return self._connection
        self._disconnect()
        if self.path is not None:
            self._engine = self._sqlite_engine(self.path)
        else:
            self._engine = _postgres_engine(self._url)
        try:
            self._open(self._engine)
        except BaseException:
            self._disconnect()
            raise
        assert self._connection is not None
        return self._connection

    def _open(self, engine: Engine) -> None:
        self._connection = connection = engine.connect()
        with _transaction(connection, write=False):
            current = is_current(connection)
        if not current and self.read_only:
            raise JournalError(
                UNKNOWN, f"the journal {self.name} is of another version, or empty: open it once"
            )
        if not current:
            with _transaction(connection, write=True):
                prepare(connection)
        self.life += 1
        if self.path is not None:
            self._file = _identity(self.path)

    def _hear(self, witness: journal_wal.Witness, raw: sqlite3.Connection) -> None:
        _busy, recovered, _copied = raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        lost = witness.lost(recovered)
        if lost:
            self.cut = True
            self.findings.append(f"the write-ahead log of {self.name} was damaged: {lost}")

    def _is_there(self) -> bool:
        """False when the database's file was taken away or replaced: what is written then is written to nothing."""
        if self.path is None or self._file == _identity(self.path):
            return True
        self.findings.append(f"the journal's file {self.path} was removed or replaced while it was open")
        return False

    def _sqlite_engine(self, path: Path) -> Engine:
        if self.read_only:
            if not path.exists():
                raise JournalError(UNKNOWN, f"there is no journal {path}")
        else:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take_lock(path.with_name(path.name + ".lock"))
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        return create_engine(
            "sqlite://",
            creator=lambda: self._connect_sqlite(path),
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
        )

    def _connect_sqlite(self, path: Path) -> sqlite3.Connection:
        mode = "ro" if self.read_only else "rw"
        if self.read_only and journal_wal.index_of(path).exists():
            mode += (
                "&readonly_shm=1"  # the index bears witness of what was committed: who only looks leaves it
            )
        witness = journal_wal.look(path)
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        raw = sqlite3.connect(
            uri, uri=True, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            raw.text_factory = _text
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", f"cache_size = -{_CACHE_KIB}"):
                raw.execute(f"PRAGMA {pragma}")
            if not self.read_only:
                self._make_durable(raw)
                self._hear(witness, raw)
        except BaseException:
            raw.close()
            raise
        return raw

    def _make_durable(self, raw: sqlite3.Connection) -> None:
        (mode,) = raw.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            message = f"the journal {self.name}: its file system cannot hold a write-ahead log (mode {mode})"
            raise JournalError(STORAGE_IO, message)
        for pragma in (
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",
            f"journal_size_limit = {_LOG_BYTES}",
        ):
            raw.execute(f"PRAGMA {pragma}")

    def _take_lock(self, path: Path) -> None:
        """Be the one process that writes. The lock goes with the process; the file stays."""
        if self._lock_fd >= 0:
            return
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            os.close(fd)
            message = f"the journal {self.name} is open in another process: a daemon, or a command on it"
            raise JournalError(STORAGE_LOCKED, message) from fault
        except BaseException:
            os.close(fd)
            raise
        self._lock_fd = fd


@contextmanager
def _transaction(connection: Connection, write: bool) -> Iterator[None]:
    """SQLite's are begun and ended by hand: one that writes must have the lock from its first statement on."""
    if connection.dialect.name != "sqlite":
        with connection.begin():
            yield
        return
    raw = raw_sqlite(connection)
    raw.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        raw.execute("COMMIT")
    finally:
        if raw.in_transaction:
            raw.execute("ROLLBACK")
        if connection.in_transaction():  # what SQLAlchemy thinks of it; nothing of it is in the database
            connection.rollback()


def _checked(url: str) -> URL:
    if url.startswith(_SQLITE):
        if not url.removeprefix(_SQLITE):
            raise JournalError(INVALID, f"{url!r} names no file: {_HOW}")
        return URL.create("sqlite", database=url.removeprefix(_SQLITE))  # a path is a path, whatever is in it
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() != "postgresql":
            raise JournalError(INVALID, f"the journal cannot be kept at {_shown(url)}: {_HOW}")
        parsed = parsed.set(drivername="postgresql+psycopg")
        parsed.get_dialect().import_dbapi()
    except ArgumentError as fault:
        raise JournalError(INVALID, f"{_shown(url)} is no database's URL: {_HOW}") from fault
    except (ImportError, NoSuchModuleError) as fault:
        message = "PostgreSQL needs the driver psycopg: install callboard[postgres]"
        raise JournalError(INVALID, message) from fault
    return parsed


_SQLITE = "sqlite:///"
_HOW = "expected sqlite:////folder/journal.sqlite3 or postgresql+psycopg://user@host/database"


def _postgres_engine(url: URL) -> Engine:
    options = f"{_POSTGRES_OPTIONS} {url.query.get('options', '')}"
    return create_engine(url, poolclass=NullPool, connect_args={**_POSTGRES, "options": options})


def _shown(url: str) -> str:
    """A URL may hold a password, also one that cannot be read."""
    scheme, separator, rest = url.partition("://")
    return repr(scheme + separator + rest.rpartition("@")[2])


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _text(data: bytes) -> str:
    """What is no UTF-8 any more must still be read: its checksum finds it out."""
    return data.decode("utf-8", "replace")
