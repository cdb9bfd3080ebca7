"""When a person must be asked before a call: the policy (FEATURES T8; DESIGN, decision 11).

Pure. It knows tools and where they come from; it never knows who was asked and what they said. Called by
``tools/decision.py``, and by the client when a person decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from callboard.tools.contract import ToolSpec

Trust: TypeAlias = Literal["ask", "allow", "annotations"]


@dataclass(frozen=True, slots=True)
class Need:
    """A person must be asked, and why. ``first_use``: one approval of the tool holds for the whole conversation."""

    reason: str
    first_use: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalPolicy:
    """What asks. ``always`` and ``never`` are patterns over exposed names, ``always`` wins.

    A local tool asks when it says destructive. An external one does as its server is trusted: ``ask`` (the default)
    at the first use of each tool, ``annotations`` when it says destructive (or says nothing), ``allow`` never.
    A call that waits for a person longer than ``expires_s`` seconds is denied; None: it waits for ever.
    """

    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    servers: Mapping[str, Trust] = field(default_factory=dict)
    expires_s: float | None = 86_400.0

    def need(self, spec: ToolSpec) -> Need | None:
        """Say whether a call of this tool needs a person, and why; None when it does not."""
        if any(fnmatchcase(spec.name, pattern) for pattern in self.always):
            return Need("the configuration says that a person decides on each call")
        if any(fnmatchcase(spec.name, pattern) for pattern in self.never):
            return None
        if spec.server is None:
            return Need("the tool says that it is destructive") if spec.annotations.destructive else None
        match self.servers.get(spec.server, "ask"):
            case "allow":
                return None
            case "annotations" if spec.annotations.destructive:
                return Need("the tool may be destructive, as far as its server says")
            case "annotations":
                return None
        return Need(f"it is the first use of a tool of the server {spec.server}", first_use=True)

    def pins(self, spec: ToolSpec) -> bool:
        """Say whether a change of the tool needs a person: an external one that is not trusted whatever it is."""
        if spec.server is None or self.servers.get(spec.server, "ask") == "allow":
            return False
        named = [any(fnmatchcase(spec.name, one) for one in many) for many in (self.always, self.never)]
        return named[0] or not named[1]
