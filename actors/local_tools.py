"""The local tools of a system: what each module offers, which module has a name, and what a reload changes. Pure.

A module that cannot be described keeps what it had (the specs, and with them the source that they name), and its fault
is told. Of two modules with a tool of one name the
first in order has it. Called by the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callboard.actors.catalogue_record import Recorded
from callboard.actors.messages import Reloaded
from callboard.tools.contract import ToolSpec
from callboard.tools.describe import Described
from callboard.tools.errors import ModuleFault


class LocalTools:
    """``builtin`` come first, and are never described again. ``before`` is what a former catalogue had."""

    def __init__(self, builtin: Iterable[ToolSpec], before: Recorded | None = None) -> None:
        self._builtin = tuple(builtin)
        before = before or Recorded()
        self.modules: dict[str, tuple[ToolSpec, ...]] = dict(before.modules)
        self.tools, self.faults = self._merged(dict(before.faults))

    @property
    def kept_sources(self) -> frozenset[str]:
        """The paths of the sources that the tools are run from."""
        return frozenset(spec.kept_source for specs in self.modules.values() for spec in specs)

    def take(self, described: Mapping[str, Described]) -> Reloaded:
        """Take a description of all modules, in their order; one that is not among them any more is gone."""
        before = self.tools
        faults: dict[str, str] = {}
        modules: dict[str, tuple[ToolSpec, ...]] = {}
        for module, found in described.items():
            if isinstance(found, ModuleFault):
                kept = self.modules.get(module, ())
                note = (
                    f" (the tools that it had stay: {', '.join(spec.name for spec in kept)})" if kept else ""
                )
                faults[module] = f"{found}{note}"
                modules[module] = kept
            else:
                modules[module] = found
        self.modules = modules
        self.tools, self.faults = self._merged(faults)
        return _difference(before, self.tools, self.faults)

    def _merged(self, faults: dict[str, str]) -> tuple[dict[str, ToolSpec], dict[str, str]]:
        tools = {spec.name: spec for spec in self._builtin}
        for module, specs in self.modules.items():
            for spec in specs:
                other = tools.setdefault(spec.name, spec)
                if other is not spec and (other.module, other.attribute) != (spec.module, spec.attribute):
                    faults[module] = (
                        f"tool {spec.name} is already defined by {other.module}; rename one of them"
                    )
        return tools, faults


def _difference(
    before: Mapping[str, ToolSpec], after: Mapping[str, ToolSpec], faults: Mapping[str, str]
) -> Reloaded:
    both = before.keys() & after.keys()
    return Reloaded(
        added=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(sorted(name for name in both if before[name].digest != after[name].digest)),
        removed=tuple(sorted(before.keys() - after.keys())),
        faults=dict(faults),
    )
