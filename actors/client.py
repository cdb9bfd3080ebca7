"""The client actor: owns one conversation while it is active. A shell around the turn machine.

It opens the log (and with it gets the epoch that makes it the only owner), takes turns one at a time, performs the
turn machine's effects, and tells subscribers. What may run, what is written when, and how a turn ends is decided by
``actors/turn.py``, ``actors/toolbox.py`` and the log. It loads neither a model client nor users' tools.
"""

from __future__ import annotations

from typing import Any

from callboard.actors import names
from callboard.actors.arrival import Arrival, Arrivals, fault_of
from callboard.actors.call import Calls
from callboard.actors.events import (
    ConversationClosed,
    ConversationOpened,
    Event,
    TextDelta,
    TextDiscarded,
    ToolDisabled,
    ToolEnabled,
    TurnCancelled,
    TurnFailed,
    TurnStarted,
)
from callboard.actors.history import items_of, unfinished_turn
from callboard.actors.items import FunctionCall
from callboard.actors.log_writer import LogWriter
from callboard.actors.messages import (
    Ask,
    Cancel,
    CloseConversation,
    ConversationIsOpen,
    DisableTool,
    EnableTool,
    GetHistory,
    GetTools,
    History,
    LogOpened,
    ModelText,
    News,
    OpenConversation,
    OpenLog,
    Registry,
)
from callboard.actors.model_call import ModelCall
from callboard.actors.owner import is_here
from callboard.actors.registry_view import RegistryView
from callboard.actors.settings import Settings, TemplateSettings
from callboard.actors.subscribers import Subscriber, Subscribers
from callboard.actors.toolbox import Toolbox
from callboard.actors.turn import (
    Append,
    AskModel,
    Begin,
    CallFinished,
    DeadlinePassed,
    Discard,
    Durable,
    Effect,
    Ended,
    Input,
    KillCall,
    ModelFailed,
    ModelReplied,
    Resume,
    RetryAfter,
    RetryDue,
    StartCall,
    StopModel,
    Turn,
    TurnLimits,
)
from callboard.actors.turn import Cancel as CancelTurn
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure, Principal, Reply
from callboard.supervisor.timers import Timer
from callboard.tools.arguments import ArgumentFault, parse_arguments
from callboard.tools.bounds import bounded, storable
from callboard.tools.content import ToolResult, error_result
from callboard.tools.contract import ToolContext

_OPEN_S = 15.0
_LEAVE_AFTER_S = 0.5


class ClientActor(Child):
    """``args``: ``settings``, ``conversation_id``, ``create`` (its ConversationOpened when it may be new)."""

    forks = True

    # ------------------------------------------------------------ waking up
    def start(self) -> bool:
        """Ask the journal for the log; ready when it is there."""
        self._settings: Settings = self.init.args["settings"]
        self._id: str = self.init.args["conversation_id"]
        self._turn: Turn | None = None
        self._started: TurnStarted | None = None
        self._deadline: Timer | None = None
        self._events: list[Event] = []
        self._toolbox = Toolbox()
        self._arrivals = Arrivals()
        self._closed = False
        self._registry = RegistryView(self)
        self._model = ModelCall(self, self._settings, self._id)
        self._calls = Calls(self, self._call_finished, self._settings.workers_per_step)
        self._subscribers = Subscribers(self._send_news)
        command = OpenLog(conversation_id=self._id, create=self.init.args.get("create"))
        self.ask(names.JOURNAL, command, self._log_is, deadline_s=_OPEN_S, retry_s=2.0)
        return False

    def _log_is(self, answer: LogOpened | Failure) -> None:
        if isinstance(answer, Failure):
            raise RuntimeError(f"{answer.kind}: {answer.message}")
        self._remember(answer.events)
        self._damaged = answer.damaged
        last = answer.events[-1].seq or 0 if answer.events else 0
        self._log = LogWriter(self, self._id, answer.epoch, last, self._durable, self._refused)
        create: ConversationOpened | None = self.init.args.get("create")
        if not answer.events and create is not None:
            self._log.append((create,), self._awake)
        else:
            self._awake()

    def _awake(self) -> None:
        opened = next((e for e in self._events if isinstance(e, ConversationOpened)), None)
        assert opened is not None, "a log begins with its opening"
        self._opened = opened
        self.ready()
        self._watch_owner()
        unfinished = unfinished_turn(self._events)
        if unfinished is None:
            self._leave_when_closed()
            return
        if self._damaged:
            message = "a part of the conversation's log was lost, so what the turn had done is not known"
            failed = TurnFailed(turn_id=unfinished.turn_id, reason="log_damaged", message=message)
            self._log.append((failed,), self._next_turn)
            return
        self._registry.refresh(self._toolbox.wants, lambda registry: self._resume(registry))

    def _watch_owner(self) -> None:
        owner = self._opened.owner
        if owner is None or self._closed:
            return
        if is_here(owner):
            self.monitor(owner.pid, self._owner_gone)
        else:
            self.then_continue(self._owner_gone)

    def _owner_gone(self) -> None:
        self.log.info("owner_gone", conversation=self._id)
        self._close("owner_gone")

    # ------------------------------------------------------------ commands
    def handle(self, envelope: Envelope) -> None:
        """Carry out one command of a caller, handed over by the directory; of the conversation's own principal only."""
        if not self._belongs_to(envelope.principal):
            failure = Failure(kind="not_found", message=f"there is no conversation {self._id}")
            self.reply(envelope, failure)
            return
        match envelope.body:
            case OpenConversation():
                self.reply(envelope, ConversationIsOpen(conversation_id=self._id))
            case Ask() as ask:
                self._ask(envelope, ask)
            case Cancel():
                self.reply(envelope, self._cancel("user"))
            case EnableTool(tool):
                self._toggle(envelope, tool, ToolEnabled(tool=tool))
            case DisableTool(tool):
                self._toggle(envelope, tool, ToolDisabled(tool=tool))
            case GetTools():
                self._registry.refresh(
                    self._toolbox.wants, lambda r: self.reply(envelope, self._toolbox.states(r))
                )
            case GetHistory(after, limit):
                later = [e for e in self._events if (e.seq or 0) > after]
                self.reply(envelope, History(events=tuple(later[:limit]), more=len(later) > limit))
            case CloseConversation():
                self._close("closed")
                self.reply(envelope, True)

    def _belongs_to(self, principal: Principal | None) -> bool:
        """What is another's does not exist: nobody learns that the id is taken."""
        opened = self._opened
        return principal is not None and (principal.user, principal.team) == (opened.user, opened.team)

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Take text from the model, or a result from a worker."""
        match message:
            case ModelText(request_id, text):
                if self._model.is_present(request_id) and self._started is not None:
                    turn_id = self._started.turn_id
                    self._subscribers.live(turn_id, TextDelta(turn_id=turn_id, text=text))
            case _:
                self._calls.take(message)

    def _ask(self, envelope: Envelope, ask: Ask) -> None:
        turn_id = envelope.request_id
        if self._knows(turn_id):
            self._subscribers.join(turn_id, envelope.reply_to, ask.after, self._events, self.now())
            return
        problem = "the conversation is closed" if self._closed else fault_of(ask)
        if problem is not None:
            self.reply(envelope, Failure(kind="closed" if self._closed else "bad_request", message=problem))
            return
        arrival = Arrival(turn_id=turn_id, ask=ask, envelope=envelope)
        if not self._arrivals.add(arrival):
            message = f"{self._arrivals.limit} messages wait in this conversation already"
            self.reply(envelope, Failure(kind="overloaded", message=message, retryable=True))
            return
        self._subscribers.join(turn_id, envelope.reply_to, 0, (), self.now())
        self._next_turn()

    def _knows(self, turn_id: str) -> bool:
        present = self._started is not None and self._started.turn_id == turn_id
        return present or any(isinstance(e, TurnStarted) and e.turn_id == turn_id for e in self._events)

    def _cancel(self, reason: str) -> bool:
        waiting = self._arrivals.clear()
        for arrival in waiting:
            self._subscribers.drop(arrival.turn_id)
            self.reply(arrival.envelope, Failure(kind="cancelled", message="cancelled before it began"))
        if self._turn is None:
            return bool(waiting)
        self._feed(CancelTurn(reason=reason))
        return True

    def _toggle(self, envelope: Envelope, tool: str, event: ToolEnabled | ToolDisabled) -> None:
        def decided(registry: Registry) -> None:
            if tool not in registry.tools:
                self.reply(envelope, Failure(kind="no_such_tool", message=f"there is no tool {tool}"))
            else:
                self._toolbox.apply(event)
                self._log.append((event,), lambda: self.reply(envelope, True))

        self._registry.refresh(self._toolbox.wants, decided)

    def _close(self, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._cancel(reason)
        if self._turn is None:
            self._log.append((ConversationClosed(reason=reason),), self._leave_when_closed)

    def _leave_when_closed(self) -> None:
        if self._closed and self._turn is None:
            self.after(_LEAVE_AFTER_S, lambda: self.finish("normal"))

    # ------------------------------------------------------------ turns
    def _template(self) -> TemplateSettings:
        fallback = TemplateSettings(system_prompt="You are a helpful assistant.")
        return self._settings.templates.get(self._opened.template, fallback)

    def _new_turn(self, deadline_s: float | None, without: str | None = None) -> Turn:
        template = self._template()
        limits = TurnLimits(max_steps=template.max_steps, on_cap=template.on_cap, deadline_s=deadline_s)
        return Turn(limits, items_of(self._events, template.system_prompt, without=without))

    def _next_turn(self) -> None:
        if self._turn is not None or self._closed:
            return
        arrival = self._arrivals.take()
        if arrival is None:
            return
        ask = arrival.ask
        deadline_s = ask.deadline_s if ask.deadline_s is not None else self._template().turn_deadline_s
        self._turn = self._new_turn(deadline_s)
        self._started = TurnStarted(
            turn_id=arrival.turn_id, text=ask.text, tool_deadline_s=ask.tool_deadline_s
        )
        self._set_deadline(deadline_s)
        self._feed(Begin(turn_id=arrival.turn_id, text=ask.text, tool_deadline_s=ask.tool_deadline_s))

    def _resume(self, registry: Registry) -> None:
        unfinished = unfinished_turn(self._events)
        if unfinished is None or self._turn is not None:
            return
        self._started = unfinished.started
        self._turn = self._new_turn(unfinished.started.deadline_s, without=unfinished.turn_id)
        specs = registry.tools
        repeatable = frozenset(
            call.call_id
            for call in unfinished.open_calls
            if call.tool in specs and specs[call.tool].repeatable
        )
        pending = (*unfinished.open_calls, *unfinished.pending_calls)
        refusals = self._refusals(registry, pending)
        self._set_deadline(unfinished.started.deadline_s)
        self._feed(Resume(unfinished=unfinished, repeatable=repeatable, refusals=refusals))
        if self._closed:
            self._cancel("owner_gone")

    def _set_deadline(self, deadline_s: float | None) -> None:
        if deadline_s is not None:
            self._deadline = self.after(deadline_s, lambda: self._feed(DeadlinePassed()))

    def _ended(self, event: Event) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._turn = self._started = None
        if self._closed:
            reason = event.reason if isinstance(event, TurnCancelled) else "closed"
            self._log.append((ConversationClosed(reason=reason),), self._leave_when_closed)
        self._next_turn()

    def _feed(self, input: Input) -> None:
        if self._turn is not None:
            for effect in self._turn.handle(input, self.now()):
                self._perform(effect)
            self.show_state(self._turn.state if self._turn is not None else "idle")

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Append(events=events, token=token):
                self._log.append(events, lambda: self._feed(Durable(token)))
            case AskModel():
                self._registry.refresh(
                    self._toolbox.wants, lambda registry: self._ask_model(effect, registry)
                )
            case StopModel():
                self._model.stop()
            case StartCall(call=call, arguments=arguments):
                self._start_call(call, arguments)
            case KillCall(call_id):
                self._calls.kill(call_id)
            case RetryAfter(delay_s):
                self.after(delay_s, lambda: self._feed(RetryDue()))
            case Discard(reason):
                self._discard(reason)
            case Ended(event):
                self._ended(event)

    # ------------------------------------------------------------ the model
    def _ask_model(self, effect: AskModel, registry: Registry) -> None:
        if self._turn is None:
            return
        tools = self._toolbox.offered(registry) if effect.tools_open else ()
        turn = self._turn

        def answered(input: ModelReplied | ModelFailed) -> None:
            if self._turn is turn:
                self._feed(self._with_refusals(input))

        self._model.start(effect.context, tools, answered)

    def _with_refusals(self, input: ModelReplied | ModelFailed) -> ModelReplied | ModelFailed:
        if isinstance(input, ModelFailed) or self._turn is None:
            return input
        reply = self._turn.with_unique_ids(input.reply)
        return ModelReplied(reply=reply, refusals=self._refusals(self._registry.latest, reply.calls))

    def _refusals(self, registry: Registry, calls: tuple[FunctionCall, ...]) -> dict[str, ToolResult]:
        refusals = {}
        for call in calls:
            refused = self._toolbox.refusal(registry, call.tool)
            if refused is None:
                parsed = parse_arguments(call.arguments, registry.tools[call.tool].parameters)
                refused = error_result(parsed.message) if isinstance(parsed, ArgumentFault) else None
            if refused is not None:
                refusals[call.call_id] = refused
        return refusals

    def _discard(self, reason: str) -> None:
        if self._started is not None:
            turn_id = self._started.turn_id
            self._subscribers.live(turn_id, TextDiscarded(turn_id=turn_id, reason=reason))

    # ------------------------------------------------------------ calls
    def _start_call(self, call: FunctionCall, arguments: dict[str, Any]) -> None:
        """The decision is taken again here: a tool may have been switched off since the model asked."""
        registry = self._registry.latest
        refused = self._toolbox.refusal(registry, call.tool)
        if refused is not None:
            self.then_continue(lambda: self._call_finished(call.call_id, refused, 0.0))
            return
        spec = registry.tools[call.tool]
        started_limit = self._started.tool_deadline_s if self._started else None
        limits = (spec.deadline_s, started_limit, self._template().tool_deadline_s)
        deadline_s = min(limit for limit in limits if limit is not None)
        context = ToolContext(
            conversation_id=self._id,
            call_id=call.call_id,
            user=self._opened.user,
            team=self._opened.team,
            roles=self._opened.roles,
            settings=self._settings.tool_settings.get(call.tool, {}),
        )
        self._calls.start(call.call_id, spec, arguments, context, deadline_s)

    def _call_finished(self, call_id: str, result: ToolResult, duration_s: float) -> None:
        kept = bounded(storable(result))
        self._feed(CallFinished(call_id=call_id, result=kept, duration_s=round(duration_s, 4)))

    # ------------------------------------------------------------ the log and its readers
    def _durable(self, events: tuple[Event, ...]) -> None:
        self._remember(events)
        self._subscribers.publish(events, self.now())

    def _refused(self, failure: Failure, batch: tuple[Event, ...]) -> bool:
        """A turn whose acceptance could not be written was never accepted: its caller is told why."""
        if len(batch) != 1 or not isinstance(batch[0], TurnStarted) or failure.kind == "stale_epoch":
            return False
        reader = self._subscribers.drop(batch[0].turn_id)
        if reader is not None:
            self.send(reader.reply_to, Reply(request_id=reader.turn_id, body=failure, origin=self.init.id))
        self._turn = self._started = None
        return True

    def _remember(self, events: tuple[Event, ...]) -> None:
        for event in events:
            self._events.append(event)
            self._toolbox.apply(event)
            self._closed = self._closed or isinstance(event, ConversationClosed)

    def _send_news(self, reader: Subscriber, news: News) -> None:
        self.send(reader.reply_to, Reply(request_id=reader.turn_id, body=news, origin=self.init.id))
