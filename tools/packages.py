"""Which tool modules installed packages offer: their entry points in the group ``callboard.tools``.

It reads packages' metadata and imports none of them. Called by the catalogue, at its start and at each reload.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from importlib.metadata import entry_points

GROUP = "callboard.tools"


def modules_of_packages(patterns: Iterable[str]) -> tuple[str, ...]:
    """Give the modules that the entry points whose names fit one of ``patterns`` name, sorted by entry point."""
    listed = tuple(patterns)
    if not listed:
        return ()
    found = sorted((entry.name, entry.module) for entry in entry_points(group=GROUP))
    fitting = (module for name, module in found if any(fnmatchcase(name, pattern) for pattern in listed))
    return tuple(dict.fromkeys(fitting))
