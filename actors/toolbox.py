"""Which tools a conversation may use: its template's patterns, and what was toggled since. Pure.

The client actor folds the log into it and asks it at every step and at every call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from callboard.actors.events import ConversationOpened, Event, ToolDisabled, ToolEnabled
from callboard.actors.messages import Registry, ToolState
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolSpec
from callboard.tools.decision import Refused, decide, listing, match_patterns


@dataclass(slots=True)
class Toolbox:
    """The enabled set, as patterns over names, so that a server that comes later brings its tools along."""

    patterns: tuple[str, ...] = ()
    switched: dict[str, bool] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Take one event of the log into account."""
        match event:
            case ConversationOpened(enabled=patterns):
                self.patterns = patterns
            case ToolEnabled(tool=tool):
                self.switched[tool] = True
            case ToolDisabled(tool=tool):
                self.switched[tool] = False
            case _:
                return

    def wants(self, server: str) -> bool:
        """True when a tool of this server could be enabled here, whatever its name."""
        prefix = f"{server}__"
        return bool(match_patterns(self.patterns, [f"{prefix}x"])) or any(
            name.startswith(prefix) for name in (*self.patterns, *self.switched)
        )

    def enabled(self, names: Iterable[str]) -> frozenset[str]:
        """Give those of ``names`` that the conversation may use."""
        known = list(names)
        matched = set(match_patterns(self.patterns, known))
        return frozenset(name for name in known if self.switched.get(name, name in matched))

    def offered(self, registry: Registry) -> tuple[ToolSpec, ...]:
        """Give the specs that the model is shown: enabled, and not known to be unavailable; by name."""
        down = registry.unavailable()
        names = self.enabled(registry.tools)
        return tuple(registry.tools[name] for name in sorted(names) if name not in down)

    def refusal(self, registry: Registry, tool: str) -> ToolResult | None:
        """Decide one call now: None when it may run, else the result that the model is given instead."""
        decision = decide(tool, registry.tools, self.enabled(registry.tools), registry.unavailable())
        if isinstance(decision, Refused):
            return error_result(decision.message, "denied")
        return None

    def states(self, registry: Registry) -> tuple[ToolState, ...]:
        """List every tool that exists with its state here and the reason where it cannot be used."""
        return states(registry, self.enabled(registry.tools))


def states(registry: Registry, enabled: frozenset[str]) -> tuple[ToolState, ...]:
    """List every tool of the registry: enabled, available (not enabled), or disabled (enabled, but down)."""
    return tuple(
        ToolState(spec=registry.tools[row.name], state=row.standing.value, reason=row.reason)
        for row in listing(registry.tools, enabled, registry.unavailable())
    )
