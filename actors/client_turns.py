"""A client's turns, one at a time: the shell around the turn machine, and the messages that wait for their turn.

It feeds the machine and performs its effects with what the client has: the log, the model, the calls, the readers.
What is written when, and how a turn ends, decides ``actors/turn.py``. Used by ``actors/client.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from callboard.actors.arrival import Arrival, Arrivals
from callboard.actors.client_calls import ClientCalls, template_of
from callboard.actors.client_log import ConversationLog
from callboard.actors.events import ApprovalRequested, Event, TextDiscarded, ToolProgress, TurnStarted
from callboard.actors.history import items_of, unfinished_turn
from callboard.actors.messages import Registry
from callboard.actors.model_call import ModelCall
from callboard.actors.registry_view import RegistryView
from callboard.actors.settings import Settings, TemplateSettings
from callboard.actors.subscribers import Subscribers
from callboard.actors.turn import (
    Append,
    AskModel,
    Begin,
    CallFinished,
    Cancel,
    DeadlinePassed,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    Interrupt,
    KillCall,
    Left,
    ModelFailed,
    ModelReplied,
    Resume,
    RetryAfter,
    RetryDue,
    SetTimer,
    StartCall,
    StepTimedOut,
    StopModel,
    StorageFailed,
    Suspended,
    Turn,
    TurnLimits,
)
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Principal
from callboard.supervisor.timers import Timer
from callboard.tools.bounds import bounded, storable
from callboard.tools.content import ToolResult

_CUTS_OFF = (Cancel, DeadlinePassed, StepTimedOut, StorageFailed, Interrupt)


class Owner(Protocol):
    """What a client's turns need of the client."""

    def append(self, events: tuple[Event, ...], then: Callable[[], None]) -> None:
        """Append to the log; ``then`` is called when it is durable."""
        ...

    def store(self, result: ToolResult, then: Callable[[ToolResult], None]) -> None:
        """Store what is large in a result; ``then`` is called with it as it is to be logged."""
        ...

    def store_no_longer(self) -> None:
        """Call each ``then`` of ``store`` that waits, with the result as it is without what is large."""
        ...

    def turn_over(self, ending: Event) -> None:
        """Hear that a turn has ended, before the next one begins."""
        ...

    def turn_left(self) -> None:
        """Hear that the turn is left as it is, for a successor."""
        ...


class Turns:
    """The turn under way, if there is one, and the messages behind it."""

    def __init__(
        self,
        host: Child,
        owner: Owner,
        settings: Settings,
        log: ConversationLog,
        registry: RegistryView,
        subscribers: Subscribers,
    ) -> None:
        self._host = host
        self._owner = owner
        self._settings = settings
        self._log = log
        self._registry = registry
        self._subscribers = subscribers
        self._model = ModelCall(host, settings, log.opened.conversation_id)
        self.calls = ClientCalls(host, settings, log, registry, self._call_finished, self._progressed)
        self.arrivals = Arrivals()
        self.present: Turn | None = None
        self.started: TurnStarted | None = None
        self._damaged = False
        self._resuming = False
        self._stopping = False
        self._asking: AskModel | None = None
        self._when_taken_up: list[Callable[[], None]] = []
        self._timers: dict[type, Timer] = {}

    # ------------------------------------------------------------ what there is to do
    @property
    def is_idle(self) -> bool:
        """True when no turn is under way, or one that waits for a person, and no message waits."""
        resting = self.present is None or self.present.is_resting
        return resting and not self._resuming and not len(self.arrivals)

    def knows(self, turn_id: str) -> bool:
        """True when the turn was accepted, or its acceptance is being written."""
        present = self.started is not None and self.started.turn_id == turn_id
        return present or self._log.span(turn_id) is not None

    def take_up(self, damaged: bool) -> None:
        """Go on with the turn that a former client left without an ending, if there is one."""
        self._damaged = damaged
        if unfinished_turn(self._log.events) is not None:
            self._resuming = True
            self._registry.refresh(self._log.toolbox.wants, self._resume)

    @property
    def awaiting(self) -> tuple[ApprovalRequested, ...]:
        """The calls of the turn under way that wait for a person."""
        return self.present.awaiting if self.present is not None else ()

    def when_taken_up(self, action: Callable[[], None]) -> None:
        """Run ``action`` when an unfinished turn has been taken up; now, when there is none to take up."""
        self._when_taken_up.append(action)
        if not self._resuming:
            self._run_waiting()

    def _run_waiting(self) -> None:
        waiting, self._when_taken_up = self._when_taken_up, []
        for action in waiting:
            action()

    def add(self, arrival: Arrival) -> bool:
        """Queue a message, and begin its turn when it can; False when too many wait."""
        if not self.arrivals.add(arrival):
            return False
        self.begin_next()
        return True

    def begin_next(self) -> None:
        """Begin the next turn, unless one is under way or none waits; a client that stops begins none."""
        if self.present is not None or self._resuming or self._stopping or self._log.is_closed:
            return
        arrival = self.arrivals.take()
        if arrival is None:
            return
        ask = arrival.ask
        deadline_s = ask.deadline_s if ask.deadline_s is not None else self._template.turn_deadline_s
        self.present = self._new_turn(deadline_s)
        self.started = TurnStarted(
            turn_id=arrival.turn_id, text=ask.text, tool_deadline_s=ask.tool_deadline_s
        )
        self.feed(Begin(turn_id=arrival.turn_id, text=ask.text, tool_deadline_s=ask.tool_deadline_s))

    def cancel(self, reason: str) -> bool:
        """Cancel the turn under way; False when there is none. One that is just being taken up is cancelled too."""
        if self._resuming:
            self._resume(self._registry.latest)
        if self.present is None:
            return False
        self.feed(Cancel(reason=reason))
        return True

    def interrupt(self) -> bool:
        """Leave the turn under way as it is, on purpose; False when there is none to wait for."""
        self._stopping = True
        if self.present is None:
            return False
        self.feed(Interrupt())
        return True

    def forget(self) -> None:
        """The turn was never accepted: drop it."""
        self._over()

    # ------------------------------------------------------------ beginnings
    @property
    def _template(self) -> TemplateSettings:
        return template_of(self._settings, self._log)

    def _new_turn(self, deadline_s: float | None, without: str | None = None) -> Turn:
        template, opened = self._template, self._log.opened
        limits = TurnLimits(
            max_steps=template.max_steps,
            on_cap=template.on_cap,
            deadline_s=deadline_s,
            step_deadline_s=template.step_deadline_s,
            max_turn_calls=template.max_turn_calls,
        )
        history = items_of(self._log.events, template.system_prompt, without=without)
        return Turn(
            limits, history, principal=Principal(user=opened.user, team=opened.team, roles=opened.roles)
        )

    def _resume(self, registry: Registry) -> None:
        unfinished = unfinished_turn(self._log.events) if self._resuming else None
        self._resuming = False
        if unfinished is None or self.present is not None:
            self._run_waiting()
            return
        specs = registry.tools
        repeatable = frozenset(
            call.call_id
            for call in unfinished.open_calls
            if call.tool in specs and specs[call.tool].repeatable
        )
        judged = self.calls.judge(registry, (*unfinished.open_calls, *unfinished.pending_calls))
        self.started = unfinished.started
        self.present = self._new_turn(unfinished.started.deadline_s, without=unfinished.turn_id)
        resume = Resume(
            unfinished=unfinished,
            repeatable=repeatable,
            refusals=judged.refusals,
            approvals=judged.approvals,
            decisions=judged.decisions,
            tool_versions=judged.tool_versions,
            elapsed_s=unfinished.elapsed_s(datetime.now(UTC)),
            damaged=self._damaged,
        )
        self.feed(resume)
        self._run_waiting()

    # ------------------------------------------------------------ the machine
    def feed(self, given: Input) -> None:
        """Give the turn under way an input, and do what follows."""
        turn = self.present
        if isinstance(given, _CUTS_OFF):  # a call whose result is here, but for its contents, has finished
            self._owner.store_no_longer()
        if turn is None or turn is not self.present:
            return
        for effect in turn.handle(given, self._host.now()):
            self._perform(effect)
        self._host.show_state(self.present.state if self.present is not None else "idle")

    def _feed_to(self, turn: Turn | None, given: Input) -> None:
        if turn is self.present:
            self.feed(given)

    def _perform(self, effect: Effect) -> None:
        turn = self.present
        match effect:
            case Append(events=events, token=token):
                self._owner.append(events, lambda: self._feed_to(turn, Durable(token)))
            case AskModel():
                self._asking = effect
                self._registry.refresh(
                    self._log.toolbox.wants, lambda registry: self._ask_model(effect, registry)
                )
            case StopModel():
                self._asking = None
                self._model.stop()
            case StartCall():
                self.calls.start(effect, self.started.tool_deadline_s if self.started else None)
            case KillCall(call_id):
                self.calls.kill(call_id)
            case RetryAfter(delay_s):
                self._host.after(delay_s, lambda: self._feed_to(turn, RetryDue()))
            case SetTimer(due=due, after_s=after_s):
                self._set_timer(due, after_s)
            case Discard(reason):
                self._discard(reason)
            case Suspended():
                self._host.log.info("turn_suspended", turn=self._turn_id)
            case Left():
                self._over()
                self._owner.turn_left()
            case Ended(event):
                self._over()
                self._owner.turn_over(event)
                self.begin_next()

    def _over(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.present = self.started = self._asking = None
        self.calls.prepare(())

    def _set_timer(self, due: DeadlinePassed | StepTimedOut, after_s: float | None) -> None:
        former = self._timers.pop(type(due), None)
        if former is not None:
            former.cancel()
        if after_s is not None:
            self._timers[type(due)] = self._host.after(after_s, lambda: self.feed(due))

    # ------------------------------------------------------------ model and calls
    def _ask_model(self, effect: AskModel, registry: Registry) -> None:
        """The turn may have ended, or been given up, while the registry was asked."""
        if self._asking is not effect:
            return
        self._asking = None
        turn = self.present
        tools = self._log.toolbox.offered(registry) if effect.tools_open else ()

        def answered(given: ModelReplied | ModelFailed) -> None:
            if turn is not None and turn is self.present:
                self.feed(given if isinstance(given, ModelFailed) else self._judged(turn, given))

        self._model.start(
            effect.context,
            tools,
            answered,
            turn_at=effect.turn_at,
            policy=self._template.context_policy,
        )
        self.calls.prepare(tools)

    def _judged(self, turn: Turn, given: ModelReplied) -> ModelReplied:
        reply = turn.with_unique_ids(given.reply)
        judged = self.calls.judge(self._registry.latest, reply.calls)
        return dataclasses.replace(
            given,
            reply=reply,
            refusals=judged.refusals,
            approvals=judged.approvals,
            decisions=judged.decisions,
            tool_versions=judged.tool_versions,
        )

    def is_awaited(self, request_id: str) -> bool:
        """True while the reply to this request to the model is wanted."""
        return self.started is not None and self._model.is_present(request_id)

    def _call_finished(self, call_id: str, result: ToolResult, duration_s: float, decision: str) -> None:
        turn = self.present

        def stored(kept: ToolResult) -> None:
            finished = CallFinished(
                call_id=call_id, result=kept, duration_s=round(duration_s, 4), decision=decision
            )
            self._feed_to(turn, finished)

        self._owner.store(bounded(storable(result)), stored)

    def _progressed(self, call_id: str, text: str, fraction: float | None) -> None:
        progress = ToolProgress(turn_id=self._turn_id, call_id=call_id, text=text, fraction=fraction)
        self._subscribers.live(self._turn_id, progress, self._host.now())

    def _discard(self, reason: str) -> None:
        discarded = TextDiscarded(turn_id=self._turn_id, reason=reason)
        self._subscribers.live(self._turn_id, discarded, self._host.now())

    @property
    def _turn_id(self) -> str:
        return self.started.turn_id if self.started is not None else ""
