"""What a tool printed is held up to a bound, head and tail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.captured import HEAD_BYTES, TAIL_BYTES, Captured


@given(st.lists(st.binary(max_size=20_000).map(lambda piece: piece.replace(b"\xff", b"a")), max_size=12))
def test_head_and_tail_are_kept_and_the_rest_is_counted(pieces: list[bytes]) -> None:
    captured = Captured()
    for piece in pieces:
        captured.add(piece)
    whole = b"".join(pieces)
    assert captured.total_bytes == len(whole)
    if len(whole) <= HEAD_BYTES + TAIL_BYTES:
        assert captured.text().encode("utf-8", "replace") == (
            whole[:HEAD_BYTES].decode("utf-8", "replace") + whole[HEAD_BYTES:].decode("utf-8", "replace")
        ).encode("utf-8", "replace")
        return
    left_out = len(whole) - HEAD_BYTES - TAIL_BYTES
    assert f"[… {left_out} bytes left out …]" in captured.text()
    assert captured.text().startswith(whole[:HEAD_BYTES].decode("utf-8", "replace"))
    assert captured.text().endswith(whole[-TAIL_BYTES:].decode("utf-8", "replace"))


def test_ten_gigabytes_take_no_memory() -> None:
    captured = Captured()
    piece = b"x" * 100_000
    for _ in range(1000):
        captured.add(piece)
    assert sum(map(len, captured._tail)) < TAIL_BYTES + len(piece) + 1
    assert len(captured.text()) < HEAD_BYTES + TAIL_BYTES + 100
