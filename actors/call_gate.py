"""The gate in front of a call: decided again when the call starts, the permission hook asked, and only then run.

The decisions are ``actors/toolbox.py``'s, on the registry as it is at that moment; the hook runs in a worker. Of all
that may change between the model's request and the call's start (a toggle, a flag, a reload, an approval) nothing is
overlooked, because the decision is taken after the last wait. Used by ``client_calls.py`` and ``caller_run.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from callboard.actors.messages import Registry
from callboard.actors.registry_view import RegistryView
from callboard.actors.toolbox import Toolbox, said
from callboard.actors.turn_effects import StartCall
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec
from callboard.tools.decision import RefusalKind, Refused
from callboard.tools.permission_call import denial_of, hook_arguments, hook_spec

Run: TypeAlias = Callable[[StartCall, ToolSpec], None]
Refuse: TypeAlias = Callable[[str, ToolResult, str], None]
ContextOf: TypeAlias = Callable[[str, Mapping[str, Any]], ToolContext]


class Workers(Protocol):
    """What the gate needs of ``actors/call.py``, to run the hook."""

    def start(
        self,
        call_id: str,
        spec: ToolSpec,
        arguments: Mapping[str, Any],
        context: ToolContext,
        deadline_s: float,
    ) -> None:
        """Run it."""
        ...

    def kill(self, call_id: str) -> None:
        """End it by force."""
        ...


class CallGate:
    """``run(effect, spec)`` or ``refuse(call_id, result, decision)`` follows each start once, unless it is killed."""

    def __init__(
        self,
        toolbox: Toolbox,
        registry: RegistryView,
        workers: Workers,
        context_of: ContextOf,
        run: Run,
        refuse: Refuse,
    ) -> None:
        self._toolbox = toolbox
        self._registry = registry
        self._workers = workers
        self._context_of = context_of
        self._run = run
        self._refuse = refuse
        self._here: dict[str, StartCall] = {}
        self._hooks: dict[str, str] = {}

    def start(self, effect: StartCall) -> None:
        """Take a call in; what becomes of it is told later, never from inside this."""
        self._here[effect.call.call_id] = effect
        self._registry.look(lambda registry: self._looked(effect, registry))

    def kill(self, call_id: str) -> None:
        """Forget the call, if it is still here."""
        self._here.pop(call_id, None)
        for hook_id in [hook_id for hook_id, of in self._hooks.items() if of == call_id]:
            del self._hooks[hook_id]
            self._workers.kill(hook_id)

    def take(self, hook_id: str, result: ToolResult) -> bool:
        """Take a finished worker's result; False when it is not a hook's."""
        call_id = self._hooks.pop(hook_id, None)
        if call_id is None:
            return False
        effect, denial = self._here.get(call_id), denial_of(result)
        if effect is None:
            return True
        if denial is None:
            self._registry.look(lambda registry: self._decide(effect, registry))
        else:
            self._turn_away(effect, Refused(RefusalKind.NOT_PERMITTED, denial, denial))
        return True

    def _looked(self, effect: StartCall, registry: Registry) -> None:
        hook = self._toolbox.rules.permissions.hook
        decision = self._toolbox.at_start(registry, effect)
        if not hook or isinstance(decision, Refused):
            self._decide(effect, registry)
        elif self._is_here(effect):
            permissions, call_id = self._toolbox.rules.permissions, effect.call.call_id
            hook_id = f"{uuid.uuid4().hex}:{call_id}"
            self._hooks[hook_id] = call_id
            arguments = hook_arguments(hook, decision.spec, effect.arguments)
            spec = hook_spec(permissions.hook_deadline_s)
            self._workers.start(hook_id, spec, arguments, self._context_of(call_id, {}), spec.deadline_s)

    def _decide(self, effect: StartCall, registry: Registry) -> None:
        decision = self._toolbox.at_start(registry, effect)
        if isinstance(decision, Refused):
            self._turn_away(effect, decision)
        elif self._is_here(effect):
            del self._here[effect.call.call_id]
            self._run(effect, decision.spec)

    def _turn_away(self, effect: StartCall, refused: Refused) -> None:
        if self._is_here(effect):
            del self._here[effect.call.call_id]
            self._refuse(effect.call.call_id, error_result(refused.message, "denied"), said(refused))

    def _is_here(self, effect: StartCall) -> bool:
        return self._here.get(effect.call.call_id) is effect
