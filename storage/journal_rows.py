"""A record as a row, and back: its JSON text, its checksum, and the large strings that are stored beside it.

Pure. A string of more than ``LARGE`` characters leaves the record and becomes an attachment, named by the SHA-256 of
its text; where it stood is written in the row (not in the record's own text, where whoever writes a record could
name another's attachment). The checksum covers everything that the row says. Called by ``storage/journal*.py``.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from callboard.storage.journal_terms import INVALID, JournalError, Record

LARGE = 16 * 1024
MAX_RECORD = 64 * 1024 * 1024

_Path: TypeAlias = tuple[str | int, ...]
# ASCII only: text from a model may hold lone surrogates and NUL, which neither UTF-8 nor PostgreSQL can store.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class DamagedRow(Exception):
    """What the row says is not what was written; the message says why."""


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """``body`` is the record's JSON, ``attached`` where its large strings belong, ``attachments`` these by digest."""

    body: str
    attached: str | None = None
    attachments: Mapping[str, bytes] = field(default_factory=dict)


def encode_record(record: Record) -> EncodedRecord:
    """Give the record's stored form; raises JournalError (``invalid``) for what has none, or is too large."""
    try:
        body = _encode(record)
        if len(body) <= LARGE:
            return EncodedRecord(body)
        if len(body) > MAX_RECORD:
            raise JournalError(INVALID, f"a record of {len(body)} bytes is over the limit of {MAX_RECORD}")
        found: list[tuple[_Path, str]] = []
        slim = _without_large(record, (), found)
        if not found:
            return EncodedRecord(body)
        body = _encode(slim)
    except (TypeError, ValueError, RecursionError) as fault:
        raise _not_json(fault) from fault
    contents = [(path, text.encode("utf-8", "surrogatepass")) for path, text in found]
    named = [(path, hashlib.sha256(content).hexdigest(), content) for path, content in contents]
    attached = _encode([[path, digest] for path, digest, _content in named])
    return EncodedRecord(body, attached, {digest: content for _path, digest, content in named})


def checksum(stream: int, seq: int, epoch: int, body: str, attached: str | None) -> int:
    """Give the CRC-32 over all that a row says, its place included."""
    place = zlib.crc32(b"%d.%d.%d." % (stream, seq, epoch))
    # A damaged text may hold what UTF-8 cannot say; its checksum must not fail for that.
    whole = zlib.crc32(body.encode("utf-8", "surrogatepass"), place)
    return zlib.crc32((attached or "").encode("utf-8", "surrogatepass"), whole)


def digests_of(attached: str | None) -> list[str]:
    """Give the digests of a row's attachments; raises DamagedRow."""
    return [digest for _path, digest in _places(attached)]


def decode_record(body: str, attached: str | None, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Put the record together again, with ``contents`` by digest; raises DamagedRow."""
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as fault:
        raise DamagedRow(f"its text is not JSON: {fault}") from fault
    if not isinstance(record, dict):
        raise DamagedRow("its text is not an object")
    for path, digest in _places(attached):
        content = contents.get(digest)
        if content is None or hashlib.sha256(content).hexdigest() != digest:
            raise DamagedRow(f"its attachment {digest[:12]} is {'missing' if content is None else 'damaged'}")
        _put(record, path, content.decode("utf-8", "surrogatepass"))
    return record


def same_record(old: Record, new: Record) -> bool:
    """Say whether two records are the same, the order of their keys aside; raises JournalError ``invalid``."""
    try:
        return old == new or _sorted(old) == _sorted(new)
    except (TypeError, ValueError, RecursionError) as fault:
        raise _not_json(fault) from fault


def _not_json(fault: Exception) -> JournalError:
    return JournalError(INVALID, f"a record is not JSON: {fault}")


def _sorted(record: Record) -> str:
    return json.dumps(record, sort_keys=True)


def _without_large(value: Any, path: _Path, found: list[tuple[_Path, str]]) -> Any:
    match value:
        case str() if len(value) > LARGE:
            found.append((path, value))
            return None
        case Mapping():
            return {name: _without_large(inner, (*path, str(name)), found) for name, inner in value.items()}
        case list() | tuple():
            return [_without_large(inner, (*path, place), found) for place, inner in enumerate(value)]
    return value


def _places(attached: str | None) -> list[tuple[_Path, str]]:
    if attached is None:
        return []
    try:
        return [(tuple(path), digest) for path, digest in json.loads(attached)]
    except (ValueError, TypeError) as fault:
        raise DamagedRow(f"the places of its attachments cannot be read: {fault}") from fault


def _put(record: Any, path: _Path, text: str) -> None:
    try:
        for step in path[:-1]:
            record = record[step]
        record[path[-1]] = text
    except (LookupError, TypeError) as fault:
        raise DamagedRow(f"an attachment has no place in it: {fault}") from fault
