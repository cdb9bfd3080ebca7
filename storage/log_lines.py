"""The line format of a conversation's log: JSON lines that carry their own checksum.

Pure. A line is ``{"crc":"xxxxxxxx","body":…}``, the checksum being the CRC-32 of the body's bytes. A body
either issues an epoch (``epoch``, ``conversation``, ``team``) or holds one append whole (``epoch``,
``records``), so an append is there or it is not. A log counts up to its first line that is torn, damaged or
out of order; nothing behind that line is believed. Called by ``storage/journal.py``.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Record: TypeAlias = dict[str, Any]

_HEAD = b'{"crc":"'
_MIDDLE = b'","body":'
_BODY_AT = len(_HEAD) + 8 + len(_MIDDLE)


@dataclass(slots=True)
class ParsedLog:
    """The good part of a log: its ``size`` in bytes, the last epoch issued (0: none), and all records."""

    size: int = 0
    epoch: int = 0
    conversation: str = ""
    team: str = ""
    records: list[Record] = field(default_factory=list)


def encode_line(body: dict[str, Any]) -> bytes:
    """Give the whole line; raises TypeError, ValueError or RecursionError for what has no JSON form."""
    text = _encode(body)
    return _HEAD + _checksum(text) + _MIDDLE + text + b"}\n"


def parse_log(data: bytes) -> ParsedLog:
    """Read the log up to its first bad line."""
    log = ParsedLog()
    while (end := data.find(b"\n", log.size)) >= 0:
        body = _decode_line(data[log.size : end])
        if body is None or not _take(log, body):
            break
        log.size = end + 1
    return log


def record_digest(record: Record) -> bytes:
    """Give a short digest of a record's JSON form, the order of its keys aside."""
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode("ascii"), digest_size=8).digest()


def _encode(value: Any) -> bytes:
    # ASCII only: text from a model may hold lone surrogates, which have no UTF-8 form.
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)


def _decode_line(line: bytes) -> dict[str, Any] | None:
    text = line[_BODY_AT:-1]
    if line[:_BODY_AT] != _HEAD + _checksum(text) + _MIDDLE or line[-1:] != b"}":
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _take(log: ParsedLog, body: dict[str, Any]) -> bool:
    """Add a body to the log; False when it does not follow from what is there."""
    records = body.get("records")
    if records is None:
        if body["epoch"] <= log.epoch:
            return False
        log.epoch, log.conversation, log.team = body["epoch"], body["conversation"], body["team"]
        return True
    first = len(log.records) + 1
    if body["epoch"] != log.epoch or [r["seq"] for r in records] != list(range(first, first + len(records))):
        return False
    log.records.extend(records)
    return True
