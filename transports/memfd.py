"""Large payloads: a sealed memory file, made by the sender and handed over by descriptor.

Sealed means that its size and content can no longer change, by anyone: the receiver may map it and read. A file that
is not sealed, not a memory file, or not of the announced size is refused before a byte of it is read.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from callboard.transports.mail_errors import Malformed

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_CHUNKS_AT_ONCE = 512


def seal(chunks: Sequence[bytes]) -> int:
    """Write the chunks to a new memory file, seal it and give its descriptor, which the caller closes.

    Raises OSError when memory or descriptors are short.
    """
    fd = os.memfd_create("callboard-mail", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        _write_all(fd, chunks)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _write_all(fd: int, chunks: Sequence[bytes]) -> None:
    left = [memoryview(chunk) for chunk in chunks if chunk]
    while left:
        written = os.writev(fd, left[:_CHUNKS_AT_ONCE])
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]


@contextmanager
def sealed_content(fd: int, size: int) -> Iterator[memoryview]:
    """Give the content of the received memory file, valid within the context. The descriptor stays the caller's.

    Raises Malformed when it is not a sealed memory file of exactly ``size`` bytes.
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as fault:
        raise Malformed("the payload is not a memory file") from fault
    if seals & _SEALS != _SEALS:
        raise Malformed("the payload can still change: it is not sealed")
    actual = os.fstat(fd).st_size
    if actual != size:
        raise Malformed(f"the payload has {actual} bytes, announced were {size}")
    with mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE, prot=mmap.PROT_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()
