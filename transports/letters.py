"""Messages as bytes and back: pickled into chunks to send, unpickled from what was received.

Large byte strings in a message are not copied on the way out. Unpickling runs code, so it is called for mail of our
own user only (``unix_receiver`` sees to that).
"""

from __future__ import annotations

import pickle
from typing import Any

from callboard.transports.datagrams import MAX_MESSAGE
from callboard.transports.mail_errors import TooLarge
from callboard.transports.records import RecordPickler

_PROTOCOL = 5


class _Chunks:
    """A file that keeps what is written to it, as it was written."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def write(self, chunk: Any) -> int:
        self.chunks.append(chunk if type(chunk) is bytes else bytes(chunk))
        return len(chunk)


def freeze(message: Any) -> tuple[tuple[bytes, ...], int]:
    """Pickle the message: its chunks, and their size in bytes. Raises TooLarge, or what pickling raises."""
    out = _Chunks()
    RecordPickler(out, _PROTOCOL).dump(message)
    size = sum(map(len, out.chunks))
    if size > MAX_MESSAGE:
        raise TooLarge(f"the message has {size} bytes; one message may have {MAX_MESSAGE}")
    return tuple(out.chunks), size


def thaw(body: memoryview) -> Any:
    """Unpickle a message that this user sent. Raises whatever unpickling raises."""
    return pickle.loads(body)
