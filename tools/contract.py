"""The tool contract: what a tool is, as data (``ToolSpec``), and what its code is given (``ToolContext``).

Specs cross process boundaries; the functions behind them never do. The catalogue makes specs from
users' modules, a call's process loads the one function that a spec names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from callboard.tools.limits import EVERY_TOOL, ConfiguredLimits, Limits, tightened

DEFAULT_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotations:
    """What a tool says of itself. The defaults are a local tool's: it is the service's own code."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as the registry knows it.

    ``name`` is what the model sees (at most 64 characters of ``[A-Za-z0-9_-]``); ``parameters`` is a JSON
    Schema of type object. A local tool has ``module`` (a dotted name, or an absolute path ending in ``.py``)
    and ``attribute``; an external one has ``server`` and ``remote_name``. ``digest`` changes whenever what
    the model sees or the source file changes. ``deadline_s`` is in seconds, ``limits`` are a local tool's.
    ``trusted`` says whether the annotations may be acted on (running a call again after a
    crash). ``feature`` names the feature flag without which the tool is off, or is empty.
    ``pinned``: this version was decided on, so its server runs no other.
    ``kept_source`` is the path at which a catalogue keeps the module's source as it was described; the file's name is
    its digest, and where there is none its own file must be of that digest to be run. Empty: the module is loaded
    from its own file, as it is.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    annotations: Annotations = Annotations()
    deadline_s: float = DEFAULT_DEADLINE_S
    limits: Limits = Limits()
    digest: str = ""
    module: str | None = None
    attribute: str | None = None
    server: str | None = None
    remote_name: str | None = None
    trusted: bool = True
    feature: str = ""
    pinned: bool = False
    kept_source: str = ""

    @property
    def is_local(self) -> bool:
        """True for a Python tool, False for an external server's."""
        return self.server is None

    @property
    def repeatable(self) -> bool:
        """True when a call whose outcome is unknown may be run again (DESIGN, decision 5)."""
        return self.trusted and (self.annotations.idempotent or self.annotations.read_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """What a tool may know of its call. ``settings`` is the tool's own table from the configuration."""

    conversation_id: str = ""
    call_id: str = ""
    user: str = ""
    team: str = ""
    roles: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def as_configured(specs: Iterable[ToolSpec], rows: Mapping[str, ConfiguredLimits]) -> tuple[ToolSpec, ...]:
    """Give local tools' specs with the operator's limits: the row of every tool (``*``), and the tool's own."""
    limited = []
    for spec in specs:
        deadline_s, limits = tightened(
            spec.deadline_s, spec.limits, (rows.get(EVERY_TOOL), rows.get(spec.name))
        )
        limited.append(replace(spec, deadline_s=deadline_s, limits=limits))
    return tuple(limited)
