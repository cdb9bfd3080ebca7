"""A decision on a call, spread out: what each layer said, for a person who wants to know why.

Pure. It decides nothing: it reads the decision as the log has it (``tools/decision.py``, ``actors/toolbox.py``) and
says of each layer that was asked before the one that objected why it let the call pass. Called by the caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from callboard.tools.approval import Need
from callboard.tools.contract import ToolSpec
from callboard.tools.decision import RefusalKind, Rules
from callboard.tools.permissions import Principal

Verdict: TypeAlias = Literal["passed", "refused", "not asked"]

BAD_ARGUMENTS = "bad_arguments"
_ARGUMENTS = "arguments"
_NAMES: Mapping[str, str] = {
    RefusalKind.UNKNOWN: "registered",
    RefusalKind.FEATURE_OFF: "feature flag",
    RefusalKind.NOT_PERMITTED: "permitted",
    RefusalKind.NOT_IN_TEMPLATE: "template",
    RefusalKind.NOT_ENABLED: "enabled",
    RefusalKind.UNAVAILABLE: "available",
    "tool_changed": "unchanged",
    BAD_ARGUMENTS: _ARGUMENTS,
    RefusalKind.NOT_APPROVED: "approved",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of a decision, in the order in which they are asked, and what it said."""

    name: str
    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What the layers looked at. ``spec`` is None for a tool that does not exist, ``arguments`` for what is no object.

    ``approved_by`` is who approved of this call; ``hook_agreed``: the permission hook was asked; ``enabled_for_it``:
    the tool was enabled for this call, whatever the template says.
    """

    spec: ToolSpec | None
    rules: Rules
    principal: Principal
    template: str
    arguments: Mapping[str, Any] | None = None
    approved_by: str | None = None
    hook_agreed: bool = False
    enabled_for_it: bool = False


def layers_of(decision: str, grounds: Grounds, told: str = "") -> tuple[Layer, ...]:
    """Give every layer's verdict. ``decision`` is the log's text; ``told`` is the reason where that has none."""
    kind, _, reason = decision.partition(": ")
    kinds = list(_kinds())
    if kind not in kinds:
        return tuple(Layer(name=_name(one), verdict="passed", reason=_why(one, grounds)) for one in kinds)
    at = kinds.index(kind)
    passed = [Layer(name=_name(one), verdict="passed", reason=_why(one, grounds)) for one in kinds[:at]]
    asked_no_more = [Layer(name=_name(one), verdict="not asked") for one in kinds[at + 1 :]]
    return (*passed, Layer(name=_name(kind), verdict="refused", reason=reason or told), *asked_no_more)


def denied(layers: tuple[Layer, ...], reason: str) -> tuple[Layer, ...]:
    """Give the layers of a call that only lacked a person's approval, which it did not get."""
    return (*layers[:-1], Layer(name=layers[-1].name, verdict="refused", reason=reason))


def _kinds() -> Iterator[str]:
    """The kinds of refusal, in order; the arguments are checked when nothing but a person is left to ask."""
    for kind in RefusalKind:
        if kind is RefusalKind.NOT_APPROVED:
            yield BAD_ARGUMENTS
        yield kind.value


def _name(kind: str) -> str:
    return _NAMES.get(kind, kind.replace("_", " "))


def _why(kind: str, grounds: Grounds) -> str:
    spec = grounds.spec
    if spec is None:
        return ""
    match kind:
        case RefusalKind.UNKNOWN:
            return f"a tool of the server {spec.server}" if spec.server else f"a local tool, in {spec.module}"
        case RefusalKind.FEATURE_OFF:
            return (
                f"its feature {spec.feature!r} is on" if spec.feature else "no feature that it needs is off"
            )
        case RefusalKind.NOT_PERMITTED:
            said = grounds.rules.permissions.of(spec.name, grounds.principal, grounds.arguments).reason
            return f"{said}; the permission hook agrees" if grounds.hook_agreed else said
        case RefusalKind.NOT_IN_TEMPLATE:
            return f"{grounds.template!r} allows it"
        case RefusalKind.NOT_ENABLED:
            return "enabled for this call" if grounds.enabled_for_it else f"{grounds.template!r} enables it"
        case "bad_arguments":
            return "they fit the tool's schema"
        case RefusalKind.NOT_APPROVED:
            return _approval(
                grounds, None if grounds.rules.approval is None else grounds.rules.approval.need(spec)
            )
    return ""


def _approval(grounds: Grounds, need: Need | None) -> str:
    if need is None:
        return "nobody has to be asked"
    if grounds.approved_by is None:
        return f"a person is to be asked: {need.reason}"
    return f"approved by {grounds.approved_by or 'a person'}: {need.reason}"
