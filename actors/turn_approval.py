"""What a person's approval is bound to (FEATURES T8; DESIGN, decision 6). Pure."""

from __future__ import annotations

import hashlib
import json

from callboard.actors.asked_calls import parse_arguments
from callboard.actors.items import FunctionCall
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
