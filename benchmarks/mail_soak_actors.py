"""The actors of the mail's soak run."""

from __future__ import annotations

import gc
import os
import random
import sys
from typing import Any

from thespian.actors import Actor, ActorExitRequest, ChildActorExited, PoisonMessage, WakeupMessage

_PATIENCE_S = 0.05


class Worker(Actor):  # type: ignore[misc]
    """Floods its peers, asks them, and asks for wakeups; reports what it still waits for."""

    def __init__(self) -> None:
        self.wakeups = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        match message:
            case ("hello",):
                self.send(sender, ("pid", os.getpid()))
            case ("load", peers, number, size):
                for n in range(number):
                    self.send(peers[n % len(peers)], ("note", b"x" * size))
                self.wakeups += 1
                self.wakeupAfter(_PATIENCE_S * random.random())
            case WakeupMessage():
                self.wakeups -= 1
            case ("left",):
                self.send(sender, ("leftover", self.wakeups, self._myRef.transport._post.waiting))


class Nursery(Actor):  # type: ignore[misc]
    """Keeps the workers, and replaces those that die."""

    def __init__(self) -> None:
        self.workers: dict[str, Any] = {}
        self.pids: dict[str, int] = {}

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        match message:
            case ("fill", number):
                for _ in range(number):
                    self._add()
                self.send(sender, "filled")
            case ("pid", pid):
                self.workers[str(sender)], self.pids[str(sender)] = sender, pid
            case ("pid",):
                self.send(sender, os.getpid())
            case ("blocks",):
                gc.collect()
                self.send(sender, sys.getallocatedblocks())
            case ("pids",):
                self.send(sender, list(self.pids.values()))
            case ("load", number, size):
                peers = list(self.workers.values())
                if peers:
                    few = random.sample(peers, min(3, len(peers)))
                    self.send(
                        random.choice(peers),
                        ("load", few, number if size < 50_000 else number // 50 + 1, size),
                    )
                self.send(sender, "loaded")
            case ("left",):
                self.asker, self.answers, self.asked = sender, [], len(self.workers)
                for worker in self.workers.values():
                    self.send(worker, ("left",))
            case ("leftover", wakeups, waiting):
                self.answers.append((wakeups, waiting))
                if len(self.answers) == self.asked:
                    waits = sum(n for _, n in self.answers) + self._myRef.transport._post.waiting
                    self.send(self.asker, {"wakeups": sum(n for n, _ in self.answers), "waiting": waits})
            case ChildActorExited():
                if self.workers.pop(str(message.childAddress), None) is not None:
                    self.pids.pop(str(message.childAddress))
                    self._add()
            case PoisonMessage() | ActorExitRequest():
                return

    def _add(self) -> None:
        self.send(self.createActor(Worker), ("hello",))
