"""Payloads in sealed memory files: what is taken, and what is refused before it is read."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator

import pytest

from callboard.transports import memfd
from callboard.transports.mail_errors import Malformed


@pytest.fixture
def unsealed() -> Iterator[int]:
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(fd, b"12345")
    yield fd
    os.close(fd)


def test_chunks_come_back_as_one(tmp_path: object) -> None:
    chunks = [b"a" * 100_000, b"", b"b", *([b"c"] * 2000)]
    fd = memfd.seal(chunks)
    try:
        with memfd.sealed_content(fd, 102_001) as content:
            assert bytes(content) == b"".join(chunks)
        with pytest.raises(OSError):
            os.write(fd, b"x")
        with pytest.raises(OSError):
            os.truncate(fd, 1)
    finally:
        os.close(fd)


def test_a_file_that_can_still_change_is_refused(unsealed: int) -> None:
    with pytest.raises(Malformed, match="not sealed"), memfd.sealed_content(unsealed, 5):
        pass
    fcntl.fcntl(unsealed, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    with pytest.raises(Malformed, match="not sealed"), memfd.sealed_content(unsealed, 5):
        pass


def test_a_file_of_another_size_than_announced_is_refused() -> None:
    fd = memfd.seal([b"12345"])
    try:
        with pytest.raises(Malformed, match="5 bytes, announced were 6"), memfd.sealed_content(fd, 6):
            pass
    finally:
        os.close(fd)


def test_a_descriptor_of_anything_else_is_refused() -> None:
    other = os.open(os.devnull, os.O_RDONLY)
    try:
        with pytest.raises(Malformed, match="memory file"), memfd.sealed_content(other, 5):
            pass
    finally:
        os.close(other)
