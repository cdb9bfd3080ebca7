"""What a call's process loads to ask the permission hook: the embedding service's own code, asked before each call.

It is users' code, so it runs as a tool does, in a worker of its own, and is killed at its deadline. Whatever it does
but say yes denies: raising, hanging, ending its process, answering anything else. Who has it asked, and what the
answer means, is in ``tools/permission_call.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callboard.tools.contract import ToolContext
from callboard.tools.decorator import Tool
from callboard.tools.errors import ToolFault
from callboard.tools.loader import load_module


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """What a hook is asked: may this principal make this call? ``server`` is None for a local tool."""

    tool: str
    arguments: Mapping[str, Any]
    user: str
    team: str
    roles: tuple[str, ...]
    conversation_id: str
    call_id: str
    server: str | None = None


class PermissionHook(Tool):
    """Loads the hook that its arguments name, asks it, and answers ``{"allowed": …, "reason": …}``."""

    name = "permission_hook"
    description = "Asks the configured permission hook about one call; never offered to a model."
    parameters: Mapping[str, Any] = {"type": "object", "required": ["hook", "tool", "arguments"]}

    def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> Any:
        """Ask the hook: a function, plain or ``async``, from a PermissionRequest to a bool, or a reason to deny."""
        hook = _load(arguments["hook"])
        request = PermissionRequest(
            tool=arguments["tool"],
            arguments=arguments["arguments"],
            user=context.user,
            team=context.team,
            roles=context.roles,
            conversation_id=context.conversation_id,
            call_id=context.call_id,
            server=arguments.get("server"),
        )
        answer = hook(request)
        return _awaited(answer) if inspect.isawaitable(answer) else _form(answer)


def _load(reference: str) -> Any:
    module, _, name = reference.rpartition(":")
    hook = getattr(load_module(module), name, None)
    if not callable(hook):
        raise ToolFault(f"the module {module} has no function {name}")
    return hook


async def _awaited(answer: Any) -> dict[str, Any]:
    return _form(await answer)


def _form(answer: object) -> dict[str, Any]:
    if answer is True:
        return {"allowed": True, "reason": ""}
    if answer is False or isinstance(answer, str):
        return {"allowed": False, "reason": answer or ""}
    raise ToolFault(
        f"it answered {type(answer).__name__}: it must give True, False, or a reason to deny in words"
    )
