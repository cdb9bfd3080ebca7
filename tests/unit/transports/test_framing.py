"""LineFramer: where a line ends, and what happens when one does not."""

from __future__ import annotations

import time

import pytest

from callboard.transports.errors import LineTooLong
from callboard.transports.framing import LineFramer


@pytest.mark.parametrize(
    ("data", "lines", "rest"),
    [
        (b"", [], None),
        (b"a\n", [b"a"], None),
        (b"a\nb\n", [b"a", b"b"], None),
        (b"a\r\nb\r\n", [b"a", b"b"], None),
        (b"a\r\r\n", [b"a\r"], None),
        (b"\n\n \t\n\r\na\n", [b"a"], None),
        (b"a\rb\n", [b"a\rb"], None),
        ("a\u2028b\u0085c\x0b\x0c\n".encode(), ["a\u2028b\u0085c\x0b\x0c".encode()], None),
        (b"a\nhalf", [b"a"], b"half"),
        (b"half\r", [], b"half"),
        (b"a\n  ", [b"a"], None),
        (b"\xff\xfe\n", [b"\xff\xfe"], None),
    ],
)
def test_lines_are_the_same_byte_by_byte_and_all_at_once(
    data: bytes, lines: list[bytes], rest: bytes | None
) -> None:
    whole, bytewise = LineFramer(), LineFramer()
    assert whole.feed(data) == lines
    assert [line for at in range(len(data)) for line in bytewise.feed(data[at : at + 1])] == lines
    assert whole.finish() == bytewise.finish() == rest


def test_a_line_of_exactly_the_cap_passes_and_one_byte_more_does_not() -> None:
    assert LineFramer(cap_bytes=4).feed(b"1234\n") == [b"1234"]
    with pytest.raises(LineTooLong, match="cap of 4 bytes"):
        LineFramer(cap_bytes=4).feed(b"12345\n")


@pytest.mark.parametrize("data", [b"a\nb\n12345\nc\n", b"a\nb\n12345"])
def test_an_overflow_hands_over_the_lines_before_it_and_breaks_the_framer(data: bytes) -> None:
    framer = LineFramer(cap_bytes=4)
    with pytest.raises(LineTooLong) as caught:
        framer.feed(data)
    assert caught.value.lines_before == (b"a", b"b")
    assert framer.broken
    assert framer.feed(b"d\n") == []
    assert framer.finish() is None


def test_an_unfinished_line_above_the_cap_is_not_kept_in_memory() -> None:
    framer = LineFramer(cap_bytes=1000)
    with pytest.raises(LineTooLong):
        for _ in range(100):
            framer.feed(b"x" * 100)
    assert framer.pending_bytes == 0


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="cap_bytes"):
        LineFramer(cap_bytes=0)


def test_a_long_line_in_small_chunks_takes_linear_time() -> None:
    framer, chunk = LineFramer(), b"x" * 4096
    began = time.perf_counter()
    for _ in range(4096):
        assert framer.feed(chunk) == []
    (line,) = framer.feed(b"\n")
    assert len(line) == 16 * 1024 * 1024
    assert time.perf_counter() - began < 2
