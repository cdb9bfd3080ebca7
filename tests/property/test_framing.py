"""LineFramer over all splits: chunking never changes the lines."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from callboard.transports.errors import LineTooLong
from callboard.transports.framing import LineFramer

STREAMS = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b" ", "\u2028é".encode(), b"\xff", b"{}"])
).map(b"".join)
CUTS = st.lists(st.integers(0, 60), max_size=12)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def model(data: bytes) -> list[bytes]:
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    return [line for line in lines if line.strip()]


def run(pieces: list[bytes], cap_bytes: int) -> tuple[list[bytes], bool]:
    framer, lines = LineFramer(cap_bytes), list[bytes]()
    for piece in pieces:
        try:
            lines += framer.feed(piece)
        except LineTooLong as fault:
            return lines + list(fault.lines_before), True
    last = framer.finish()
    return lines + ([last] if last is not None else []), False


@given(STREAMS, CUTS)
def test_any_split_gives_the_lines_of_the_naive_model(data: bytes, cuts: list[int]) -> None:
    assert run(chunks(data, cuts), 1000) == (model(data), False)


@given(STREAMS, CUTS, st.integers(1, 8))
def test_any_split_overflows_at_the_same_line(data: bytes, cuts: list[int], cap_bytes: int) -> None:
    expected = run([data], cap_bytes)
    assert run(chunks(data, cuts), cap_bytes) == expected
    assert run([data[at : at + 1] for at in range(len(data))], cap_bytes) == expected
