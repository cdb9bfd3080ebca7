"""Which feature flags are on, and for whom: from the configuration, and as the embedding service switched them since.

Pure. A tool names its flag (``@tool(feature="beta")``), or a flag names its tools by pattern. A flag that nobody has
configured or switched on is off. Called by ``tools/decision.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from callboard.tools.contract import ToolSpec
from callboard.tools.permissions import Principal

Switches: TypeAlias = Mapping[tuple[str, str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag. Where ``users``, ``teams`` or ``roles`` (patterns) are given, it is on for who fits one of each."""

    enabled: bool = True
    tools: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def is_on_for(self, principal: Principal) -> bool:
        """True when it is on for this principal."""
        return (
            self.enabled
            and _fits(self.users, (principal.user,))
            and _fits(self.teams, (principal.team,))
            and _fits(self.roles, principal.roles)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """All flags, and the switches thrown at run time by (flag, team); team ``""`` is everybody."""

    flags: Mapping[str, Flag] = field(default_factory=dict)

    def off(self, spec: ToolSpec, principal: Principal, switches: Switches) -> str | None:
        """Name the first flag of the tool that is off for the principal; None when all are on."""
        own = (spec.feature,) if spec.feature else ()
        named = (
            name
            for name, flag in self.flags.items()
            if any(fnmatchcase(spec.name, one) for one in flag.tools)
        )
        return next((name for name in (*own, *named) if not self.is_on(name, principal, switches)), None)

    def is_on(self, name: str, principal: Principal, switches: Switches) -> bool:
        """Say whether a flag is on: as switched for the team, else as switched for all, else as configured."""
        for team in (principal.team, ""):
            if (name, team) in switches:
                return switches[name, team]
        flag = self.flags.get(name)
        return flag is not None and flag.is_on_for(principal)


def _fits(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
