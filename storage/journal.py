"""The journal on files: one append-only log per conversation, each line checked, each append synced to disk.

It decides what counts as written: epochs fence off former owners, sequence numbers forbid gaps and make a
repeated append harmless, a damaged tail is cut off and kept aside. It never looks into a record but for
``seq`` and ``type``, and knows no actors. Called by the journal actor, the only one with a journal open: a
second process is refused.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from callboard.storage.log_lines import Record, encode_line, parse_log, record_digest

_MAX_OPEN_FILES = 256
_MAX_APPEND_BYTES = 64 * 1024 * 1024
_MAX_NAME = 150


class JournalError(Exception):
    """An operation on the journal was refused or failed.

    ``kind`` is ``conflict`` (a gap, or other content under a number already written), ``stale_epoch`` (the
    conversation has a newer owner), ``unknown`` (no such conversation), ``wrong_team``, ``invalid`` (records
    that cannot be written) or ``storage`` (disk or files; the log is as before, and a retry may work).
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A conversation's log as found: the caller's new epoch, all records, and the damaged bytes cut off.

    ``damaged``: whole lines were lost, which had been acknowledged. A torn last line was not, and is no damage.
    """

    epoch: int
    records: tuple[Record, ...]
    dropped: int
    damaged: bool = False


@dataclass(slots=True)
class _Log:
    """What is known of one log on disk.

    ``size`` is the offset behind its last good line, ``dropped`` the bytes cut off and not yet reported.
    """

    fd: int
    size: int
    epoch: int
    team: str
    open_turns: int
    digests: list[bytes]
    dropped: int


class FileJournal:
    """All conversations' logs under one folder, which is made (mode 0700) if it is missing.

    ``opening_types`` and ``closing_types`` are the record types that leave a conversation unfinished and
    finish it again. Raises JournalError from every method. Not thread-safe.
    """

    def __init__(self, root: Path, *, opening_types: Collection[str], closing_types: Collection[str]) -> None:
        self._root = root
        self._opening = frozenset(opening_types)
        self._closing = frozenset(closing_types)
        self._logs: OrderedDict[str, _Log] = OrderedDict()
        with _storage_faults(f"the journal folder {root} cannot be used"):
            for folder in (root, self._logs_dir, self._marks_dir):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_folder(root)
            self._lock_fd = _lock(root / "lock")

    @property
    def _logs_dir(self) -> Path:
        return self._root / "logs"

    @property
    def _marks_dir(self) -> Path:
        return self._root / "unfinished"

    def open(self, conversation: str, team: str) -> Opened:
        """Issue the next epoch, durably, to a new owner and give the whole log, new if there is none.

        A damaged tail is moved to a ``.quarantine`` file beside the log; ``dropped`` tells its bytes. The
        ``team`` is kept with a new log; for an old one it must be the same, or "" to ask for no check.
        """
        with _storage_faults(f"the log of conversation {conversation!r} cannot be opened"):
            known = self._logs.get(conversation)
            dropped_before = known.dropped if known is not None else 0
            log, records, lost_lines = self._load(conversation)
            dropped = dropped_before + log.dropped
            if log.epoch and team and team != log.team:
                raise JournalError("wrong_team", f"conversation {conversation!r} belongs to another team")
            # A lost line may have issued an epoch, and no epoch is ever issued twice.
            epoch = log.epoch + lost_lines + 1
            team = log.team or team
            self._write(conversation, log, {"epoch": epoch, "conversation": conversation, "team": team})
            log.epoch, log.team, log.dropped = epoch, team, 0
            self._mark(conversation, log)
        emptied = not records and self._path(conversation).with_suffix(".quarantine").exists()
        damaged = lost_lines > 1 or emptied
        return Opened(epoch=epoch, records=tuple(records), dropped=dropped, damaged=damaged)

    def append(self, conversation: str, epoch: int, records: Sequence[Record]) -> int:
        """Write the records, all or none, and return the log's last ``seq``; they are on disk then.

        Each has the number ``seq`` that follows the one before. Records that are there already, with the same
        content, are passed over: an append may be repeated.
        """
        with _storage_faults(f"the log of conversation {conversation!r} cannot be written"):
            log = self._log(conversation)
            if epoch != log.epoch or epoch < 1:
                message = f"conversation {conversation!r} is at epoch {log.epoch}, not {epoch}: open it again"
                raise JournalError("stale_epoch", message)
            fresh = _fresh_records(conversation, log, records)
            if fresh:
                self._append_fresh(conversation, log, fresh)
            return len(log.digests)

    def read(self, conversation: str) -> tuple[Record, ...]:
        """Give all good records, without taking the conversation over; ``unknown`` if there is no log."""
        self._require(conversation)
        with _storage_faults(f"the log of conversation {conversation!r} cannot be read"):
            return tuple(parse_log(self._path(conversation).read_bytes()).records)

    def exists(self, conversation: str) -> bool:
        """True when the conversation has a log."""
        path = self._path(conversation)
        return path.is_file() and path.stat().st_size > 0

    def unfinished(self) -> list[str]:
        """List the conversations whose log has an opening record without its closing one; sorted."""
        with _storage_faults(f"the marks in {self._marks_dir} cannot be read"):
            return sorted(self._confirmed_marks())

    def close(self) -> None:
        """Close all files and let another process have the folder; the journal cannot be used after this."""
        for conversation in list(self._logs):
            self._forget(conversation)
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    # logs in memory

    def _log(self, conversation: str) -> _Log:
        log = self._logs.get(conversation)
        if log is None:
            self._require(conversation)
            log = self._load(conversation)[0]
        self._logs.move_to_end(conversation)
        return log

    def _load(self, conversation: str) -> tuple[_Log, list[Record], int]:
        """Read the log and cut off a damaged tail; give it, its records and the number of lines lost."""
        self._forget(conversation)
        path = self._path(conversation)
        is_new = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if is_new:
                _sync_folder(path.parent)
            data = path.read_bytes()
            found = parse_log(data)
            tail = data[found.size :]
            if tail:
                _quarantine(path.with_suffix(".quarantine"), tail)
                os.ftruncate(fd, found.size)
                os.fsync(fd)
        except BaseException:
            os.close(fd)
            raise
        log = _Log(
            fd=fd,
            size=found.size,
            epoch=found.epoch,
            team=found.team,
            open_turns=self._balance(found.records),
            digests=[record_digest(record) for record in found.records],
            dropped=len(tail),
        )
        self._keep(conversation, log)
        return log, found.records, tail.count(b"\n") + 1 if tail else 0

    def _keep(self, conversation: str, log: _Log) -> None:
        self._logs[conversation] = log
        while len(self._logs) > _MAX_OPEN_FILES:
            self._forget(next(iter(self._logs)))

    def _forget(self, conversation: str) -> None:
        log = self._logs.pop(conversation, None)
        if log is not None:
            os.close(log.fd)

    # writing

    def _append_fresh(self, conversation: str, log: _Log, fresh: Sequence[Record]) -> None:
        open_turns = log.open_turns + self._balance(fresh)
        if open_turns > 0 and log.open_turns <= 0:
            self._set_mark(
                conversation
            )  # before the record: a mark too many is found out, one too few is not
        self._write(conversation, log, {"epoch": log.epoch, "records": list(fresh)})
        log.digests.extend(record_digest(record) for record in fresh)
        log.open_turns = open_turns
        self._mark(conversation, log)

    def _write(self, conversation: str, log: _Log, body: dict[str, Any]) -> None:
        try:
            line = encode_line(body)
        except (TypeError, ValueError, RecursionError) as fault:
            raise JournalError("invalid", f"records of {conversation!r} are not JSON: {fault}") from fault
        if len(line) > _MAX_APPEND_BYTES:
            message = f"records of {conversation!r}: {len(line)} bytes, over the limit of {_MAX_APPEND_BYTES}"
            raise JournalError("invalid", message)
        try:
            _write_all(log.fd, line)
            os.fdatasync(log.fd)
        except OSError:
            self._take_back(conversation, log)
            raise
        log.size += len(line)

    def _take_back(self, conversation: str, log: _Log) -> None:
        """Undo a failed write; where even that fails, the log is read anew at its next use."""
        try:
            os.ftruncate(log.fd, log.size)
            os.fdatasync(log.fd)
        except OSError:
            self._forget(conversation)

    def _balance(self, records: Sequence[Record]) -> int:
        types = [record.get("type") for record in records]
        return sum((t in self._opening) - (t in self._closing) for t in types)

    # marks

    def _mark(self, conversation: str, log: _Log) -> None:
        if log.open_turns > 0:
            self._set_mark(conversation)
        else:
            self._mark_path(conversation).unlink(missing_ok=True)

    def _set_mark(self, conversation: str) -> None:
        path = self._mark_path(conversation)
        if path.exists():
            return
        path.touch(mode=0o600)
        _sync_folder(self._marks_dir)

    def _confirmed_marks(self) -> Iterator[str]:
        for mark in self._marks_dir.iterdir():
            log_path = self._logs_dir / f"{mark.name}.jsonl"
            found = parse_log(log_path.read_bytes()) if log_path.is_file() else None
            if found is not None and self._balance(found.records) > 0:
                yield found.conversation
            else:
                mark.unlink(missing_ok=True)

    # names

    def _require(self, conversation: str) -> None:
        if not self.exists(conversation):
            raise JournalError("unknown", f"there is no conversation {conversation!r}")

    def _path(self, conversation: str) -> Path:
        return self._logs_dir / f"{_safe_name(conversation)}.jsonl"

    def _mark_path(self, conversation: str) -> Path:
        return self._marks_dir / _safe_name(conversation)


def _fresh_records(conversation: str, log: _Log, records: Sequence[Record]) -> Sequence[Record]:
    """Give the records that are not in the log yet, or raise ``conflict``."""
    written = len(log.digests)
    for position, record in enumerate(records):
        seq = record.get("seq")
        first = records[0].get("seq")
        if not isinstance(seq, int) or not isinstance(first, int) or first < 1 or seq != first + position:
            raise JournalError(
                "conflict", f"{conversation!r}: seq {seq!r} at place {position} is out of order"
            )
        if seq > written + 1 and position == 0:
            message = f"{conversation!r}: seq {seq} leaves a gap, the log ends at {written}"
            raise JournalError("conflict", message)
        if seq <= written and _digest_of(conversation, record) != log.digests[seq - 1]:
            raise JournalError("conflict", f"{conversation!r}: seq {seq} is written with other content")
    known = written + 1 - records[0]["seq"] if records else 0
    return records[max(0, known) :]


def _digest_of(conversation: str, record: Record) -> bytes:
    try:
        return record_digest(record)
    except (TypeError, ValueError, RecursionError) as fault:
        raise JournalError("invalid", f"records of {conversation!r} are not JSON: {fault}") from fault


def _safe_name(conversation: str) -> str:
    """Make a file name of any id: itself where it is plain, else percent-encoded, with a hash if long."""
    try:
        name = quote(conversation, safe="").replace(".", "%2E")
    except UnicodeEncodeError as fault:
        raise JournalError("invalid", f"conversation id {conversation!r} is not valid Unicode") from fault
    if not name:
        raise JournalError("invalid", "a conversation id must not be empty")
    if len(name) <= _MAX_NAME:
        return name
    # "+" never comes out of quote(): a shortened name cannot be another id's own.
    return f"{name[:80]}+{hashlib.sha256(conversation.encode()).hexdigest()}"


def _quarantine(path: Path, tail: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, tail)
        os.fsync(fd)
    finally:
        os.close(fd)
    _sync_folder(path.parent)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        os.close(fd)
        raise JournalError("storage", f"another process has the journal in {path.parent} open") from fault
    return fd


@contextmanager
def _storage_faults(what: str) -> Iterator[None]:
    """The one seam where the system's errors become ours."""
    try:
        yield
    except OSError as fault:
        raise JournalError("storage", f"{what}: {fault.strerror or fault}") from fault
