"""From a ``Failure`` that an actor answered with to the error that the public API raises. Pure."""

from __future__ import annotations

from callboard.errors import CallboardError, ConversationNotFound, Refused, ToolNotFound, Unavailable
from callboard.supervisor.envelope import Failure

_AWAY = frozenset(
    {
        "unanswered",
        "child_gone",
        "start_failed",
        "overloaded",
        "crashed",
        "max_children",
        "stopping",
        "restarting",
    }
)
_PASSING = frozenset({"unanswered", "child_gone", "start_failed", "stopping", "restarting"})


def error_of(failure: Failure) -> CallboardError:
    """Give the error for a failure: its kind decides the class, its message is for the user."""
    error = _class_of(failure.kind)(failure.message)
    error.kind = failure.kind
    return error


def _class_of(kind: str) -> type[CallboardError]:
    if kind in ("not_found", "unknown"):
        return ConversationNotFound
    if kind == "no_such_tool":
        return ToolNotFound
    return Unavailable if kind in _AWAY or kind.startswith("storage") else Refused


def is_passing(failure: Failure) -> bool:
    """True for what a restart of a part of the system may answer with: worth a moment's patience."""
    return failure.kind in _PASSING
