"""What a child process was given in its environment, kept out of what it says for people to read.

A program that is turned away tends to print the key that it came with. Pure. Called before such a text goes into a log,
a list or an answer; what a server gives back as its result is its own, and not touched.
"""

from __future__ import annotations

from collections.abc import Mapping

MIN_CHARS = 6


def redacted(text: str, named: Mapping[str, str]) -> str:
    """Put ``[NAME]`` in the place of each value; those of less than ``MIN_CHARS`` characters hide nothing."""
    by_length = sorted(named.items(), key=lambda item: -len(item[1]))
    for name, value in by_length:
        if len(value) >= MIN_CHARS:
            text = text.replace(value, f"[{name}]")
    return text
