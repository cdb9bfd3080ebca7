"""A client's calls: which of those that the model asks for may run, and running them in their own context.

What is allowed decides ``actors/toolbox.py``, on the way through ``actors/call_gate.py``; how a call runs and ends,
``actors/call.py``. This is the place where the conversation's principal, its template and its settings meet the call.
Used by ``actors/client_turns.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from callboard.actors.call import Calls
from callboard.actors.call_gate import CallGate
from callboard.actors.client_log import ConversationLog
from callboard.actors.items import FunctionCall
from callboard.actors.messages import Registry
from callboard.actors.prepared import guess
from callboard.actors.registry_view import RegistryView
from callboard.actors.settings import Settings, TemplateSettings
from callboard.actors.turn import StartCall
from callboard.actors.turn_inputs import Verdicts
from callboard.supervisor.child import Child
from callboard.tools.content import ToolResult
from callboard.tools.contract import ToolContext, ToolSpec

Finished: TypeAlias = Callable[[str, ToolResult, float, str], None]


class ClientCalls:
    """The calls of one client; ``finished(call_id, result, duration_s, decision)`` follows each start, unless it is
    killed. ``decision`` is empty but for a call that was refused at its start.
    """

    def __init__(
        self,
        host: Child,
        settings: Settings,
        log: ConversationLog,
        registry: RegistryView,
        finished: Finished,
        progressed: Callable[[str, str, float | None], None],
    ) -> None:
        self._settings = settings
        self._log = log
        self._finished = finished
        self._limits_s: dict[str, float | None] = {}
        self._asked_last: tuple[str, ...] = ()
        self._calls = Calls(host, self._ended, settings.workers_per_step, progressed)
        self._gate = CallGate(log.toolbox, registry, self._calls, self._context, self._run, self._turned_away)

    def judge(self, registry: Registry, calls: tuple[FunctionCall, ...]) -> Verdicts:
        """Decide on calls that the model asks for, for the turn machine."""
        if calls:
            self._asked_last = tuple(call.tool for call in calls)
        return self._log.toolbox.judge(registry, calls)

    def prepare(self, offered: Sequence[ToolSpec]) -> None:
        """Have workers stand ready for what the model may ask for, of what it is offered; for nothing: end them."""
        specs = {spec.name: spec for spec in offered}
        self._calls.prepare(guess(self._asked_last, specs, self._settings.prepared_workers))

    def start(self, effect: StartCall, tool_deadline_s: float | None) -> None:
        """Decide again, and run the call: a tool may have been switched off since the model asked."""
        self._limits_s[effect.call.call_id] = tool_deadline_s
        self._gate.start(effect)

    def kill(self, call_id: str) -> None:
        """End the call by force; nothing more is heard of it."""
        self._limits_s.pop(call_id, None)
        self._gate.kill(call_id)
        self._calls.kill(call_id)

    def stop(self) -> None:
        """End all calls by force: their client leaves."""
        self._calls.stop()

    def _run(self, effect: StartCall, spec: ToolSpec) -> None:
        call_id = effect.call.call_id
        template = template_of(self._settings, self._log)
        limits = (spec.deadline_s, self._limits_s.pop(call_id, None), template.tool_deadline_s)
        configured = self._settings.tool_settings.get(effect.call.tool, {})
        own = self._log.toolbox.settings.get(effect.call.tool, {})
        context = self._context(call_id, {**configured, **own})
        deadline_s = min(limit for limit in limits if limit is not None)
        self._calls.start(call_id, spec, effect.arguments, context, deadline_s)

    def _context(self, call_id: str, settings: Mapping[str, Any]) -> ToolContext:
        opened = self._log.opened
        return ToolContext(
            conversation_id=opened.conversation_id,
            call_id=call_id,
            user=opened.user,
            team=opened.team,
            roles=opened.roles,
            settings=settings,
        )

    def _ended(self, call_id: str, result: ToolResult, duration_s: float) -> None:
        if not self._gate.take(call_id, result):
            self._finished(call_id, result, duration_s, "")

    def _turned_away(self, call_id: str, result: ToolResult, decision: str) -> None:
        self._limits_s.pop(call_id, None)
        self._finished(call_id, result, 0.0, decision)


def template_of(settings: Settings, log: ConversationLog) -> TemplateSettings:
    """Give the conversation's template; a plain one when the configuration has lost it."""
    fallback = TemplateSettings(system_prompt="You are a helpful assistant.")
    return settings.templates.get(log.opened.template, fallback)


__all__ = ["ClientCalls", "template_of"]
