"""The form of a datagram of the actor mail, and nothing else: no socket, no pickle. Pure.

A header (magic, kind, length of the sender's address, count, checksum of the rest), the sender's address, and then
either ``count`` bodies with their lengths in front (one, or a backlog in one go), or the size of one body that comes
as a sealed memory file beside the datagram. The checksum finds damage; who sent it is the kernel's to say.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from callboard.transports.mail_errors import Malformed

MAX_DATAGRAM = 96 * 1024
MAX_INLINE = 64 * 1024
MAX_MESSAGE = 256 * 1024 * 1024
MAX_SENDER = 4096
LENGTH_BYTES = 4

_HEADER = struct.Struct("<4sBxHII")
_SIZE = struct.Struct("<Q")
_MAGIC = b"CBm1"
_INLINE = 1
_MEMORY = 2


@dataclass(frozen=True, slots=True)
class Datagram:
    """What a datagram holds: the sender's address, and bodies or the size of the one in the memory file."""

    sender: str
    bodies: tuple[memoryview, ...]
    memory_size: int | None = None


def encode(sender: bytes, bodies: Sequence[bytes]) -> bytes:
    """Make the datagram of these bodies, in this order."""
    lengths = struct.pack(f"<{len(bodies)}I", *map(len, bodies))
    return _seal(_INLINE, sender, len(bodies), b"".join((sender, lengths, *bodies)))


def encode_memory(sender: bytes, size: int) -> bytes:
    """Make the datagram that goes with a memory file of ``size`` bytes."""
    return _seal(_MEMORY, sender, 1, sender + _SIZE.pack(size))


def _seal(kind: int, sender: bytes, count: int, rest: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, kind, len(sender), count, zlib.crc32(rest)) + rest


def decode(data: memoryview) -> Datagram:
    """Take a datagram apart; the bodies are views of ``data``. Raises Malformed and says what is wrong."""
    if len(data) < _HEADER.size:
        raise Malformed(f"{len(data)} bytes are no header")
    magic, kind, sender_length, count, checksum = _HEADER.unpack_from(data)
    rest = data[_HEADER.size :]
    if magic != _MAGIC:
        raise Malformed("not a datagram of this mail")
    if zlib.crc32(rest) != checksum:
        raise Malformed("the checksum differs")
    if not 0 < sender_length <= min(MAX_SENDER, len(rest)):
        raise Malformed(f"a sender of {sender_length} bytes")
    sender = _read_sender(rest[:sender_length])
    body = rest[sender_length:]
    if kind == _INLINE:
        return Datagram(sender, _split(body, count))
    if kind == _MEMORY and count == 1 and len(body) == _SIZE.size:
        return Datagram(sender, (), _read_size(body))
    raise Malformed(f"unknown kind {kind}, or a kind {kind} of the wrong length")


def _read_sender(data: memoryview) -> str:
    try:
        sender = str(data, "utf-8", "surrogateescape")
    except UnicodeDecodeError as fault:
        raise Malformed("the sender is not text") from fault
    if not sender.startswith("/") or "\0" in sender:
        raise Malformed("the sender is not a path")
    return sender


def _split(data: memoryview, count: int) -> tuple[memoryview, ...]:
    start = LENGTH_BYTES * count
    if count == 0 or start > len(data):
        raise Malformed(f"{count} bodies in {len(data)} bytes")
    lengths = struct.unpack_from(f"<{count}I", data)
    if start + sum(lengths) != len(data):
        raise Malformed("the bodies' lengths do not fit the datagram")
    bodies = []
    for length in lengths:
        bodies.append(data[start : start + length])
        start += length
    return tuple(bodies)


def _read_size(data: memoryview) -> int:
    (size,) = _SIZE.unpack(data)
    if not 0 < size <= MAX_MESSAGE:
        raise Malformed(f"a message of {size} bytes; at most {MAX_MESSAGE} are taken")
    return int(size)
