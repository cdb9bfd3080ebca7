"""The witness to SQLite's write-ahead log: was the end of it, which had been committed, lost while nobody looked?

SQLite ends its recovery of the log at the first frame that is not whole, and says nothing: after a crash that is
right for the transaction that was under way. But a bit that flips in the middle, or a file cut short, takes with it
transactions that had been acknowledged. Two things bear witness: the shared index beside the log, which survives the
death of a process and tells how far the log was committed; and commit frames of the same generation behind the last
good frame (each was synced before the next began, so of two, one was acknowledged).

It only reads. Called before SQLite opens the files, and asked once it has. Formats: https://sqlite.org/walformat.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = 32
_FRAME_HEADER = 24
_INDEX_HEADER = 48
_BACKFILLED_AT = 96
_INDEX_VERSION = 3_007_000


@dataclass(frozen=True, slots=True)
class Witness:
    """``commits`` are the numbers (from 1) of the frames that end a transaction; ``promised`` the last one known."""

    commits: tuple[int, ...] = ()
    promised: int = 0

    def lost(self, recovered: int) -> str:
        """Say what is missing when SQLite found ``recovered`` good frames; "" when nothing that was acknowledged."""
        behind = [number for number in self.commits if number > recovered]
        if self.promised > recovered:
            return f"{self.promised} frames had been committed, and {recovered} of them are good"
        if len(behind) > 1:
            return f"{len(behind)} transactions lie behind a damaged frame, the {recovered + 1}th"
        return ""


def look(database: Path) -> Witness:
    """Read the log and the index beside the database, before anybody opens it; missing files say nothing."""
    index = _read(index_of(database))
    return _witness(index, _read(database.with_name(database.name + "-wal")))


def complaint(database: Path) -> str:
    """Say what is missing, without SQLite: for who looks at a database that a daemon may have open; "" if nothing."""
    index = _read(index_of(database))  # before the log: what is promised now is in the log then
    log = _read(database.with_name(database.name + "-wal"))
    return _witness(index, log).lost(_whole_frames(log))


def index_of(database: Path) -> Path:
    """Give the shared index's file."""
    return database.with_name(database.name + "-shm")


def _witness(index: bytes, log: bytes) -> Witness:
    salts, commits = _frames(log)
    return Witness(commits, _promised(index, salts))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _frames(log: bytes) -> tuple[bytes | None, tuple[int, ...]]:
    """Give the present generation's salts (None where there is no log) and its commit frames."""
    if len(log) < _HEADER + _FRAME_HEADER:
        return None, ()
    size = int.from_bytes(log[8:12], "big") + _FRAME_HEADER
    salts = log[16:24]
    if not _is_whole(log[:_HEADER]):
        salts = log[_HEADER + 8 : _HEADER + 16]  # the first frame still tells which generation it was
    if size <= _FRAME_HEADER:
        return salts, ()
    commits = []
    for number, start in enumerate(range(_HEADER, len(log) - _FRAME_HEADER + 1, size), start=1):
        pages_after_commit = log[start + 4 : start + 8]
        if pages_after_commit != b"\0\0\0\0" and log[start + 8 : start + 16] == salts:
            commits.append(number)
    return salts, tuple(commits)


def _is_whole(header: bytes) -> bool:
    return struct.pack(">2I", *_checksum(header[:24], header[3] & 1, (0, 0))) == header[24:32]


def _whole_frames(log: bytes) -> int:
    """Count the frames up to the first that is not whole, as SQLite does when it recovers."""
    header = log[:_HEADER]
    if len(header) < _HEADER or not _is_whole(header):
        return 0
    size = int.from_bytes(log[8:12], "big") + _FRAME_HEADER
    state = struct.unpack(">2I", header[24:32])
    count = 0
    for start in range(_HEADER, len(log) - size + 1, size):
        frame = log[start : start + size]
        state = _checksum(frame[:8] + frame[_FRAME_HEADER:], header[3] & 1, state)
        if frame[8:16] != header[16:24] or frame[16:24] != struct.pack(">2I", *state):
            break
        count += 1
    return count


def _checksum(data: bytes, is_big_endian: int, state: tuple[int, int]) -> tuple[int, int]:
    first, second = state
    words = struct.unpack(f"{'>' if is_big_endian else '<'}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second


def _promised(index: bytes, salts: bytes | None) -> int:
    """Give the last committed frame by the shared index, where it speaks of this log and not all is copied yet."""
    if len(index) < _BACKFILLED_AT + 4 or index[:_INDEX_HEADER] != index[_INDEX_HEADER : 2 * _INDEX_HEADER]:
        return 0
    version, _, _, is_ready, _, _, committed = struct.unpack_from("=IIIBBHI", index)
    (copied,) = struct.unpack_from("=I", index, _BACKFILLED_AT)
    if version != _INDEX_VERSION or not is_ready or copied >= committed:
        return 0
    return int(committed) if salts is None or index[32:40] == salts else 0
