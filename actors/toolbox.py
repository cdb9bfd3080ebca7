"""Which tools a conversation may use, and the one decision on each of its calls. Pure.

The client folds the log into it (template's patterns, what was toggled, approved and pinned) and asks it when the model
asked, and once more when a call starts. What the layers are, and their order, is in ``tools/decision.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callboard.actors.events import (
    ApprovalDecided,
    ApprovalRequested,
    ConversationOpened,
    Event,
    ToolApproved,
    ToolConfigured,
    ToolDisabled,
    ToolEnabled,
    ToolPinned,
)
from callboard.actors.items import FunctionCall
from callboard.actors.messages import DecideCall, Registry, ToolState
from callboard.actors.turn_approval import approval_digest
from callboard.actors.turn_effects import StartCall
from callboard.actors.turn_inputs import ToolVersion, Verdicts
from callboard.supervisor.envelope import Failure, Principal
from callboard.tools.approval import Need
from callboard.tools.arguments import ArgumentFault, check_arguments, parse_arguments, with_defaults
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolSpec
from callboard.tools.decision import (
    Allowed,
    Decision,
    NeedsApproval,
    RefusalKind,
    Refused,
    Rules,
    Situation,
    changed,
    decide,
    listing,
    match_patterns,
    objection,
    usable,
    visible,
)
from callboard.tools.pins import Pin, as_pinned

_CHANGED = "the tool has changed since this call was approved; it was not run"


@dataclass(slots=True)
class Toolbox:
    """The enabled set, as patterns over names, so that a server that comes later brings its tools along.

    ``rules`` are the configuration's; ``settings`` go over its settings of a tool. The principal is the one of the
    conversation's opening, for ever.
    """

    rules: Rules = Rules()
    patterns: tuple[str, ...] = ()
    template: str = ""
    principal: Principal = Principal()
    switched: dict[str, bool] = field(default_factory=dict)
    settings: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    approved: set[tuple[str, str]] = field(default_factory=set)
    deciders: dict[str, str] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Take one event of the log into account."""
        match event:
            case ConversationOpened(user=user, team=team, roles=roles):
                self.patterns, self.template = event.enabled, event.template
                self.principal = Principal(user=user, team=team, roles=roles)
            case ToolEnabled(tool=tool):
                self.switched[tool] = True
            case ToolDisabled(tool=tool):
                self.switched[tool] = False
            case ToolConfigured(tool=tool, settings=settings):
                self.settings[tool] = settings or {}
            case ToolApproved(tool=tool, version=version):
                self.approved.add((tool, version))
            case ToolPinned(tool=tool, version=version):
                shown = event.parameters if isinstance(event.parameters, Mapping) else {}
                self.pins[tool] = Pin(version=version, description=event.description, parameters=shown)
            case ApprovalDecided(call_id=call_id, approved=True, by=by):
                self.deciders[call_id] = by
            case _ if event.terminal:
                self.deciders.clear()
            case _:
                return

    # ------------------------------------------------------------ the set
    def wants(self, server: str) -> bool:
        """True when a tool of this server could be enabled here, whatever its name."""
        prefix = f"{server}__"
        return bool(match_patterns(self.patterns, [f"{prefix}x"])) or any(
            name.startswith(prefix) for name in (*self.patterns, *self.switched)
        )

    def enabled(self, names: Iterable[str]) -> frozenset[str]:
        """Give those of ``names`` that are in the enabled set."""
        known = list(names)
        matched = set(match_patterns(self.patterns, known))
        return frozenset(name for name in known if self.switched.get(name, name in matched))

    def offered(self, registry: Registry) -> tuple[ToolSpec, ...]:
        """Give the specs that the model is shown, by name: those of which some call could start now.

        Of a tool that changed, it is shown what the conversation knew, until a person approves of the change.
        """
        here = self._situation(registry)
        return tuple(self._shown(here, name) for name in usable(here))

    def states(self, registry: Registry) -> tuple[ToolState, ...]:
        """List every tool that exists for this principal, with its state here and why it cannot be used."""
        return _states(self._situation(registry))

    def fault_of_enabling(self, registry: Registry, tool: str) -> Failure | None:
        """Say why the tool cannot be enabled here (``no_such_tool``, ``not_permitted``); None when it can."""
        here = self._situation(registry)
        if tool not in visible(here):
            return Failure(kind="no_such_tool", message=f"there is no tool {tool}")
        why = objection(tool, here)
        return None if why is None else Failure(kind="not_permitted", message=why)

    # ------------------------------------------------------------ the decision
    def judge(self, registry: Registry, calls: Sequence[FunctionCall]) -> Verdicts:
        """Decide on calls that the model asks for: which may not run, which need a person, and why."""
        here = self._situation(registry)
        refusals: dict[str, ToolResult] = {}
        approvals: dict[str, str] = {}
        decisions: dict[str, str] = {}
        for call in calls:
            match self._judged(here, call):
                case ArgumentFault(message):
                    refusals[call.call_id] = error_result(message)
                    decisions[call.call_id] = "bad_arguments"
                case Refused() as refused:
                    refusals[call.call_id] = error_result(refused.message, "denied")
                    decisions[call.call_id] = said(refused)
                case NeedsApproval(reason=reason):
                    approvals[call.call_id] = reason
                    decisions[call.call_id] = f"permitted; a person is asked: {reason}"
                case Allowed(reason=reason):
                    decisions[call.call_id] = reason
        versions = {
            call.tool: self._version(registry.tools[call.tool])
            for call in calls
            if call.tool in registry.tools
        }
        return Verdicts(refusals=refusals, approvals=approvals, decisions=decisions, tool_versions=versions)

    def at_start(self, registry: Registry, effect: StartCall) -> Allowed | Refused:
        """Decide again, now that the call is to start: rules, toggles and the tool itself may have changed since."""
        name, here = effect.call.tool, self._situation(registry)
        spec = visible(here).get(name)
        approved_by = None
        if spec is not None and effect.approval:
            digest = approval_digest(effect.call, tool_version=spec.digest, principal=self.principal)
            if digest != effect.approval:
                return Refused(RefusalKind.NOT_APPROVED, _CHANGED, _CHANGED)
            approved_by = self.deciders.get(effect.call.call_id, "")
        decision = _decided(name, here, effect.arguments, approved_by)
        match decision:
            case ArgumentFault(message):
                return Refused(RefusalKind.NOT_APPROVED, message, message)
            case NeedsApproval(changed=True):
                told = f"the tool {name!r} is not run: {changed(name, here)}"
                return Refused(RefusalKind.CHANGED, told, told)
            case NeedsApproval(reason=reason):
                told = f"the call of {name!r} needs a person's approval, which it does not have: {reason}"
                return Refused(RefusalKind.NOT_APPROVED, told, told)
            case Allowed(spec=allowed, reason=reason) if self._is_bound(allowed):
                return Allowed(replace(allowed, pinned=True), reason)
        return decision

    def answer(
        self, registry: Registry, asked: ApprovalRequested, given: DecideCall
    ) -> ToolApproved | Failure | None:
        """Check a person's decision: a Failure when it cannot stand, else what it means beyond this call, if anything.

        Edited arguments must fit the tool's schema and be permitted like any others. Those that the model gave for what
        a changed tool was need not: the person approves of the change, and the model may ask anew.
        """
        if not given.approved:
            return None
        spec = registry.tools.get(asked.tool)
        version = "" if spec is None else spec.digest
        call = FunctionCall(call_id=asked.call_id, tool=asked.tool, arguments=json.dumps(asked.arguments))
        if approval_digest(call, tool_version=version, principal=self.principal) != asked.digest:
            message = f"{asked.tool} has changed since the call was asked for: deny it, and it may be asked for anew"
            return Failure(kind="tool_changed", message=message)
        arguments = asked.arguments if given.arguments is None else given.arguments
        here = self._situation(registry)
        decision = _decided(asked.tool, here, arguments, approved_by="")
        is_new_schema = given.arguments is None and changed(asked.tool, here) is not None
        if isinstance(decision, Refused) or (isinstance(decision, ArgumentFault) and not is_new_schema):
            return Failure(kind="bad_arguments", message=decision.message)
        need = self._need(registry.tools[asked.tool])
        if given.scope == "conversation" or (need is not None and need.first_use):
            return ToolApproved(tool=asked.tool, version=version, by=self.principal.user)
        return None

    def _need(self, spec: ToolSpec) -> Need | None:
        return None if self.rules.approval is None else self.rules.approval.need(spec)

    def _is_bound(self, spec: ToolSpec) -> bool:
        """True where the version that was decided on, and no other, may run."""
        return self._need(spec) is not None or self._is_pinned(spec)

    def _is_pinned(self, spec: ToolSpec) -> bool:
        return self.rules.approval is not None and self.rules.approval.pins(spec)

    def _version(self, spec: ToolSpec) -> ToolVersion:
        known = self.pins.get(spec.name)
        if not self._is_pinned(spec) or (known is not None and known.version == spec.digest):
            return ToolVersion(spec.digest)
        pin = ToolPinned(
            tool=spec.name,
            version=spec.digest,
            description=spec.description,
            parameters=dict(spec.parameters),
        )
        return ToolVersion(spec.digest, pin)

    def _shown(self, here: Situation, name: str) -> ToolSpec:
        spec = here.registry[name]
        return spec if changed(name, here) is None else as_pinned(spec, self.pins[name])

    def _judged(self, here: Situation, call: FunctionCall) -> Decision | ArgumentFault:
        decision = decide(call.tool, here)
        if isinstance(decision, Refused):
            return decision
        schema = self._shown(here, call.tool).parameters
        parsed = parse_arguments(call.arguments, schema)
        if isinstance(parsed, ArgumentFault):
            return parsed
        return decide(call.tool, here, with_defaults(parsed, schema))

    def _situation(self, registry: Registry) -> Situation:
        return Situation(
            registry=registry.tools,
            enabled=self.enabled(registry.tools),
            unavailable=registry.unavailable(),
            rules=self.rules,
            principal=self.principal,
            template=self.template,
            switches=registry.switches,
            approved=frozenset(self.approved),
            pins=self.pins,
        )


def said(refused: Refused) -> str:
    """Give a refusal as the log has it: its kind and its reason."""
    return f"{refused.kind}: {refused.reason}"


def states(registry: Registry, enabled: frozenset[str]) -> tuple[ToolState, ...]:
    """List every tool of the registry: enabled, available (not enabled), or disabled (enabled, but down)."""
    return _states(Situation(registry=registry.tools, enabled=enabled, unavailable=registry.unavailable()))


def _states(here: Situation) -> tuple[ToolState, ...]:
    return tuple(
        ToolState(spec=here.registry[row.name], state=row.standing.value, reason=row.reason)
        for row in listing(here)
        if row.name in here.registry
    )


def _decided(name: str, here: Situation, arguments: Any, approved_by: str | None) -> Decision | ArgumentFault:
    decision = decide(name, here, approved_by=approved_by)
    if isinstance(decision, Refused) or (isinstance(decision, NeedsApproval) and decision.changed):
        return decision
    schema = decision.spec.parameters
    fault = check_arguments(arguments, schema)
    return fault or decide(name, here, with_defaults(arguments, schema), approved_by=approved_by)
