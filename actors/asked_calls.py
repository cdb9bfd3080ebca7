"""The calls that a reply of the model asks for: arguments read, ids made unique, repetition seen.

Pure functions. They decide nothing about whether a call runs. Called by the turn machine and by the shells
that check a reply before they hand it in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from callboard.actors.items import FunctionCall

_MAX_ID_STEM = 48


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Read a call's arguments: blank text and null are ``{}``; None for all but objects (MCP.md, B76)."""
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if value is None:
        return {}
    return value if isinstance(value, dict) else None


def with_unique_ids(calls: Iterable[FunctionCall], taken: Iterable[str]) -> tuple[FunctionCall, ...]:
    """Rename, position by position, each call whose id is empty, in ``taken``, or an earlier call's (B78)."""
    used = set(taken)
    renamed = []
    for call in calls:
        renamed.append(replace(call, call_id=_free_id(call.call_id, used)))
        used.add(renamed[-1].call_id)
    return tuple(renamed)


def tools_asked_in_each(steps: Sequence[Sequence[FunctionCall]]) -> list[str]:
    """Name the tools that every one of these steps' calls hold with the same arguments; sorted."""
    asked = [{(call.tool, _canonical(call.arguments)) for call in calls} for calls in steps]
    return sorted({tool for tool, _ in set[tuple[str, str]].intersection(*asked)}) if asked else []


def _free_id(wanted: str, used: set[str]) -> str:
    if wanted and wanted not in used:
        return wanted
    stem = wanted[:_MAX_ID_STEM] or "call"
    number = 2 if wanted else 1
    while f"{stem}_{number}" in used:
        number += 1
    return f"{stem}_{number}"


def _canonical(arguments: str) -> str:
    parsed = parse_arguments(arguments)
    return arguments if parsed is None else json.dumps(parsed, sort_keys=True)
