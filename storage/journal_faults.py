"""Foreign errors of the journal's storage, mapped to its own: the one seam for SQLite, PostgreSQL and the system.

It decides which kind an error is, and what a person is told to do about it. Called by ``storage/journal_store.py``.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError

from callboard.storage.journal_terms import (
    INVALID,
    STORAGE_CORRUPT,
    STORAGE_FULL,
    STORAGE_IO,
    STORAGE_LOCKED,
    STORAGE_READ_ONLY,
    JournalError,
)

_SQLITE_KINDS = {
    sqlite3.SQLITE_FULL: STORAGE_FULL,
    sqlite3.SQLITE_READONLY: STORAGE_READ_ONLY,
    sqlite3.SQLITE_PERM: STORAGE_READ_ONLY,
    sqlite3.SQLITE_BUSY: STORAGE_LOCKED,
    sqlite3.SQLITE_LOCKED: STORAGE_LOCKED,
    sqlite3.SQLITE_CORRUPT: STORAGE_CORRUPT,
    sqlite3.SQLITE_NOTADB: STORAGE_CORRUPT,
    # The one process that writes knows what it may write: where the tables disagree, they are damaged.
    sqlite3.SQLITE_CONSTRAINT: STORAGE_CORRUPT,
    sqlite3.SQLITE_ERROR: STORAGE_CORRUPT,
    sqlite3.SQLITE_TOOBIG: INVALID,
}
_NO_SUCH = re.compile("no such|malformed|no column named")
_POSTGRES_KINDS = {
    "53100": STORAGE_FULL,
    "25006": STORAGE_READ_ONLY,
    "55P03": STORAGE_LOCKED,
    "57014": STORAGE_LOCKED,
    "40P01": STORAGE_LOCKED,
    "40001": STORAGE_LOCKED,
    "XX001": STORAGE_CORRUPT,
    "XX002": STORAGE_CORRUPT,
}
_SYSTEM_KINDS = {
    errno.ENOSPC: STORAGE_FULL,
    errno.EDQUOT: STORAGE_FULL,
    errno.EROFS: STORAGE_READ_ONLY,
    errno.EACCES: STORAGE_READ_ONLY,
    errno.EPERM: STORAGE_READ_ONLY,
}
_ADVICE = {
    STORAGE_FULL: "make room on the disk",
    STORAGE_READ_ONLY: "make the folder and the files in it writable for this user",
    STORAGE_LOCKED: "end what holds the database, or wait for it",
    STORAGE_CORRUPT: "run 'callboard journal check', and restore a backup",
    STORAGE_IO: "look at the disk, or the database server, and its log",
}


def journal_error(place: str, fault: Exception, folder: Path | None = None) -> JournalError:
    """Give the journal's error for a foreign one; ``folder`` is where the database's files lie, if here.

    Raises the fault itself when it is none of the storage's: that is a bug.
    """
    kind = _kind_of(fault, folder)
    if kind is None:
        raise fault
    reason = str(getattr(fault, "orig", None) or fault).strip() or type(fault).__name__
    advice = _ADVICE.get(kind)
    return JournalError(kind, f"the journal {place}: {reason}" + (f"; {advice}" if advice else ""))


def _kind_of(fault: Exception, folder: Path | None) -> str | None:
    match fault:
        case DBAPIError(orig=sqlite3.Error() as orig):
            return _sqlite_kind(orig, folder)
        case DataError():
            return INVALID
        case DBAPIError(orig=orig):
            return _POSTGRES_KINDS.get(str(getattr(orig, "sqlstate", "")), STORAGE_IO)
        case sqlite3.Error():
            return _sqlite_kind(fault, folder)
        case UnicodeDecodeError():
            return STORAGE_CORRUPT  # SQLite's own message quotes what is damaged
        case SQLAlchemyError():
            return None
        case OSError():
            return _SYSTEM_KINDS.get(fault.errno or 0, STORAGE_IO)
    return None


def _sqlite_kind(fault: sqlite3.Error, folder: Path | None) -> str | None:
    code = getattr(fault, "sqlite_errorcode", None)
    if code is None:
        return None
    primary = code & 0xFF
    if primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return _of_the_folder(folder) or STORAGE_IO
    if primary == sqlite3.SQLITE_ERROR and not _NO_SUCH.search(str(fault)):
        return None
    return _SQLITE_KINDS.get(primary, STORAGE_IO)


def _of_the_folder(folder: Path | None) -> str | None:
    """SQLite says "I/O error" or "unable to open" where the disk is full, or the folder may not be written."""
    if folder is None:
        return None
    try:
        room = os.statvfs(folder)
    except OSError as fault:
        return _SYSTEM_KINDS.get(fault.errno or 0)
    if room.f_bavail == 0 or (room.f_files and room.f_favail == 0):
        return STORAGE_FULL
    return None if os.access(folder, os.W_OK) else STORAGE_READ_ONLY
