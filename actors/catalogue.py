"""The catalogue actor: has the tool modules described, and keeps the registry of all that exists.

It loads the built-in modules only: each of the users' and of other packages' is described by a process of its own,
within a time limit; at a reload, while it goes on answering. External servers report their tools here, and the
embedding service switches feature flags. A module that cannot be loaded is a fault in the registry, never the end of
the catalogue. What was described, specs and source, is what runs until the next reload: an incarnation that follows a
crash goes on with the record of the former one.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from callboard.actors.catalogue_record import CatalogueRecord, Recorded
from callboard.actors.feature_switches import FeatureSwitches
from callboard.actors.local_tools import LocalTools
from callboard.actors.messages import (
    GetRegistry,
    Registry,
    RegistryUnchanged,
    Reloaded,
    ReloadTools,
    ServerReport,
    SwitchFeature,
)
from callboard.actors.names import SERVERS
from callboard.actors.registry_mark import RegistryMark
from callboard.actors.settings import Settings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.supervisor.process import PRIVATE_FDS, close_private
from callboard.supervisor.timers import Timer
from callboard.tools.builtin import BUILTIN_MODULES
from callboard.tools.contract import as_configured
from callboard.tools.describe import Described, specs_in_a_process
from callboard.tools.errors import ModuleFault
from callboard.tools.kept_source import GRACE_S, KeptSources
from callboard.tools.loader import specs_of
from callboard.tools.packages import modules_of_packages

_FOLDER = "tools"
_RECORD = "described.json"
_PARKED_LOOK_S = 1.0


class CatalogueActor(Child):
    """``args``: ``settings``."""

    def start(self) -> None:
        """Load the built-in tools, and the configured modules unless this life of the daemon has described them."""
        self._settings: Settings = self.init.args["settings"]
        rows = self._settings.tool_limits
        builtin = (spec for module in BUILTIN_MODULES for spec in specs_of(module))
        self._kept = KeptSources(Path(self._settings.runtime_dir) / _FOLDER)
        self._record = CatalogueRecord(self._kept.folder / _RECORD, self._settings.life)
        self._sweep_timer: Timer | None = None
        recorded = self._record.read()
        self._local = LocalTools(as_configured(builtin, rows), recorded)
        self._switches = FeatureSwitches(Path(self._settings.state_dir))
        if self._switches.fault:
            self.log.error("feature_switches_not_read", reason=self._switches.fault)
        self._reports: dict[str, ServerReport] = {
            server.name: ServerReport(server=server.name, state="starting")
            for server in self._settings.servers
        }
        self._reloading: dict[str, Envelope] = {}
        self._reload_next: dict[str, Envelope] = {}
        self._latest = Registry()
        self._mark = RegistryMark(self._settings.runtime_dir)
        if recorded is None:
            self._kept.remove()
            self._take_described(specs_in_a_process(self._modules(), kept=self._kept))
        else:
            self.log.info("tools_as_before", modules=len(recorded.modules), faults=len(recorded.faults))
            self._sweep()
        self._registry()
        if self._reports:
            self.after(_PARKED_LOOK_S, self._look_for_parked)

    def stopping(self) -> None:
        """The daemon ends: its next life describes everything anew."""
        self._mark.remove()
        self._kept.remove()

    def handle(self, envelope: Envelope) -> None:
        """Answer what exists, take a server's report, switch a flag, or load the tools anew."""
        match envelope.body:
            case GetRegistry(known=known):
                registry = self._registry()
                self.reply(envelope, RegistryUnchanged() if known == registry.version else registry)
            case ServerReport() as report:
                self._take(report)
                self._registry()
                self.reply(envelope, True)
            case SwitchFeature(name=name, team=team, enabled=enabled):
                self.reply(envelope, self._switch(name, team, enabled))
            case ReloadTools():
                self._reload(envelope)

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

    def _switch(self, name: str, team: str, enabled: bool | None) -> bool | Failure:
        try:
            self._switches.switch(name, team, enabled)
        except OSError as fault:
            message = f"the switch of the feature {name!r} cannot be kept: {fault}"
            return Failure(kind="storage", message=message, retryable=True)
        self._registry()
        self.log.info("feature_switched", feature=name, team=team, enabled=enabled)
        return True

    def _registry(self) -> Registry:
        """Give the registry; a new version only when it differs from the last one.

        To be called before whoever changed something hears that it is done: then everybody can see that it is.
        """
        tools = dict(self._local.tools)
        for report in self._reports.values():
            tools |= {spec.name: spec for spec in report.tools if spec.name not in tools}
        seen = Registry(
            tools=tools,
            servers={name: self._as_seen(report) for name, report in self._reports.items()},
            faults=dict(self._local.faults),
            switches=self._switches.switches,
            version=self._latest.version,
        )
        if seen != self._latest or not seen.version:
            self._latest = replace(seen, version=uuid.uuid4().hex)
            self._set_mark()
        return self._latest

    def _set_mark(self) -> None:
        try:
            self._mark.put(self._latest.version)
        except OSError as fault:
            self.log.error("registry_mark_not_set", reason=str(fault))

    def _look_for_parked(self) -> None:
        """A supervisor parks a server without a word to us; a call of its tools fails in any case."""
        self._registry()
        self.after(_PARKED_LOOK_S, self._look_for_parked)

    # ------------------------------------------------------------ loading the tools
    def _modules(self) -> tuple[str, ...]:
        packages = modules_of_packages(self._settings.tool_packages)
        return tuple(dict.fromkeys((*self._settings.tool_modules, *packages)))

    def _reload(self, envelope: Envelope) -> None:
        """Who asks while a reload runs is answered by the one after it: this one may have read a module already."""
        if not self._reloading or envelope.request_id in self._reloading:
            is_first = not self._reloading
            self._reloading[envelope.request_id] = envelope
            if is_first:
                self._start_reload()
        else:
            self._reload_next[envelope.request_id] = envelope

    def _start_reload(self) -> None:
        """Have all modules described, on a thread that only waits for their processes; nobody else waits for them."""
        ready_fd, ring_fd = os.pipe2(os.O_CLOEXEC)
        PRIVATE_FDS.update((ready_fd, ring_fd))
        outcome: list[Mapping[str, Described] | Failure] = []
        self.watch(ready_fd, lambda _events: self._reloaded(ready_fd, outcome))
        arguments = (self._modules(), self._kept, outcome, ring_fd)
        threading.Thread(target=_describe, args=arguments, name="describe", daemon=True).start()

    def _reloaded(self, ready_fd: int, outcome: Sequence[Mapping[str, Described] | Failure]) -> None:
        self.unwatch(ready_fd)
        close_private(ready_fd)
        described = outcome[0]
        answer = described if isinstance(described, Failure) else self._take_described(described)
        self._registry()
        self.log.info("tools_reloaded", outcome=str(answer))
        askers, self._reloading, self._reload_next = self._reloading, self._reload_next, {}
        for envelope in askers.values():
            self.reply(envelope, answer)
        if self._reloading:
            self._start_reload()

    def _take_described(self, described: Mapping[str, Described]) -> Reloaded:
        rows = self._settings.tool_limits
        limited = {
            module: found if isinstance(found, ModuleFault) else as_configured(found, rows)
            for module, found in described.items()
        }
        self._kept.renew(self._local.kept_sources)
        changes = self._local.take(limited)
        self._keep_record()
        self._sweep()
        for module, reason in changes.faults.items():
            self.log.error("tool_module_not_loaded", module=module, reason=reason)
        return changes

    def _keep_record(self) -> None:
        try:
            self._record.write(Recorded(modules=self._local.modules, faults=self._local.faults))
        except OSError as fault:
            self.log.error("tools_not_recorded", reason=str(fault))

    def _sweep(self) -> None:
        """Take out the sources of which nothing is left but calls that wait; once more when their time is over."""
        self._kept.sweep(self._local.kept_sources, time.time())
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_timer = self.after(GRACE_S + 1.0, self._sweep)


def _describe(
    modules: Sequence[str], kept: KeptSources, outcome: list[Mapping[str, Described] | Failure], ring_fd: int
) -> None:
    try:
        outcome.append(specs_in_a_process(modules, kept=kept))
    except Exception as fault:  # the reload fails, with the reason; what was loaded stays
        message = f"the tools were not loaded anew: {type(fault).__name__}: {fault}"
        outcome.append(Failure(kind="reload_failed", message=message))
    finally:
        close_private(ring_fd)
