"""The caller: runs one tool for a person, outside any conversation, on the same path as a model's call.

It holds the calls that are under way, each an ``actors/caller_run.py``, and answers who asked for them. A call belongs
to the process that asked: when that is gone, the call is ended. Nothing is logged in a conversation, and no call is run
again by another life of the caller. It loads no user's tools, and idles until it is asked.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from callboard.actors.call import Calls
from callboard.actors.caller_run import CallerRun
from callboard.actors.messages import CallWaits, RunTool, StopTool, ToolRan
from callboard.actors.owner import is_here
from callboard.actors.registry_view import RegistryView
from callboard.actors.settings import Settings
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure
from callboard.tools.content import Progress, ToolResult

Answer: TypeAlias = ToolRan | CallWaits | Failure

MOST_CALLS = 64
_ANSWERS_KEPT = 8
_REQUESTS_KNOWN = 4096


class CallerActor(Child):
    """``args``: ``settings``."""

    forks = True

    def start(self) -> None:
        """Be ready; nothing is loaded before it is needed."""
        self._settings: Settings = self.init.args["settings"]
        self._registry = RegistryView(self)
        self._runs: dict[str, CallerRun] = {}
        self._owners: dict[str, Callable[[], None]] = {}
        self._answered: OrderedDict[str, Answer] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._calls = Calls(self, self._finished, self._settings.workers_per_step, self._progressed)

    def handle(self, envelope: Envelope) -> None:
        """Run the tool that a RunTool names, once for each request; or end a call."""
        match envelope.body:
            case RunTool() as command:
                self._take(envelope, command)
            case StopTool(call_id=call_id):
                self._stop(call_id)
                self.reply(envelope, True)

    def stopping(self) -> None:
        """End what runs."""
        self._calls.stop()

    # ------------------------------------------------------------ requests
    def _take(self, envelope: Envelope, command: RunTool) -> None:
        run = self._runs.get(command.call_id)
        if envelope.request_id in self._answered:
            self.reply(envelope, self._answered[envelope.request_id])
        elif envelope.request_id in self._known:
            self.reply(
                envelope, Failure(kind="child_gone", message="it was answered; the answer is not kept")
            )
        elif run is not None:
            run.asked_again(envelope)
        else:
            fault = self._fault(command)
            self._answer(envelope, fault) if fault is not None else self._start_run(envelope, command)

    def _fault(self, command: RunTool) -> Failure | None:
        if command.caller_pid != os.getpid():
            told = f"the call of {command.tool} was lost; what became of it is not known, and it was not repeated"
            return Failure(kind="child_gone", message=told)
        if command.owner is not None and not is_here(command.owner):
            return Failure(kind="stopped", message="who asked for the call is gone")
        if len(self._runs) >= MOST_CALLS:
            return Failure(kind="overloaded", message=f"{MOST_CALLS} calls are under way already")
        if command.template not in self._settings.templates:
            known = ", ".join(sorted(self._settings.templates))
            told = f"there is no template {command.template!r}; the configuration has: {known}"
            return Failure(kind="no_such_template", message=told)
        return None

    def _start_run(self, envelope: Envelope, command: RunTool) -> None:
        def over(answer: Answer) -> None:
            self._over(command.call_id, answer)

        run = CallerRun(self, self._settings, self._registry, self._calls, envelope, over)
        self._runs[command.call_id] = run
        if command.owner is not None:
            self._owners[command.call_id] = self.monitor(
                command.owner.pid, lambda: self._stop(command.call_id)
            )
        run.start()

    def _stop(self, call_id: str) -> None:
        run = self._runs.get(call_id)
        if run is not None:
            run.stop()
            self._over(call_id, Failure(kind="stopped", message="the call was ended by who asked for it"))

    def _over(self, call_id: str, answer: Answer) -> None:
        self._owners.pop(call_id, lambda: None)()
        run = self._runs.pop(call_id, None)
        if run is not None:
            self._answer(run.envelope, answer)

    def _answer(self, envelope: Envelope, answer: Answer) -> None:
        self.reply(envelope, answer)
        self._answered[envelope.request_id] = _without_attachments(answer)
        self._known[envelope.request_id] = None
        for kept, most in ((self._answered, _ANSWERS_KEPT), (self._known, _REQUESTS_KNOWN)):
            if len(kept) > most:
                kept.popitem(last=False)

    # ------------------------------------------------------------ what the workers tell
    def _finished(self, call_id: str, result: ToolResult, duration_s: float) -> None:
        """A call's worker has finished, or that of a call's permission hook, whose id only its own call knows."""
        for run in tuple(self._runs.values()):
            if run.take(call_id, result, duration_s):
                return

    def _progressed(self, call_id: str, text: str, fraction: float | None) -> None:
        run = self._runs.get(call_id)
        if run is not None:
            self.reply(run.envelope, Progress(text, fraction))


def _without_attachments(answer: Answer) -> Answer:
    """What is kept in case the answer was lost must be small."""
    if not isinstance(answer, ToolRan):
        return answer
    return replace(answer, result=replace(answer.result, attachments=()))
