"""The base of every actor: one ``receiveMessage``, and what OTP gives for free around it.

It does the start handshake, matches answers to requests, runs timers, watches descriptors and other processes,
and lets an actor that raised crash for real with its reason (Thespian would redeliver the message and keep the
half-mutated object). A subclass states what it does in ``start``, ``handle`` and ``stopping``; it never overrides
``receiveMessage``, never returns a watch, and never sleeps.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import setproctitle
from thespian.actors import (
    Actor,
    ActorExitRequest,
    ActorSystemMessage,
    PoisonMessage,
    ThespianWatch,
    WakeupMessage,
    WatchMessage,
)

from callboard.supervisor import log, mends
from callboard.supervisor.envelope import (
    Busy,
    Envelope,
    Exiting,
    Failure,
    Ignored,
    Init,
    Ping,
    Pong,
    Reply,
    Shutdown,
    Started,
    StartFailed,
)
from callboard.supervisor.figures import figures_of
from callboard.supervisor.forgetting import forget_child
from callboard.supervisor.process import PRIVATE_FDS, close_private, close_to_others, open_pidfd
from callboard.supervisor.requests import UNANSWERED, Pending, Requests
from callboard.supervisor.table import ProcessTable
from callboard.supervisor.timers import Timer, Timers

RETRY_S = 0.25
_LOOK_AGAIN_S = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned:
    """A process that this actor has just started: its address in our book, its pid, and a pidfd."""

    address: Any
    pid: int
    pidfd: int


class Ignore(Exception):
    """Raised by ``start``: there is nothing to do here. The actor ends, and its parent does not miss it."""


class Child(Actor):
    """An actor under supervision. ``init`` holds who it is once ``start`` is called."""

    init: Init
    log: Any
    forks = False
    holds_secrets = False

    def __init__(self) -> None:
        super().__init__()
        self._parent: Any = None
        self._dying = False
        self._up = False
        self._timers = Timers()
        self._wakeup_at: float | None = None
        self._requests = Requests()
        self._continues: deque[Callable[[], None]] = deque()
        self._poller: select.epoll | None = None
        self._watched: dict[int, Callable[[int], None]] = {}

    # ------------------------------------------------------------ what a subclass states
    def start(self) -> bool | None:
        """Make ready. False: not up yet, ``ready()`` will be called later. Raising fails the start."""
        return None

    def handle(self, envelope: Envelope) -> None:
        """Carry out one command. Not called before ``start`` returned."""
        raise NotImplementedError

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Take any other message (life-cycle notices of children). Unknown ones are ignored."""

    def stopping(self) -> bool | None:
        """Clean up on Shutdown. False: not done yet, ``finish()`` will be called. Not called after a kill."""
        return None

    # ------------------------------------------------------------ what a subclass uses
    @property
    def table(self) -> ProcessTable:
        """The process table of this system."""
        return self._table

    def ready(self, info: object = None) -> None:
        """Tell the parent that the start is complete; ``info`` is for whoever asked for it."""
        if self.forks:
            gc.collect()
            gc.freeze()
        self._up = True
        started = Started(
            id=self.init.id,
            incarnation=self.init.incarnation,
            pid=os.getpid(),
            address=self.myAddress,
            info=info,
        )
        self.send(self._parent, started)

    def finish(self, reason: str = "normal") -> None:
        """End this actor for ``reason``: tell the parent, then leave. Nothing more is handled."""
        if self._dying:
            return
        self._dying = True
        notice = Exiting(id=self.init.id, incarnation=self.init.incarnation, reason=reason)
        self.send(self._parent, notice)
        self.send(self.myAddress, ActorExitRequest())

    def show_state(self, state: str) -> None:
        """Put one word on what the actor is doing into its process title, for ``ps`` and ``top``."""
        setproctitle.setproctitle(f"callboard: {self.init.id}" + (f" ({state})" if state else ""))

    def busy(self, for_s: float) -> None:
        """Announce a long operation: for so many seconds no heartbeat is to be expected."""
        self.send(self._parent, Busy(id=self.init.id, incarnation=self.init.incarnation, for_s=for_s))

    def now(self) -> float:
        """Give the monotonic clock, in seconds."""
        return time.monotonic()

    def after(self, delay_s: float, action: Callable[[], None]) -> Timer:
        """Run ``action`` after ``delay_s`` seconds, unless the timer is cancelled."""
        return self._timers.add(self.now() + max(0.0, delay_s), action)

    def then_continue(self, action: Callable[[], None]) -> None:
        """Run ``action`` right after this message and before any other (OTP's handle_continue)."""
        self._continues.append(action)

    def reply(self, envelope: Envelope, body: Any) -> None:
        """Answer the envelope, where an answer is wanted."""
        if envelope.reply_to is not None:
            self.send(
                envelope.reply_to, Reply(request_id=envelope.request_id, body=body, origin=self.init.id)
            )

    def ask(
        self,
        target: Any,
        body: Any,
        then: Callable[[Any], None],
        *,
        deadline_s: float,
        retry_s: float = RETRY_S,
        request_id: str | None = None,
        principal: Any = None,
    ) -> str:
        """Send a command and have ``then`` called once, with its answer or a Failure.

        ``target`` is a name in the process table or an address. It is sent again every ``retry_s`` until answered:
        only for commands that may arrive twice.
        """
        id = request_id or uuid.uuid4().hex
        pending = Pending(id, target, body, then, self.now() + deadline_s, retry_s, principal)
        if self._requests.add(pending):
            self._transmit(id)
            pending.expiry = self.after(deadline_s, lambda: self._requests.expire(id))
        else:
            full = Failure(kind="overloaded", message="too many requests are waiting", origin=self.init.id)
            self.then_continue(lambda: then(full))
        return id

    def forget(self, request_id: str) -> None:
        """Wait no longer for the answer to this request."""
        self._requests.forget(request_id)

    def tell(self, target: Any, body: Any) -> bool:
        """Send a command that needs no answer; False when the name is not to be found now."""
        address = self._resolve(target)
        if address is not None:
            self.send(address, Envelope(request_id=uuid.uuid4().hex, body=body))
        return address is not None

    def watch(
        self, fd: int, action: Callable[[int], None], events: int = select.EPOLLIN | select.EPOLLHUP
    ) -> None:
        """Call ``action(events)`` whenever the descriptor is ready, until ``unwatch``."""
        if self._poller is None:
            self._poller = select.epoll()
            PRIVATE_FDS.add(self._poller.fileno())
        self._poller.register(fd, events)
        self._watched[fd] = action

    def rewatch(self, fd: int, events: int) -> None:
        """Change what a watched descriptor is watched for."""
        if self._poller is not None and fd in self._watched:
            self._poller.modify(fd, events)

    def is_watched(self, fd: int) -> bool:
        """True while the descriptor is watched."""
        return fd in self._watched

    def unwatch(self, fd: int) -> None:
        """Watch the descriptor no longer; to be called before it is closed."""
        if self._watched.pop(fd, None) is None or self._poller is None:
            return
        # Whoever closed it before (a pipe whose reader is gone) made the kernel forget it already.
        with contextlib.suppress(OSError):
            self._poller.unregister(fd)

    def monitor(self, pid: int, action: Callable[[], None]) -> Callable[[], None]:
        """Call ``action`` once when the process is gone (at once if it is already). Gives a function that undoes it."""
        pidfd = open_pidfd(pid)
        if pidfd is None:
            self.then_continue(action)
            return lambda: None

        def undo() -> None:
            if pidfd in self._watched:
                self.unwatch(pidfd)
                close_private(pidfd)

        def gone(_events: int) -> None:
            undo()
            action()

        self.watch(pidfd, gone)
        return undo

    def spawn(self, actor: str, init: Init) -> Spawned | None:
        """Fork a child actor and send it its Init; None when the fork failed or it died at once."""
        procs = self._myRef._child_procs if hasattr(self._myRef, "_child_procs") else []
        known = {info.childProc.pid for info in procs}
        address = self.createActor(actor)
        new = [i for i in getattr(self._myRef, "_child_procs", []) if i.childProc.pid not in known]
        if not new:
            forget_child(self._myRef, address)
            return None
        pid = new[-1].childProc.pid
        pidfd = open_pidfd(pid)
        if pidfd is None:
            forget_child(self._myRef, address)
            return None
        self.send(address, init)
        return Spawned(address=address, pid=pid, pidfd=pidfd)

    def forget_child(self, spawned: Spawned) -> None:
        """Drop what Thespian holds about a child that has ended, or was killed; nothing is sent to it any more."""
        forget_child(self._myRef, spawned.address)
        mends.exit_code_of(spawned.pid)

    # ------------------------------------------------------------ the one entry
    def receiveMessage(self, message: Any, sender: Any) -> ThespianWatch | None:  # noqa: N802
        """Take one message from Thespian; never to be overridden."""
        if self._dying:
            return None
        try:
            self._dispatch(message, sender)
            self._run_continues()
            self._run_due()
        except Exception as fault:
            self._crash(fault)
            return None
        self._schedule()
        return ThespianWatch([self._poller.fileno()]) if self._poller is not None else None

    def _dispatch(self, message: Any, sender: Any) -> None:
        match message:
            case Envelope():
                self._handle(message)
            case Reply():
                self._requests.settle(message.request_id, message.body)
            case WatchMessage():
                self._run_ready()
            case WakeupMessage():
                self._wakeup_at = None
            case Init():
                self._begin(message, sender)
            case Shutdown():
                if self.stopping() is not False:
                    self.finish("shutdown")
            case Ping():
                self.send(sender, Pong(message.number, figures_of()))
            case PoisonMessage():
                self.log.error("mail_returned", reason=str(message.details)[:500])
            case ActorSystemMessage():
                return
            case _:
                self.handle_notice(message, sender)

    def _handle(self, envelope: Envelope) -> None:
        """An asker whose command makes us crash is told so: it would send it again, to each of our successors."""
        try:
            self.handle(envelope)
        except Exception as fault:
            failure = Failure(kind="crashed", message=f"{type(fault).__name__}: {fault}", origin=self.init.id)
            self.reply(envelope, failure)
            raise

    def _begin(self, init: Init, sender: Any) -> None:
        self._parent = sender
        self.init = init
        self._table = ProcessTable(init.runtime_dir)
        self.log = log.open_log(init.runtime_dir, child=init.id, incarnation=init.incarnation)
        self.show_state("")
        if self.holds_secrets:
            close_to_others()
        try:
            if self.start() is not False:
                self.ready()
        except Ignore:
            self.send(sender, Ignored(id=init.id, incarnation=init.incarnation))
            self.finish("normal")
        except Exception as fault:
            failure = Failure(kind="start_failed", message=f"{type(fault).__name__}: {fault}", origin=init.id)
            self.log.error("start_failed", reason=failure.message, exc_info=True)
            self.send(sender, StartFailed(id=init.id, incarnation=init.incarnation, failure=failure))
            self.finish(f"start_failed: {failure.message}")

    def _crash(self, fault: Exception) -> None:
        if hasattr(self, "log"):
            self.log.error("crashed", reason=f"{type(fault).__name__}: {fault}", exc_info=True)
        if hasattr(self, "init"):
            self.finish(f"crashed: {type(fault).__name__}: {fault}")
        else:
            self._dying = True
            self.send(self.myAddress, ActorExitRequest())

    def _run_continues(self) -> None:
        while self._continues and not self._dying:
            self._continues.popleft()()

    def _run_due(self) -> None:
        for action in self._timers.take_due(self.now()):
            if self._dying:
                return
            action()
            self._run_continues()

    def _run_ready(self) -> None:
        if self._poller is None:
            return
        # An action may close its descriptor, and another be opened under the same number before its turn comes.
        ready = [(fd, events, self._watched.get(fd)) for fd, events in self._poller.poll(0)]
        for fd, events, action in ready:
            if action is not None and self._watched.get(fd) is action and not self._dying:
                action(events)

    def _schedule(self) -> None:
        at = self._timers.next_at()
        if at is None or (self._wakeup_at is not None and self._wakeup_at <= at):
            return
        self._wakeup_at = at
        self.wakeupAfter(timedelta(seconds=max(0.0, at - self.now())))

    # ------------------------------------------------------------ requests
    def _resolve(self, target: Any) -> Any:
        if not isinstance(target, str):
            return target
        found = self.table.find(target)
        return found[0] if found else None

    def _transmit(self, request_id: str) -> None:
        pending = self._requests.get(request_id)
        if pending is None:
            return
        remaining = pending.deadline - self.now()
        if remaining <= 0:
            self._requests.expire(request_id)
            return
        address = self._resolve(pending.target)
        if address is not None:
            envelope = Envelope(
                request_id=request_id,
                body=pending.body,
                reply_to=self.myAddress,
                deadline_s=remaining,
                principal=pending.principal,
            )
            self.send(address, envelope)
        wait_s = pending.retry_s if address else _LOOK_AGAIN_S
        pending.again = self.after(wait_s, lambda: self._transmit(request_id))


__all__ = ["RETRY_S", "UNANSWERED", "Child", "Ignore", "Spawned"]
