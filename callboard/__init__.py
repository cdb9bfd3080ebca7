"""Callboard: a supervised runtime for tool-calling agents, in the shape of Elixir/OTP, on Thespian actors.

The public API: ``connect`` to a running system or start a private one, open conversations, write tools with
``@tool``; or ``run`` one turn in this process. Everything is loaded at first use.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from callboard.api import Conversation, System, connect
    from callboard.api_async import AsyncConversation, AsyncSystem, aconnect
    from callboard.in_process import RunResult, arun, run
    from callboard.tools.content import Progress
    from callboard.tools.contract import ToolContext
    from callboard.tools.decorator import Tool, tool

_LINKED = ("actors", "supervisor", "transports", "tools", "storage", "gateway")
_HOME = {
    "connect": "callboard.api",
    "System": "callboard.api",
    "Conversation": "callboard.api",
    "aconnect": "callboard.api_async",
    "AsyncSystem": "callboard.api_async",
    "AsyncConversation": "callboard.api_async",
    "run": "callboard.in_process",
    "arun": "callboard.in_process",
    "RunResult": "callboard.in_process",
    "tool": "callboard.tools.decorator",
    "Tool": "callboard.tools.decorator",
    "ToolContext": "callboard.tools.contract",
    "Progress": "callboard.tools.content",
}

for _folder in _LINKED:
    if not (Path(__file__).parent / _folder / "__init__.py").is_file():
        raise ImportError(
            f"callboard/{_folder} is missing: this copy of Callboard was unpacked without its symbolic links. "
            "Install it with pip, or clone the repository with git."
        )


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'callboard' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


__all__ = [
    "AsyncConversation",
    "AsyncSystem",
    "Conversation",
    "Progress",
    "RunResult",
    "System",
    "Tool",
    "ToolContext",
    "aconnect",
    "arun",
    "connect",
    "run",
    "tool",
]
