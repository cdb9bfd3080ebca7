"""The catalogue actor: has the tool modules described, and keeps the registry of all that exists.

It loads the built-in modules only: each of the users' is described by a process of its own, within a time limit.
External servers report their tools here. A module that cannot be loaded is a fault in the registry, never the end
of the catalogue.
"""

from __future__ import annotations

from dataclasses import replace

from callboard.actors.messages import GetRegistry, Registry, ServerReport
from callboard.actors.names import SERVERS
from callboard.actors.settings import Settings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.tools.builtin import BUILTIN_MODULES
from callboard.tools.contract import ToolSpec
from callboard.tools.describe import specs_in_a_process
from callboard.tools.errors import ModuleFault
from callboard.tools.loader import specs_of


class CatalogueActor(Child):
    """``args``: ``settings``."""

    def start(self) -> None:
        """Load the built-in tools and the configured modules."""
        settings: Settings = self.init.args["settings"]
        self._local: dict[str, ToolSpec] = {}
        self._faults: dict[str, str] = {}
        self._reports: dict[str, ServerReport] = {
            server.name: ServerReport(server=server.name, state="starting") for server in settings.servers
        }
        for module in BUILTIN_MODULES:
            self._add(module, specs_of(module))
        for module, described in specs_in_a_process(settings.tool_modules).items():
            if isinstance(described, ModuleFault):
                self._faults[module] = str(described)
                self.log.error("tool_module_not_loaded", module=module, reason=str(described))
            else:
                self._add(module, described)

    def handle(self, envelope: Envelope) -> None:
        """Answer what exists, or take a server's report."""
        match envelope.body:
            case GetRegistry():
                self.reply(envelope, self._registry())
            case ServerReport() as report:
                self._take(report)
                self.reply(envelope, True)

    def _take(self, report: ServerReport) -> None:
        """A server that is away keeps the tools that it had: they come back with it."""
        known = self._reports.get(report.server)
        if known is not None and report.state != "ready" and not report.tools:
            report = replace(report, tools=known.tools)
        self._reports[report.server] = report

    def _as_seen(self, report: ServerReport) -> ServerReport:
        """Only the server's supervisor knows that it was parked."""
        row = self.table.get(f"{SERVERS}.{report.server}")
        return replace(report, state="parked") if row is not None and row.state == "parked" else report

    def _add(self, module: str, specs: tuple[ToolSpec, ...]) -> None:
        for spec in specs:
            if spec.name in self._local:
                where = self._local[spec.name].module
                self._faults[module] = f"tool {spec.name} is already defined by {where}; rename one of them"
            else:
                self._local[spec.name] = spec

    def _registry(self) -> Registry:
        tools = dict(self._local)
        for report in self._reports.values():
            tools |= {spec.name: spec for spec in report.tools if spec.name not in tools}
        reports = {name: self._as_seen(report) for name, report in self._reports.items()}
        return Registry(tools=tools, servers=reports, faults=dict(self._faults))
