"""One call for a person, outside any conversation: decided and run as a call of a new conversation would be.

The decision is the toolbox's (flags, permissions, template, enabled set, approval), taken when the call is asked for
and again when it starts, behind the permission hook (``actors/call_gate.py``). A call that needs a person is over at
once: who asked decides, and asks anew with the approval, which is bound to the call as in a conversation. It holds
nothing of a user's and answers through ``over``. Used by ``actors/caller.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from callboard.actors.asked_calls import parse_arguments
from callboard.actors.call import Calls
from callboard.actors.call_gate import CallGate
from callboard.actors.events import ApprovalDecided, ApprovalRequested
from callboard.actors.items import FunctionCall
from callboard.actors.messages import CallQueued, CallWaits, Registry, RunTool, ToolRan, ToolRuns
from callboard.actors.registry_view import RegistryView
from callboard.actors.settings import Settings
from callboard.actors.toolbox import Toolbox
from callboard.actors.turn_approval import approval_digest
from callboard.actors.turn_effects import StartCall
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure, Principal
from callboard.tools.bounds import bounded, storable
from callboard.tools.content import TextBlock, ToolResult
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decision_layers import Grounds, Layer, layers_of

Over: TypeAlias = Callable[[ToolRan | CallWaits | Failure], None]


class CallerRun:
    """``envelope`` holds the RunTool. ``over(answer)`` follows ``start`` once, unless it is stopped."""

    def __init__(
        self,
        host: Child,
        settings: Settings,
        registry: RegistryView,
        calls: Calls,
        envelope: Envelope,
        over: Over,
    ) -> None:
        self.envelope = envelope
        self._host = host
        self._settings = settings
        self._registry = registry
        self._calls = calls
        self._over = over
        self._command: RunTool = envelope.body
        self._principal = envelope.principal or Principal()
        self._template = settings.templates[self._command.template]
        self._toolbox = Toolbox(settings.rules, self._template.tools, self._command.template, self._principal)
        if self._command.enable:
            self._toolbox.switched[self._command.tool] = True
        self._gate = CallGate(self._toolbox, registry, calls, self._context, self._run, self._refused)
        self._call = FunctionCall(
            call_id=self._command.call_id, tool=self._command.tool, arguments=self._command.arguments
        )
        self._decision = ""
        self._spec: ToolSpec | None = None
        self._runs: ToolRuns | None = None
        self._stopped = False

    def start(self) -> None:
        """Look what exists, waiting for the tool's server where that is at its first start; then decide."""
        self._registry.refresh(lambda server: self._command.tool.startswith(f"{server}__"), self._judge)

    def asked_again(self, envelope: Envelope) -> None:
        """Say whether it runs; whoever asks again waits still, and gives up where nobody answers."""
        self.envelope = envelope
        self._host.reply(envelope, self._runs or CallQueued())

    def take(self, call_id: str, result: ToolResult, duration_s: float) -> bool:
        """Take what a worker gave: this call's result, or its hook's; False when it is another's."""
        if call_id != self._command.call_id:
            return self._gate.take(call_id, result)
        self._over(self._ran(bounded(storable(result)), self._decision, round(duration_s, 4)))
        return True

    def stop(self) -> None:
        """End it by force; ``over`` is not called any more."""
        self._stopped = True
        self._gate.kill(self._command.call_id)
        self._calls.kill(self._command.call_id)

    # ------------------------------------------------------------ the decision
    def _judge(self, registry: Registry) -> None:
        if self._stopped:
            return
        if not registry.version:
            away = "the catalogue does not answer, so it is not known which tools exist"
            self._over(Failure(kind="unanswered", message=away, retryable=True))
            return
        call_id = self._command.call_id
        verdicts = self._toolbox.judge(registry, (self._call,))
        self._spec = registry.tools.get(self._command.tool)
        self._decision = verdicts.decisions[call_id]
        version = self._spec.digest if self._spec is not None else ""
        digest = approval_digest(self._call, tool_version=version, principal=self._principal)
        if call_id in verdicts.refusals:
            self._over(self._ran(verdicts.refusals[call_id], self._decision))
        elif call_id in verdicts.approvals and not self._command.approval:
            self._wait_for_a_person(digest, verdicts.approvals[call_id])
        else:
            self._begin()

    def _wait_for_a_person(self, digest: str, reason: str) -> None:
        asked = ApprovalRequested(
            turn_id="",
            call_id=self._command.call_id,
            tool=self._command.tool,
            arguments=parse_arguments(self._command.arguments),
            digest=digest,
            reason=reason,
        )
        self._over(CallWaits(asked=asked, layers=self._layers(self._decision)))

    def _begin(self) -> None:
        if self._command.approval:
            by = self._principal.user
            decided = ApprovalDecided(turn_id="", call_id=self._command.call_id, approved=True, by=by)
            self._toolbox.apply(decided)
            self._decision = f"permitted; approved by {by or 'a person'}"
        arguments = self._command.edited
        if arguments is None:
            arguments = parse_arguments(self._command.arguments) or {}
        effect = StartCall(call=self._call, arguments=dict(arguments), approval=self._command.approval)
        self._gate.start(effect)

    # ------------------------------------------------------------ from the gate
    def _run(self, effect: StartCall, spec: ToolSpec) -> None:
        self._spec = spec
        self._runs = ToolRuns(
            decision=self._decision, layers=self._layers(self._decision, effect.arguments, started=True)
        )
        self._host.reply(self.envelope, self._runs)
        principal = {"user": self._principal.user, "team": self._principal.team}
        self._host.log.info("tool_called", tool=spec.name, decision=self._decision, **principal)
        limits = (spec.deadline_s, self._command.deadline_s, self._template.tool_deadline_s)
        deadline_s = min(limit for limit in limits if limit is not None)
        context = self._context(effect.call.call_id, self._settings.tool_settings.get(spec.name, {}))
        self._calls.start(effect.call.call_id, spec, effect.arguments, context, deadline_s)

    def _refused(self, _call_id: str, result: ToolResult, decision: str) -> None:
        self._over(self._ran(result, decision))

    def _context(self, call_id: str, settings: Mapping[str, Any]) -> ToolContext:
        principal = self._principal
        return ToolContext(
            call_id=call_id,
            user=principal.user,
            team=principal.team,
            roles=principal.roles,
            settings=settings,
        )

    # ------------------------------------------------------------ the answer
    def _ran(self, result: ToolResult, decision: str, duration_s: float = 0.0) -> ToolRan:
        told = " ".join(block.text for block in result.content if isinstance(block, TextBlock))
        layers = self._runs.layers if self._runs is not None else self._layers(decision, told=told)
        return ToolRan(result=result, duration_s=duration_s, decision=decision, layers=layers)

    def _layers(
        self,
        decision: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        started: bool = False,
        told: str = "",
    ) -> tuple[Layer, ...]:
        rules = self._settings.rules
        grounds = Grounds(
            spec=self._spec,
            rules=rules,
            principal=self._principal,
            template=self._command.template,
            arguments=parse_arguments(self._command.arguments) if arguments is None else arguments,
            approved_by=self._principal.user if self._command.approval else None,
            enabled_for_it=self._command.enable,
            hook_agreed=started and bool(rules.permissions.hook),
        )
        return layers_of(decision, grounds, told)
