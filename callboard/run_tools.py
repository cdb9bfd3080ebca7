"""The tools that ``callboard.run`` was given: their specs, and how each of them is called.

It decides whether a worker process could find a tool again, and says what to do if not. It calls none.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from callboard.errors import CallboardError
from callboard.run_calls import call_in_worker, call_on_thread
from callboard.tools.content import ToolResult
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decorator import FunctionTool, Tool
from callboard.tools.limits import limits_of
from callboard.tools.loader import private_name

Isolation: TypeAlias = Literal["worker", "thread"]
Call: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]


class RunError(CallboardError):
    """``run`` was given something that it cannot work with; the message names it and the way out."""


def registry_of(tools: Sequence[Any], isolation: Isolation) -> tuple[dict[str, ToolSpec], dict[str, Call]]:
    """Give the spec and the call of each tool, by its name; raises RunError."""
    if isolation not in ("worker", "thread"):
        raise RunError(f"isolation must be 'worker' or 'thread', got {isolation!r}")
    registry: dict[str, ToolSpec] = {}
    calls: dict[str, Call] = {}
    for given in tools:
        tool = _tool(given)
        if tool.name in registry:
            raise RunError(f"two tools are named {tool.name!r}: give one another name, @tool(name=...)")
        module, attribute = _address(tool) if isolation == "worker" else (None, None)
        spec = _spec(tool, module, attribute)
        registry[tool.name] = spec
        calls[tool.name] = (
            functools.partial(call_in_worker, spec)
            if isolation == "worker"
            else functools.partial(call_on_thread, tool, spec)
        )
    return registry, calls


def _tool(given: Any) -> Tool:
    if isinstance(given, type) and issubclass(given, Tool):
        try:
            return given()
        except Exception as error:
            raise RunError(f"{given.__qualname__} cannot be made without arguments: {error}") from error
    if isinstance(given, Tool):
        return given
    name = getattr(given, "__qualname__", repr(given))
    raise RunError(f"{name} is not a tool: decorate the function with @callboard.tool, or derive from Tool")


def _spec(tool: Tool, module: str | None, attribute: str | None) -> ToolSpec:
    return ToolSpec(
        name=tool.name,
        description=tool.description or inspect.cleandoc(type(tool).__doc__ or ""),
        parameters=tool.parameters,
        annotations=tool.annotations,
        deadline_s=tool.deadline_s,
        limits=limits_of(tool),
        module=module,
        attribute=attribute,
    )


def _address(tool: Tool) -> tuple[str, str]:
    """Give the module and the attribute by which another process finds the tool."""
    origin = tool.function if isinstance(tool, FunctionTool) else type(tool)
    wanted = (tool,) if isinstance(tool, FunctionTool) else (tool, origin)
    module = sys.modules.get(origin.__module__)
    names = vars(module) if module is not None else {}
    found = [name for name, value in names.items() if any(value is one for one in wanted)]
    if module is None or origin.__module__ == "__main__" or not found:
        where = "the main script or a notebook" if origin.__module__ == "__main__" else "a function"
        raise RunError(
            f"a worker process cannot import the tool {tool.name!r}, because it is defined in {where}: "
            'put it in a module of its own, or run with isolation="thread"'
        )
    file = getattr(module, "__file__", None)
    is_loaded_by_path = file is not None and private_name(Path(file)) == origin.__module__
    return (str(file) if is_loaded_by_path else origin.__module__), found[0]
