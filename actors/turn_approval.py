"""What a person's approval is bound to, and until when one can be given (FEATURES T8; DESIGN, decision 6). Pure."""

from __future__ import annotations

import hashlib
import json
from datetime import datetime

from callboard.actors.asked_calls import parse_arguments
from callboard.actors.events import ApprovalRequested
from callboard.actors.items import FunctionCall
from callboard.actors.turn_facts import instant_of
from callboard.supervisor.envelope import Principal


def approval_digest(call: FunctionCall, *, tool_version: str, principal: Principal) -> str:
    """Give the SHA-256, in hexadecimal, over call id, tool, arguments, tool version and principal.

    It does not depend on how the model spelled the arguments, nor on the order of the roles. Compared when the call
    starts: a tool that changed since, or another principal, has no approval.
    """
    arguments = parse_arguments(call.arguments)
    bound = {
        "call_id": call.call_id,
        "tool": call.tool,
        "arguments": call.arguments if arguments is None else arguments,
        "tool_version": tool_version,
        "user": principal.user,
        "team": principal.team,
        "roles": sorted(principal.roles),
    }
    canonical = json.dumps(bound, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def expires_in_s(asked: ApprovalRequested, expires_s: float, now: datetime) -> float:
    """Give the seconds in which a waiting call may still be decided on, at ``now`` (UTC); 0 or less: it has expired.

    A request whose instant is not known was asked just now.
    """
    at = instant_of(asked.at)
    return expires_s if at is None else expires_s - (now - at).total_seconds()


def expired_after(expires_s: float) -> str:
    """Say it, for the log, the model and whoever answers too late."""
    return f"expired unanswered after {_duration(expires_s)}"


def _duration(seconds: float) -> str:
    for unit, name in ((3600, "h"), (60, "min")):
        if seconds >= unit and seconds % unit == 0:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"
