"""Actors for the tests of the mail; loaded by name, so they stand in a module of their own."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from thespian.actors import (
    Actor,
    ActorExitRequest,
    ChildActorExited,
    DeadEnvelope,
    PoisonMessage,
    ThespianWatch,
    WakeupMessage,
    WatchMessage,
)


class Probe(Actor):  # type: ignore[misc]
    """Does what it is told: ``("command", ...)``; everything is answered or noted in ``seen``."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.children: list[Any] = []
        self.pipe: tuple[int, int] | None = None

    def receiveMessage(self, message: Any, sender: Any) -> Any:  # noqa: N802
        match message:
            case ("echo", body):
                self.send(sender, body)
            case ("length", body):
                self.send(sender, len(body))
            case ("who",):
                self.send(sender, (os.getpid(), str(self.myAddress), self.myAddress))
            case ("note", what):
                self.seen.append(what)
            case ("seen",):
                self.send(sender, self.seen)
            case ("counts",):
                self.send(sender, dict(self._myRef.transport._post.counts.counts))
            case ("fds",):
                self.send(sender, len(list(Path("/proc/self/fd").iterdir())))
            case ("child",):
                self.children.append(self.createActor(Probe))
                self.send(sender, self.children[-1])
                self.send(self.children[-1], ("report", sender))
            case ("report", to):
                self.send(to, (os.getpid(), self.myAddress))
            case ("flood", target, number):
                for n in range(number):
                    self.send(target, ("note", n))
            case ("relay", target, body):
                self.send(target, body)
            case ("waiting",):
                self.send(sender, self._myRef.transport._post.waiting)
            case ("bound", number):
                from callboard.transports import outbox

                outbox.Outbox.__init__.__defaults__ = (number, outbox.MAX_BYTES)
                self.send(sender, "bound")
            case ("last words", parent, number):
                for n in range(number):
                    self.send(parent, ("note", n))
                os.kill(os.getpid(), signal.SIGKILL)
            case ("block", seconds):
                time.sleep(seconds)
            case ("wake", delays):
                for delay in delays:
                    self.wakeupAfter(delay, payload=delay)
            case ("watch",):
                self.pipe = os.pipe()
                os.write(self.pipe[1], b"hello")
            case WatchMessage():
                assert self.pipe is not None
                self.seen.append(os.read(self.pipe[0], 100))
                for fd in self.pipe:
                    os.close(fd)
                self.pipe = None
            case WakeupMessage():
                self.seen.append(message.payload)
            case ChildActorExited():
                self.seen.append("exited")
            case PoisonMessage():
                self.seen.append("poison")
            case ("dead letters",):
                self.handleDeadLetters()
            case DeadEnvelope():
                self.seen.append(message.deadMessage)
            case ActorExitRequest():
                pass
        return ThespianWatch([self.pipe[0]]) if self.pipe is not None else None
