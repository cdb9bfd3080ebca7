"""For authors of tools: call a tool in a real worker, under its own limits and sandbox, from a plain test.

    from callboard.testing.tools import call_tool

    def test_it_adds():
        assert call_tool("my_tools.py", "add", {"a": 1, "b": 2}).text == "3"

    def test_they_are_fit_for_models():
        assert [checked.faults for checked in check_tools(["my_tools.py"]) if checked.faults] == []

No daemon runs and no model is asked: the module is described and the call is run as the daemon does both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from callboard.actors.local_tools import LocalTools
from callboard.one_call import run_one
from callboard.testing.tool_checks import faults_of
from callboard.tool_call import shown
from callboard.tools.builtin import BUILTIN_MODULES
from callboard.tools.content import Progress, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec, as_configured
from callboard.tools.describe import specs_in_a_process
from callboard.tools.errors import ModuleFault, ToolsError
from callboard.tools.limits import ConfiguredLimits
from callboard.tools.loader import specs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """What came of a call: the result as a conversation gets it, and the progress that was told on the way."""

    result: ToolResult
    progress: tuple[Progress, ...] = ()

    @property
    def text(self) -> str:
        """What the model reads: text as it stands, JSON in its compact form, one block a line."""
        return shown(replace(self.result, attachments=()))

    @property
    def output(self) -> str:
        """What the tool printed, on both streams."""
        return self.result.output


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A tool of a module, and what of it is to be mended; ``spec`` None: the module itself, which cannot be used."""

    module: str
    faults: tuple[str, ...]
    spec: ToolSpec | None = None

    @property
    def name(self) -> str:
        """The tool's name, or the module's."""
        return self.module if self.spec is None else self.spec.name


def check_tools(
    modules: Iterable[str | Path], limits: Mapping[str, ConfiguredLimits] | None = None
) -> tuple[Checked, ...]:
    """Load modules as a system does, beside the built-in tools, and check each of their tools; nothing is called.

    ``limits`` are the operator's, by tool. A tool that another module's of that name hides is its module's fault.
    """
    described = specs_in_a_process([str(module) for module in modules])
    local = LocalTools(spec for module in BUILTIN_MODULES for spec in specs_of(module))
    local.take(described)
    checked: list[Checked] = []
    for module, found in described.items():
        if isinstance(found, ModuleFault):
            checked.append(Checked(module=module, faults=(found.reason,)))
            continue
        if module in local.faults:
            checked.append(Checked(module=module, faults=(local.faults[module],)))
        checked += [
            Checked(module=module, spec=spec, faults=faults_of(spec))
            for spec in as_configured(found, limits or {})
        ]
    return tuple(checked)


def spec_of(module: str | Path, tool: str) -> ToolSpec:
    """Give the spec of a tool in a module (a dotted name, or a path ending in ``.py``).

    Raises ModuleFault for a module that cannot be used, ToolsError for a tool that it does not hold.
    """
    described = specs_in_a_process([str(module)])[str(module)]
    if isinstance(described, ModuleFault):
        raise described
    found = {spec.name: spec for spec in described}
    if tool not in found:
        raise ToolsError(f"{module} holds no tool {tool!r}; it holds {', '.join(sorted(found))}")
    return found[tool]


def call_tool(
    module: str | Path,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    context: ToolContext | None = None,
    deadline_s: float | None = None,
    **limits: Any,
) -> Called:
    """Call a tool in a worker of its own and give what came of it; however it ends, that is a result.

    ``limits`` replace those that the tool states (``memory_mb=64``, ``sandbox="confined"``). Arguments are not checked
    against the schema, except by a decorated function itself. Raises as ``spec_of`` does.
    """
    spec = spec_of(module, tool)
    spec = replace(spec, deadline_s=deadline_s or spec.deadline_s, limits=replace(spec.limits, **limits))
    told: list[Progress] = []
    result = run_one(spec, arguments or {}, context, progressed=told.append)
    return Called(result=result, progress=tuple(told))
