"""Split a document into passages of a few lines, each with its line numbers and the headings above it.

Pure. It decides where one passage ends and the next begins; it reads no file. Called by the document index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINES = 12
_ENOUGH_LINES = 5
_ENOUGH_CHARS = 600

_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*\s*")
_FENCE = re.compile(r"\s*(```|~~~)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines ``line`` to ``line_end`` of a document, both included and counted from 1.

    ``heading`` is the path of Markdown headings that the piece stands under, such as ``Setup > Linux``.
    """

    line: int
    line_end: int
    heading: str
    body: str


def split_lines(text: str) -> list[str]:
    """Split at newlines only, as editors count lines (``str.splitlines`` knows eight more separators)."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def split_passages(text: str, *, markdown: bool) -> Iterator[Piece]:
    """Give the pieces of ``text`` in order: whole paragraphs where they are short, never across a heading."""
    headings: list[tuple[int, str]] = []
    start, held = 1, list[str]()
    in_fence = False
    for number, line in enumerate(split_lines(text), start=1):
        in_fence ^= bool(_FENCE.match(line))
        heading = _HEADING.fullmatch(line) if markdown and not in_fence else None
        if heading or _is_full(held, line):
            yield from _piece(start, held, headings)
            start, held = number, []
        if heading:
            level = len(heading.group(1))
            headings = [above for above in headings if above[0] < level] + [(level, heading.group(2))]
        held.append(line)
    yield from _piece(start, held, headings)


def _is_full(held: list[str], next_line: str) -> bool:
    if len(held) >= MAX_LINES:
        return True
    long_enough = len(held) >= _ENOUGH_LINES or sum(map(len, held)) >= _ENOUGH_CHARS
    return long_enough and not next_line.strip()


def _piece(start: int, held: list[str], headings: list[tuple[int, str]]) -> Iterator[Piece]:
    filled = [index for index, line in enumerate(held) if line.strip()]
    if filled:
        first, last = filled[0], filled[-1]
        path = " > ".join(title for _, title in headings)
        yield Piece(start + first, start + last, path, "\n".join(held[first : last + 1]))
