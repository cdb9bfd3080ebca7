"""Tools that look for what they should not find."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

from callboard.tools.decorator import tool

_CHUNK = 1 << 22
_CANARIES = re.compile(b"".join((b"can", b"ary-([a-z]+)")))


def search() -> dict[str, int]:
    """Count the canaries in this process's own memory, by the word behind their name."""
    found: dict[str, int] = {}
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            if "r" not in rights or "[v" in line:
                continue
            start, end = (int(at, 16) for at in place.split("-"))
            for at in range(start, end, _CHUNK):
                memory.seek(at)
                try:
                    part = memory.read(min(_CHUNK, end - at))
                except OSError:
                    continue
                for word in _CANARIES.findall(part):
                    found[word.decode()] = found.get(word.decode(), 0) + 1
    return found


@tool
def environment_plain() -> dict[str, int]:
    """Search the environment, as Python has it and as the kernel shows it, without a sandbox."""
    places = [*os.environb.values(), Path("/proc/self/environ").read_bytes()]
    return dict(Counter(word.decode() for place in places for word in _CANARIES.findall(place)))


@tool(sandbox="confined")
def search_confined() -> dict[str, int]:
    """Search, confined."""
    return search()


@tool(sandbox="isolated")
def search_isolated() -> dict[str, int]:
    """Search, isolated."""
    return search()
