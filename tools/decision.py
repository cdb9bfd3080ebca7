"""The one decision per call: may this tool run now, and if not, why (FEATURES T4, T5, T7).

Pure. The layers are asked in one order, and the first that objects gives the reason: registered, feature flag,
permitted, in the template, enabled here, available, unchanged, approved. Nothing is changed here. Called by the client
when the model asks and once more when the call starts, and for lists of tools. Its messages are what the model reads.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from callboard.tools.approval import ApprovalPolicy
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.features import Features, Switches
from callboard.tools.permissions import Permissions, Principal
from callboard.tools.pins import Pin, change_of

_NAMES_SHOWN = 40


class RefusalKind(StrEnum):
    """Which layer refuses, in the order in which they are asked; written to the log as it stands."""

    UNKNOWN = "unknown_tool"
    FEATURE_OFF = "feature_off"
    NOT_PERMITTED = "not_permitted"
    NOT_IN_TEMPLATE = "not_in_template"
    NOT_ENABLED = "not_enabled"
    UNAVAILABLE = "unavailable"
    CHANGED = "tool_changed"
    NOT_APPROVED = "not_approved"


class Standing(StrEnum):
    """How a tool stands to a conversation: usable now, could be enabled, or out of order."""

    ENABLED = "enabled"
    AVAILABLE = "available"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the configuration says about tools, the same for all conversations.

    ``templates`` gives, by template, the patterns of the tools that its conversations may ever use; ``teams``, by
    server, those of the teams for which its tools exist. One that is not listed restricts nothing, but where any
    template is listed, one that is not has no tools.
    """

    features: Features = Features()
    permissions: Permissions = Permissions()
    approval: ApprovalPolicy | None = None
    templates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    teams: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What is so at the moment of a decision.

    ``unavailable`` gives the reason for each tool that cannot run now, ``switches`` the feature flags as switched
    since the start, ``approved`` the (tool, version digest) pairs that were approved for this whole conversation,
    ``pins`` the definitions of external tools that the conversation goes by.
    The defaults are those of a caller who brings his own tools: no rules, nobody is asked.
    """

    registry: Mapping[str, ToolSpec] = field(default_factory=dict)
    enabled: frozenset[str] = frozenset()
    unavailable: Mapping[str, str] = field(default_factory=dict)
    rules: Rules = Rules()
    principal: Principal = ToolContext()
    template: str = ""
    switches: Switches = field(default_factory=dict)
    approved: frozenset[tuple[str, str]] = frozenset()
    pins: Mapping[str, Pin] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may start; ``reason`` is for the log."""

    spec: ToolSpec
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The call may start when a person approves of it; ``reason`` is what the person is told.

    ``changed``: because the tool is not what the conversation knew.
    """

    spec: ToolSpec
    reason: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The call may not start; ``message`` goes to the model as the call's result, ``reason`` is its heart."""

    kind: RefusalKind
    message: str
    reason: str = ""


Decision: TypeAlias = Allowed | NeedsApproval | Refused


@dataclass(frozen=True, slots=True)
class ToolState:
    """One row of a conversation's tool list; ``reason`` is empty for an enabled tool.

    ``in_enabled_set`` stays true for a disabled tool that will be usable again by itself.
    """

    name: str
    description: str
    standing: Standing
    reason: str
    in_enabled_set: bool


def decide(
    name: str,
    situation: Situation,
    arguments: Mapping[str, Any] | None = None,
    *,
    approved_by: str | None = None,
) -> Decision:
    """Decide on a call of ``name``. ``arguments`` None: could any call be allowed?

    ``approved_by`` is who approved of this very call, None when nobody did.
    """
    refusal = _refusal(name, situation, arguments)
    if refusal is not None:
        kind, why = refusal
        hint = _hint(name, situation) if kind is RefusalKind.UNKNOWN else ""
        return Refused(kind, f"{why}.{hint} {_usable(situation)}", why)
    spec = situation.registry[name]
    permission = situation.rules.permissions.of(name, situation.principal, arguments)
    policy = situation.rules.approval
    need = None if policy is None else policy.need(spec)
    change = changed(name, situation)
    asked = (
        f"{RefusalKind.CHANGED}: {change}" if change is not None else need.reason if need is not None else ""
    )
    if not asked:
        return Allowed(spec, f"permitted ({permission.reason})")
    if approved_by is not None:
        return Allowed(spec, f"permitted ({permission.reason}); approved by {approved_by or 'a person'}")
    if (name, spec.digest) in situation.approved:
        return Allowed(spec, f"permitted ({permission.reason}); approved for this conversation")
    return NeedsApproval(spec, asked, changed=change is not None)


def changed(name: str, situation: Situation) -> str | None:
    """Say how a tool differs from what the conversation knew; None where it does not, or a person approved of it."""
    spec, pin, policy = situation.registry.get(name), situation.pins.get(name), situation.rules.approval
    if spec is None or pin is None or policy is None or not policy.pins(spec):
        return None
    if pin.version == spec.digest or (name, spec.digest) in situation.approved:
        return None
    return change_of(pin, spec)


def objection(name: str, situation: Situation) -> str | None:
    """Say why the tool could not be used here even if it were enabled and available; None when it could."""
    refusal = _refusal(name, situation, None, toggles=False)
    return None if refusal is None else refusal[1]


def listing(situation: Situation) -> tuple[ToolState, ...]:
    """Give the state of every tool that exists for the principal, by name; those, too, that are unavailable only."""
    here = visible(situation)
    gone = {name for name in situation.unavailable if name not in situation.registry}
    return tuple(_state(name, here.get(name), situation) for name in sorted(here.keys() | gone))


def visible(situation: Situation) -> dict[str, ToolSpec]:
    """Give the tools that exist for the principal's team: those of another team's server do not (FEATURES E4)."""
    return {name: spec for name, spec in situation.registry.items() if _exists_for(spec, situation)}


def usable(situation: Situation) -> list[str]:
    """Give the names of the tools that some call could start now, a person's approval apart; sorted."""
    return [name for name in sorted(situation.enabled) if _refusal(name, situation, None) is None]


def match_patterns(patterns: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Give the names that an enable list means; patterns have shell wildcards (``*``, ``time__*``)."""
    listed = tuple(patterns)
    return frozenset(name for name in names if any(fnmatchcase(name, pattern) for pattern in listed))


def unmatched_patterns(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """Give the patterns that mean no name at all, as written: most likely a slip to be told to the user."""
    known = tuple(names)
    return tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in known))


def _refusal(
    name: str, situation: Situation, arguments: Mapping[str, Any] | None, *, toggles: bool = True
) -> tuple[RefusalKind, str] | None:
    """Ask the layers in order; ``toggles`` says whether what changes by itself or by a command counts, too."""
    rules, principal = situation.rules, situation.principal
    spec = situation.registry.get(name)
    is_expected = spec is None and name in situation.enabled and name in situation.unavailable
    if not is_expected and (spec is None or not _exists_for(spec, situation)):
        return RefusalKind.UNKNOWN, f"there is no tool {name[:64]!r}"
    if spec is not None and (flag := rules.features.off(spec, principal, situation.switches)) is not None:
        return RefusalKind.FEATURE_OFF, f"the tool {name!r} is switched off here: its feature {flag!r} is off"
    permission = rules.permissions.of(name, principal, arguments)
    if not permission.allowed:
        return RefusalKind.NOT_PERMITTED, f"the tool {name!r} is not permitted here ({permission.reason})"
    if rules.templates and not _fits(rules.templates.get(situation.template, ()), name):
        told = f"the tool {name!r} is not among those of this conversation's template {situation.template!r}"
        return RefusalKind.NOT_IN_TEMPLATE, told
    if toggles and name not in situation.enabled:
        return RefusalKind.NOT_ENABLED, f"the tool {name!r} is not enabled in this conversation"
    if toggles and name in situation.unavailable:
        return RefusalKind.UNAVAILABLE, f"the tool {name!r} is unavailable: {situation.unavailable[name]}"
    return None


def _exists_for(spec: ToolSpec, situation: Situation) -> bool:
    teams = situation.rules.teams.get(spec.server or "", ("*",))
    return spec.server is None or _fits(teams, situation.principal.team)


def _state(name: str, spec: ToolSpec | None, situation: Situation) -> ToolState:
    description = spec.description if spec else ""
    is_enabled = name in situation.enabled
    why_not = (objection(name, situation) if spec else None) or situation.unavailable.get(name)
    if why_not is not None:
        return ToolState(name, description, Standing.DISABLED, why_not, is_enabled)
    if is_enabled and (change := changed(name, situation)) is not None:
        told = f"{RefusalKind.CHANGED}: {change}; a person is asked before it runs"
        return ToolState(name, description, Standing.DISABLED, told, True)
    if is_enabled:
        return ToolState(name, description, Standing.ENABLED, "", True)
    return ToolState(name, description, Standing.AVAILABLE, "not enabled in this conversation", False)


def _fits(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _hint(name: str, situation: Situation) -> str:
    close = difflib.get_close_matches(name[:64], usable(situation), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _usable(situation: Situation) -> str:
    names = usable(situation)
    if not names:
        return "No tool is enabled: answer without tools."
    more = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"The tools you can use are: {shown}."
