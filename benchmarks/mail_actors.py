"""The actors that the mail's benchmark sends between."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from thespian.actors import Actor, ActorExitRequest


class Echo(Actor):  # type: ignore[misc]
    """Answers what it is asked; a large payload with its length only."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        match message:
            case ("ask", body):
                self.send(sender, ("answer", body))
            case ("payload", body):
                self.send(sender, ("length", len(body)))


class Pinger(Actor):  # type: ignore[misc]
    """Plays ping-pong with an Echo of its own, and sends it payloads; reports seconds to who asked."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        match message:
            case ("rounds", number):
                self._asker, self._left, self._number = sender, number, number
                self._peer = self.createActor(Echo)
                self.send(self._peer, ("ask", 0))
            case ("send", size):
                self._asker, self._peer = sender, self.createActor(Echo)
                self.send(self._peer, ("ask", size))
                self._left = -1
            case ("answer", size) if self._left == -1:
                body = os.urandom(1024) * (size // 1024)
                self._began, self._left = time.perf_counter(), 0
                self.send(self._peer, ("payload", body))
            case ("length", _):
                self.send(self._asker, time.perf_counter() - self._began)
                self.send(self._peer, ActorExitRequest())
            case ("answer", _):
                if self._left == self._number:
                    self._began = time.perf_counter()
                self._left -= 1
                if self._left < 0:
                    self.send(self._asker, (time.perf_counter() - self._began) / self._number)
                else:
                    self.send(self._peer, ("ask", 0))


class Counter(Actor):  # type: ignore[misc]
    """Counts what is flooded to it, and tells the flooder when all has come; floods in turn when told to."""

    seen = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        match message:
            case ("n", total, asker):
                self.seen += 1
                if self.seen == total:
                    self.seen = 0
                    self.send(asker, time.perf_counter())
            case ("flood", target, total):
                began = time.perf_counter()
                for _ in range(total):
                    self.send(target, ("n", total, sender))
                self.send(sender, ("began", began))
            case ("ask", body):
                self.send(sender, ("answer", body))


class Nursery(Actor):  # type: ignore[misc]
    """Creates many children at once and reports when all have answered, and its descriptors before and then."""

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        match message:
            case ("children", number):
                self._asker, self._left, self._number = sender, number, number
                self._fds = len(list(Path("/proc/self/fd").iterdir()))
                self._began = time.perf_counter()
                for _ in range(number):
                    self.send(self.createActor(Echo), ("ask", 0))
                self._created = time.perf_counter() - self._began
            case ("answer", _):
                self._left -= 1
                if self._left == 0:
                    fds = (len(list(Path("/proc/self/fd").iterdir())) - self._fds) / self._number
                    self.send(self._asker, (self._created, time.perf_counter() - self._began, fds))
