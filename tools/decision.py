"""The one decision per call: may this tool run now, and if not, why (FEATURES T4, T5, T7).

Pure. Its messages are what the model reads. It decides from the registry, the conversation's enabled set and
what is unavailable at the moment; it never changes any of them. Called by the client at the call, and for
lists of tools.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TypeAlias

from callboard.tools.contract import ToolSpec

_NAMES_SHOWN = 40


class RefusalKind(StrEnum):
    """Why a call is refused; written to the log as it stands."""

    UNKNOWN = "unknown_tool"
    NOT_ENABLED = "not_enabled"
    UNAVAILABLE = "unavailable"


class Standing(StrEnum):
    """How a tool stands to a conversation: usable now, could be enabled, or out of order."""

    ENABLED = "enabled"
    AVAILABLE = "available"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may start."""

    spec: ToolSpec


@dataclass(frozen=True, slots=True)
class Refused:
    """The call may not start; ``message`` goes to the model as the call's result."""

    kind: RefusalKind
    message: str


Decision: TypeAlias = Allowed | Refused


@dataclass(frozen=True, slots=True)
class ToolState:
    """One row of a conversation's tool list; ``reason`` is empty for an enabled tool.

    ``in_enabled_set`` stays true for a disabled tool that will be usable again by itself.
    """

    name: str
    description: str
    standing: Standing
    reason: str
    in_enabled_set: bool


def decide(
    name: str,
    registry: Mapping[str, ToolSpec],
    enabled: frozenset[str],
    unavailable: Mapping[str, str],
) -> Decision:
    """Decide on a call of ``name``; ``unavailable`` gives the reason for each tool that cannot run now."""
    spec = registry.get(name)
    usable = sorted(enabled & registry.keys() - unavailable.keys())
    if spec is None and not (name in enabled and name in unavailable):
        return Refused(RefusalKind.UNKNOWN, _unknown(name, usable))
    if name not in enabled:
        return Refused(
            RefusalKind.NOT_ENABLED,
            f"the tool {name!r} is not enabled in this conversation. {_usable(usable)}",
        )
    if spec is None or name in unavailable:
        return Refused(
            RefusalKind.UNAVAILABLE,
            f"the tool {name!r} is unavailable: {unavailable[name]}. {_usable(usable)}",
        )
    return Allowed(spec)


def listing(
    registry: Mapping[str, ToolSpec], enabled: frozenset[str], unavailable: Mapping[str, str]
) -> tuple[ToolState, ...]:
    """Give the state of every tool, by name: those registered, and those that are unavailable only."""
    names = sorted(registry.keys() | unavailable.keys())
    return tuple(_state(name, registry.get(name), name in enabled, unavailable.get(name)) for name in names)


def match_patterns(patterns: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Give the names that an enable list means; patterns have shell wildcards (``*``, ``time__*``)."""
    listed = tuple(patterns)
    return frozenset(name for name in names if any(fnmatchcase(name, pattern) for pattern in listed))


def unmatched_patterns(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Give the patterns that mean no name at all, as written: most likely a slip to be told to the user."""
    known = tuple(names)
    return tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in known))


def _state(name: str, spec: ToolSpec | None, is_enabled: bool, why_not: str | None) -> ToolState:
    description = spec.description if spec else ""
    if why_not is not None:
        return ToolState(name, description, Standing.DISABLED, why_not, is_enabled)
    if is_enabled:
        return ToolState(name, description, Standing.ENABLED, "", True)
    return ToolState(name, description, Standing.AVAILABLE, "not enabled in this conversation", False)


def _unknown(name: str, usable: list[str]) -> str:
    close = difflib.get_close_matches(name[:64], usable, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no tool {name[:64]!r}.{hint} {_usable(usable)}"


def _usable(names: list[str]) -> str:
    if not names:
        return "No tool is enabled: answer without tools."
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"The tools you can use are: {shown}."
