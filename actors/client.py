"""The client actor: owns one conversation while it is active.

It opens the log (and with it gets the epoch that makes it the only owner), carries out its callers' commands, takes
turns one at a time, tells its readers, and leaves when it is idle. What may run, what is written when, and how a turn
ends is decided elsewhere: ``client_turns.py`` runs the turns, ``client_calls.py`` their calls, ``subscribers.py`` tells
the readers, ``client_leaving.py`` says when to go. It loads neither a model client nor users' tools.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from callboard.actors.client_approvals import ClientApprovals
from callboard.actors.client_asking import Asking, send_to
from callboard.actors.client_attachments import ClientAttachments
from callboard.actors.client_closing import Closing
from callboard.actors.client_departure import Departure
from callboard.actors.client_log import ConversationLog
from callboard.actors.client_opening import Opening
from callboard.actors.client_turns import Turns
from callboard.actors.command_check import fault_of_command
from callboard.actors.events import (
    ConversationOpened,
    Event,
    TextDelta,
    ToolConfigured,
    ToolDisabled,
    ToolEnabled,
    TurnStarted,
)
from callboard.actors.log_writer import LogWriter
from callboard.actors.messages import (
    Ask,
    Cancel,
    CloseConversation,
    ConfigureTool,
    ConversationIsOpen,
    DecideCall,
    Delivery,
    DisableTool,
    EnableTool,
    Follow,
    GetApprovals,
    GetHistory,
    GetTools,
    History,
    LogOpened,
    ModelText,
    OpenConversation,
    Registry,
)
from callboard.actors.registry_view import RegistryView
from callboard.actors.settings import Settings
from callboard.actors.subscribers import Subscribers
from callboard.actors.turn import StorageFailed
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Failure, Principal
from callboard.tools.content import ToolResult

_LEAVE_UNOPENED_AFTER_S = 0.05


class ClientActor(Child):
    """``args``: ``settings``, ``conversation_id``, ``team``, ``create`` (its ConversationOpened when it may be new)."""

    forks = True

    # ------------------------------------------------------------ waking up
    def start(self) -> bool:
        """Ask the journal for the log; ready when it is there, or when it is known why it is not."""
        self._settings: Settings = self.init.args["settings"]
        self._id: str = self.init.args["conversation_id"]
        self._team: str = self.init.args["team"]
        self._log = ConversationLog(self._settings.rules)
        self._writer: LogWriter | None = None
        self._attachments: ClientAttachments | None = None
        self._unwritten = 0
        self._turns: Turns | None = None
        self._approvals: ClientApprovals | None = None
        self._asking: Asking | None = None
        self._closing: Closing | None = None
        self._is_ready = False
        self._registry = RegistryView(self)
        self._subscribers = Subscribers(
            self._log, lambda reader, news: send_to(self, reader, news), self._has_no_turn
        )
        key = (self._team, self._id)
        self._departure = Departure(self, key, self._settings.idle_after_s, self._is_idle, self._rest)
        self._opening = Opening(self, key, self._log_is, self._not_opened)
        self._opening.begin(self.init.args.get("create"))
        return False

    def _log_is(self, answer: LogOpened, create: ConversationOpened | None) -> None:
        self._log.remember(answer.events)
        self._writer = LogWriter(
            self,
            self._id,
            self._team,
            answer.epoch,
            self._log.last_seq,
            self._durable,
            self._refused,
            self._stuck,
        )
        self._attachments = ClientAttachments(self, self._id, self._team, answer.epoch)
        if self._log.is_empty and create is not None:
            self.append((create,), lambda: self._awake(answer.damaged))
        else:
            self._awake(answer.damaged)

    def _awake(self, damaged: bool) -> None:
        self._turns = Turns(self, self, self._settings, self._log, self._registry, self._subscribers)
        self._approvals = ClientApprovals(self, self._log, self._registry, self._turns, self.append)
        self._asking = Asking(self, self._turns, self._subscribers, self._refusal)
        self._closing = Closing(
            self, self._log, self.append, self._asking.cancel, self._has_turn, self._departure
        )
        self._say_ready()
        self._turns.take_up(damaged)
        self._closing.watch_owner()
        for letter in self._opening.done():
            self._carry_out(letter)

    def _not_opened(self, failure: Failure) -> None:
        self._writer = None
        self._say_ready()
        if self._opening.is_for_good:
            self._departure.hurry(_LEAVE_UNOPENED_AFTER_S)

    def _say_ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self.ready()
            self._departure.look_in(0.0)

    # ------------------------------------------------------------ leaving
    def _has_no_turn(self) -> bool:
        return self._turns is None or self._turns.is_idle

    def _has_turn(self) -> bool:
        return self._turns is not None and self._turns.present is not None

    def _is_idle(self) -> bool:
        now = self.now()
        if self._opening.failure is not None:
            return not self._opening.is_waited_for
        followed = self._subscribers.is_awaited(now) or self._subscribers.are_behind(now)
        return self._turns is not None and not self._unwritten and self._has_no_turn() and not followed

    def _rest(self) -> None:
        self._subscribers.tell_state("resting", self.now())

    def stopping(self) -> bool:
        """A turn under way is left to whoever takes it up: that is no loss."""
        if self._turns is None:
            return True
        self._turns.calls.stop()
        return not self._turns.interrupt()

    # ------------------------------------------------------------ commands
    def handle(self, envelope: Envelope) -> None:
        """Take a letter from the directory; it waits while the log is being opened."""
        match envelope.body:
            case Delivery(mark=mark, command=command):
                self._departure.leaving.handed(mark)
                letter = dataclasses.replace(envelope, body=command)
            case _:
                letter = envelope
        if not isinstance(letter.body, Follow):
            self._departure.leaving.touch(self.now())
        if self._turns is not None:
            self._carry_out(letter)
        else:
            self._opening.keep(letter)

    def _carry_out(self, letter: Envelope) -> None:
        """Carry out a command of the conversation's own principal; what is another's does not exist."""
        asking, closing = self._asking, self._closing
        assert asking is not None, "its log is open"
        assert closing is not None, "its log is open"
        if not self._belongs_to(letter.principal):
            self.reply(letter, Failure(kind="not_found", message=f"there is no conversation {self._id}"))
            return
        fault = fault_of_command(letter.body)
        if fault is not None:
            self.reply(letter, Failure(kind="bad_request", message=fault))
            return
        match letter.body:
            case OpenConversation():
                self.reply(letter, ConversationIsOpen(conversation_id=self._id))
            case Ask() as ask:
                asking.ask(letter, ask)
            case Follow() as follow:
                asking.read(letter, follow)
            case Cancel():
                self.reply(letter, asking.cancel("user"))
            case EnableTool(tool):
                self._toggle(letter, tool, ToolEnabled(tool=tool))
            case DisableTool(tool):
                self._toggle(letter, tool, ToolDisabled(tool=tool))
            case ConfigureTool(tool, settings):
                self._toggle(letter, tool, ToolConfigured(tool=tool, settings=settings))
            case DecideCall() as decision if self._approvals is not None:
                self._approvals.decide(letter, decision)
            case GetApprovals() if self._approvals is not None:
                self._approvals.tell(letter)
            case GetTools():
                toolbox = self._log.toolbox
                self._registry.refresh(toolbox.wants, lambda r: self.reply(letter, toolbox.states(r)))
            case GetHistory(after, limit):
                last = self._log.last_seq
                events = self._log.after(after, after + limit)
                self.reply(letter, History(events=events, more=after + limit < last))
            case CloseConversation():
                closing.ask(letter)

    def _belongs_to(self, principal: Principal | None) -> bool:
        opened = self._log.opened
        return principal is not None and (principal.user, principal.team) == (opened.user, opened.team)

    def _refusal(self) -> Failure | None:
        """Say why no message can be accepted now."""
        if self._log.is_closed or (self._closing is not None and self._closing.is_under_way):
            return Failure(kind="closed", message="the conversation is closed")
        return self._writer.fault if self._writer is not None else None

    def _toggle(
        self, letter: Envelope, tool: str, event: ToolEnabled | ToolDisabled | ToolConfigured
    ) -> None:
        def decided(registry: Registry) -> None:
            fault = self._log.toolbox.fault_of_enabling(registry, tool)
            if fault is not None and (fault.kind == "no_such_tool" or isinstance(event, ToolEnabled)):
                self.reply(letter, fault)
            else:
                self._log.toolbox.apply(event)
                self.append((event,), lambda: self.reply(letter, True))

        self._registry.refresh(self._log.toolbox.wants, decided)

    # ------------------------------------------------------------ turns
    def turn_over(self, ending: Event) -> None:
        """A turn has ended; the conversation too, where it is to be closed."""
        self._departure.leaving.touch(self.now())
        if self._closing is not None:
            self._closing.turn_over(ending)
        if self._has_no_turn():
            self._subscribers.tell_state("idle", self.now())

    def turn_left(self) -> None:
        """The turn is left for a successor: go."""
        self.finish("shutdown")

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Take text from the model."""
        turns = self._turns
        match message:
            case ModelText(request_id, text) if turns is not None:
                if turns.is_awaited(request_id) and turns.started is not None:
                    turn_id = turns.started.turn_id
                    self._subscribers.live(turn_id, TextDelta(turn_id=turn_id, text=text), self.now())

    # ------------------------------------------------------------ the log and its readers
    def append(self, events: tuple[Event, ...], then: Callable[[], None]) -> None:
        """Append to the log; ``then`` is called when it is durable."""
        assert self._writer is not None
        self._unwritten += len(events)
        self._writer.append(events, then)

    def store(self, result: ToolResult, then: Callable[[ToolResult], None]) -> None:
        """Store what is large in a result; ``then`` is called with it as it is to be logged."""
        assert self._attachments is not None
        self._attachments.store(result, then)

    def store_no_longer(self) -> None:
        """Call each ``then`` of ``store`` that waits, with the result as it is without what is large."""
        if self._attachments is not None:
            self._attachments.wait_no_longer()

    def _durable(self, events: tuple[Event, ...]) -> None:
        self._unwritten -= len(events)
        self._log.remember(events)
        self._subscribers.publish(events, self.now())
        if self._approvals is not None:
            self._approvals.durable(events)

    def _refused(self, failure: Failure, batch: tuple[Event, ...]) -> bool:
        """A turn whose acceptance could not be written was never accepted: its caller is told why."""
        if not failure.kind.startswith("storage") or len(batch) != 1:
            return False
        match batch[0]:
            case TurnStarted(turn_id=turn_id) if self._turns is not None and self._asking is not None:
                self._unwritten -= 1
                self._turns.forget()
                self._asking.refuse(turn_id, failure)
                self.then_continue(self._turns.begin_next)
                return True
            case ConversationOpened():
                self._unwritten -= 1
                self._opening.fail(failure)
                return True
        return False

    def _stuck(self, failure: Failure) -> None:
        if self._turns is not None:
            self._turns.feed(StorageFailed(kind=failure.kind, message=failure.message))
