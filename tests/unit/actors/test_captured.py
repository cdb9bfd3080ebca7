"""What a tool printed is held up to a bound, head and tail."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.captured import HEAD_BYTES, TAIL_BYTES, Captured
from callboard.tools import content


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


def _dump(*frames: tuple[str, str]) -> str:
    lines = "".join(f'  File "{file}", line 3 in {name}\n' for file, name in frames)
    return f"Current thread 0x00007f1 (most recent call first):\n{lines}"


def test_of_a_crash_only_the_tools_own_frames_are_kept() -> None:
    ours = str(Path(content.__file__).parent)
    tools, builtin = [("/my/tools.py", "inner"), ("/my/tools.py", "outer")], (f"{ours}/builtin/a.py", "a")
    below = [(f"{ours}/execute.py", "execute"), ("/lib/x.py", "x"), (f"{ours}/runner.py", "_serve")]
    captured = Captured()
    end = "\nExtension modules: a, b (total: 2)\n"
    captured.add(
        f"hello\nFatal Python error: Segmentation fault\n\n{_dump(*tools, builtin, *below)}{end}".encode()
    )
    expected = f"hello\nFatal Python error: Segmentation fault\n\n{_dump(*tools, builtin)}{end}"
    assert captured.text() == expected


def test_frames_that_a_tool_prints_itself_stay() -> None:
    printed = f'  File "{Path(content.__file__).parent}/execute.py", line 3 in execute\nand more\n'
    captured = Captured()
    captured.add(printed.encode() + _dump(("/my/tools.py", "a")).encode() + b"\n" + printed.encode())
    assert captured.text() == printed + _dump(("/my/tools.py", "a")) + "\n" + printed
