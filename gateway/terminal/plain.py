"""Make text from outside safe for a terminal, and fit it to a width.

Pure. What a model, a tool or a server wrote may hold control sequences that move the cursor, set the
clipboard or reorder what is read; none of it reaches the terminal. Every other module of this folder passes
foreign text through here before it shows it.
"""

from __future__ import annotations

import re
import unicodedata

_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,256}[ -/]{0,16}[@-~]"  # CSI: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,65536}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS
    r"|\x1b[ -/]{0,16}[0-~]"  # the rest
)
_DROPPED = dict.fromkeys(
    (
        *(code for code in range(0x20) if code not in (0x09, 0x0A)),
        *range(0x7F, 0xA0),
        0x061C,  # bidirectional marks, embeddings, overrides, isolates
        *range(0x200E, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
        0x200B,  # invisible: zero width space, joiner, byte order mark, annotations, tags
        *range(0x2060, 0x2066),
        0xFEFF,
        *range(0xFFF9, 0xFFFC),
        *range(0xE0000, 0xE0080),
    )
)
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Give ``text`` without control sequences and invisible characters; newline and tab stay."""
    if text.isascii() and text.isprintable():
        return text
    text = _LINE_ENDS.sub("\n", _SEQUENCES.sub("", text))
    return _SURROGATES.sub("?", text.translate(_DROPPED))


def one_line(text: str) -> str:
    """Give ``text`` cleaned and on one line, runs of white space being one space."""
    return " ".join(clean(text).split())


def cells(text: str) -> int:
    """Give how many columns a terminal takes to show ``text``, one line of clean text."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def cut(text: str, width: int, ellipsis: str = "…") -> str:
    """Give ``text`` at most ``width`` columns wide, ending with ``ellipsis`` where something was cut off."""
    if cells(text) <= width:
        return text
    room = max(0, width - cells(ellipsis))
    taken = 0
    for index, character in enumerate(text):
        taken += _cells_of(character)
        if taken > room:
            return (text[:index] + ellipsis)[: max(0, width)]
    return text


def pad(text: str, width: int) -> str:
    """Give ``text`` filled up with spaces to ``width`` columns."""
    return text + " " * max(0, width - cells(text))


def _cells_of(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
