"""The permission hook from the client's side: how a worker is told to ask it, and what its answer means.

Pure, and it loads nothing of a user's. ``tools/permission_hook.py`` is what the worker runs. Called by
``actors/call_gate.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callboard.tools.content import JsonBlock, TextBlock, ToolResult
from callboard.tools.contract import ToolSpec

_REASON_CHARS = 500


def hook_spec(deadline_s: float) -> ToolSpec:
    """Give the spec by which a worker runs the hook."""
    return ToolSpec(
        name="permission_hook",
        description="",
        parameters={"type": "object"},
        deadline_s=deadline_s,
        module="callboard.tools.permission_hook",
        attribute="PermissionHook",
    )


def hook_arguments(hook: str, spec: ToolSpec, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments with which a worker asks the hook about a call of ``spec``."""
    return {"hook": hook, "tool": spec.name, "arguments": dict(arguments), "server": spec.server}


def denial_of(result: ToolResult) -> str | None:
    """Read a hook's result: None when it says yes, else why the call is denied."""
    match result.content:
        case (JsonBlock({"allowed": True}),) if not result.is_error:
            return None
        case (JsonBlock({"allowed": False, "reason": str(reason)}),) if not result.is_error:
            return f"the permission hook says no{f': {reason}' if reason else ''}"[:_REASON_CHARS]
    words = " ".join(block.text for block in result.content if isinstance(block, TextBlock))
    return f"the permission hook failed, so the call is denied: {words}"[:_REASON_CHARS]
