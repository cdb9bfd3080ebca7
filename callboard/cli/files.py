"""The files that commands read and write: '-' for the standard streams, private files, whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from callboard.errors import Refused

STANDARD = "-"
MAX_BYTES = 256 * 1024 * 1024


def read_text(name: str) -> str:
    """Read a UTF-8 file, or standard input; raises Refused when it is not there, not text, or over ``MAX_BYTES``."""
    try:
        if name == STANDARD:
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                raw = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise Refused(f"{name}: cannot be read: {fault.strerror or fault}") from fault
    if len(raw) > MAX_BYTES:
        raise Refused(f"{name}: expected at most {MAX_BYTES // (1024 * 1024)} MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw.count(b"\n", 0, fault.start) + 1
        raise Refused(f"{name}: line {line}: expected UTF-8 text") from fault


def write_out(name: str, text: str) -> None:
    """Write a file, readable by its owner alone, that is whole or not there; or standard output."""
    with writing(name) as file:
        file.write(text)


def write_bytes(name: str, content: bytes) -> None:
    """Write bytes to a file, readable by its owner alone, that is whole or not there; or to standard output."""
    with writing(name) as file:
        file.flush()
        file.buffer.write(content)


@contextmanager
def writing(name: str) -> Iterator[TextIO]:
    """Give a stream whose text becomes the file ``name`` when the block ends well; or standard output."""
    if name == STANDARD:
        yield sys.stdout
        return
    target = Path(name)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8", errors="replace") as file:
            yield file
        part.replace(target)
    except OSError as fault:
        raise Refused(f"{name}: cannot be written: {fault.strerror or fault}") from fault
    finally:
        part.unlink(missing_ok=True)
