"""The caller: runs one tool for a person, outside any conversation, on the same path as a model's call.

It asks the catalogue what exists, reads and checks the arguments, and runs the call in a worker or on a server. The
person is the operator himself (``callboard tools call``), so nothing is permitted or approved here; nothing is logged
in a conversation. It loads no user's tools, and idles until it is asked.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from callboard.actors import names
from callboard.actors.call import Calls
from callboard.actors.messages import GetRegistry, Registry, RunTool, ToolRan
from callboard.actors.settings import Settings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure, Principal
from callboard.tools.arguments import ArgumentFault, parse_arguments
from callboard.tools.bounds import bounded, storable
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolContext, ToolSpec

_ANSWER_S = 5.0
_ANSWERS_KEPT = 8


class CallerActor(Child):
    """``args``: ``settings``."""

    forks = True

    def start(self) -> None:
        """Be ready; nothing is loaded before it is needed."""
        self._settings: Settings = self.init.args["settings"]
        self._asked: dict[str, Envelope] = {}
        self._answered: OrderedDict[str, ToolRan | Failure] = OrderedDict()
        self._calls = Calls(self, self._finished, self._settings.workers_per_step)

    def handle(self, envelope: Envelope) -> None:
        """Run the tool that a RunTool names, once for each request."""
        answered = self._answered.get(envelope.request_id)
        if answered is not None:
            self.reply(envelope, answered)
        elif isinstance(envelope.body, RunTool) and envelope.request_id not in self._asked:
            self._asked[envelope.request_id] = envelope
            self.ask(
                names.CATALOGUE,
                GetRegistry(),
                lambda answer: self._run(envelope, envelope.body, answer),
                deadline_s=_ANSWER_S,
            )

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Take a worker's notice."""
        self._calls.take(message)

    def stopping(self) -> None:
        """End what runs."""
        self._calls.stop()

    def _run(self, envelope: Envelope, command: RunTool, answer: Registry | Failure) -> None:
        if isinstance(answer, Failure):
            self._answer(envelope, answer)
            return
        spec = answer.tools.get(command.tool)
        if spec is None:
            message = f"there is no tool {command.tool!r}; 'callboard tools' lists them"
            self._answer(envelope, Failure(kind="no_such_tool", message=message))
            return
        down = answer.unavailable().get(spec.name)
        arguments = parse_arguments(command.arguments, spec.parameters)
        if down is not None:
            self._refuse(envelope, error_result(down, "unavailable"))
        elif isinstance(arguments, ArgumentFault):
            self._refuse(envelope, error_result(arguments.message))
        else:
            limits = [spec.deadline_s] + ([command.deadline_s] if command.deadline_s else [])
            context = self._context(envelope, spec)
            self._calls.start(envelope.request_id, spec, arguments, context, min(limits))

    def _context(self, envelope: Envelope, spec: ToolSpec) -> ToolContext:
        principal = envelope.principal or Principal()
        return ToolContext(
            call_id=envelope.request_id,
            user=principal.user,
            team=principal.team,
            roles=principal.roles,
            settings=self._settings.tool_settings.get(spec.name, {}),
        )

    def _finished(self, call_id: str, result: ToolResult, duration_s: float) -> None:
        envelope = self._asked.get(call_id)
        if envelope is not None:
            self._answer(envelope, ToolRan(result=bounded(storable(result)), duration_s=round(duration_s, 4)))

    def _refuse(self, envelope: Envelope, result: ToolResult) -> None:
        self._answer(envelope, ToolRan(result=result, duration_s=0.0))

    def _answer(self, envelope: Envelope, answer: ToolRan | Failure) -> None:
        self.reply(envelope, answer)
        self._asked.pop(envelope.request_id, None)
        self._answered[envelope.request_id] = answer
        if len(self._answered) > _ANSWERS_KEPT:
            self._answered.popitem(last=False)
