"""Datagrams: any bodies come back as they were, and no damaged or invented datagram is taken for one of ours."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.transports import datagrams
from callboard.transports.mail_errors import Malformed

SENDERS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60).map(
    "/".__add__
)
BODIES = st.lists(st.binary(max_size=200), min_size=1, max_size=20)


@given(SENDERS, BODIES)
def test_what_is_encoded_comes_back(sender: str, bodies: list[bytes]) -> None:
    found = datagrams.decode(memoryview(datagrams.encode(sender.encode(), bodies)))
    assert found.sender == sender
    assert [bytes(body) for body in found.bodies] == bodies
    assert found.memory_size is None


@given(SENDERS, st.integers(1, datagrams.MAX_MESSAGE))
def test_the_size_of_a_memory_file_comes_back(sender: str, size: int) -> None:
    found = datagrams.decode(memoryview(datagrams.encode_memory(sender.encode(), size)))
    assert (found.sender, found.bodies, found.memory_size) == (sender, (), size)


@pytest.mark.parametrize("size", [0, datagrams.MAX_MESSAGE + 1, 10 << 30])
def test_a_memory_file_beyond_the_limit_is_refused(size: int) -> None:
    with pytest.raises(Malformed, match="at most"):
        datagrams.decode(memoryview(datagrams.encode_memory(b"/a", size)))


@given(SENDERS, BODIES, st.data())
def test_a_datagram_with_changed_bytes_is_refused(
    sender: str, bodies: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(datagrams.encode(sender.encode(), bodies))
    at = data.draw(st.integers(0, len(whole) - 1).filter(lambda n: n != 5))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Malformed):
        datagrams.decode(memoryview(whole))


@given(SENDERS, BODIES, st.data())
def test_a_datagram_that_was_cut_off_is_refused(
    sender: str, bodies: list[bytes], data: st.DataObject
) -> None:
    whole = datagrams.encode(sender.encode(), bodies)
    with pytest.raises(Malformed):
        datagrams.decode(memoryview(whole)[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=300))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(Malformed):
        datagrams.decode(memoryview(noise))


@given(
    st.integers(0, 255),
    st.integers(0, 70_000 & 0xFFFF),
    st.integers(0, 1 << 32).map(lambda n: n & 0xFFFFFFFF),
    st.binary(max_size=200),
)
def test_any_header_with_a_right_checksum_is_taken_whole_or_refused(
    kind: int, sender_length: int, count: int, rest: bytes
) -> None:
    header = datagrams._HEADER.pack(b"CBm1", kind, sender_length, count, zlib.crc32(rest))
    try:
        found = datagrams.decode(memoryview(header + rest))
    except Malformed:
        return
    assert found.sender.startswith("/")
    assert sum(map(len, found.bodies)) <= len(rest)
