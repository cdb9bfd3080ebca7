"""The actor of ``benchmarks/tools.py``: it hosts calls as a client does."""

from __future__ import annotations

import functools
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callboard.actors.call import Calls
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.tools.content import ToolResult
from callboard.tools.contract import ToolContext, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Call the tool ``times`` times, ``at_once`` at a time. Answer: Ran."""

    spec: ToolSpec
    times: int
    at_once: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Seconds for each of the last 1,000 calls, and for all; and what the caller uses afterwards."""

    each_s: tuple[float, ...]
    all_s: float
    outcomes: tuple[str, ...]
    resident_kib: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork so many processes that end at once, and wait for the last. Answer: seconds."""

    count: int


class BenchActor(Child):
    """Does one Run at a time."""

    forks = True

    def start(self) -> None:
        """Be ready."""
        self._calls = Calls(self, self._finished, 64)

    def handle(self, envelope: Envelope) -> None:
        """Start a Run, or time a Spawn."""
        match envelope.body:
            case Run() as run:
                self._envelope, self._run = envelope, run
                self._each: deque[float] = deque(maxlen=1000)
                self._outcomes: set[str] = set()
                self._begun = self._ended = 0
                self._began = self.now()
                for _ in range(run.at_once):
                    self._next()
            case Spawn(count):
                began = self.now()
                pids = [pid for _ in range(count) if (pid := os.fork()) or os._exit(0)]
                for pid in pids:
                    os.waitpid(pid, 0)
                self.reply(envelope, self.now() - began)

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Take a worker's notice."""
        self._calls.take(message)

    def _next(self) -> None:
        if self._begun < self._run.times:
            self._begun += 1
            start = functools.partial(self._calls.start, f"c{self._begun}", self._run.spec, {}, ToolContext())
            start(60.0)

    def _finished(self, call_id: str, result: ToolResult, duration_s: float) -> None:
        self._each.append(duration_s)
        self._outcomes.add(result.outcome)
        self._ended += 1
        if self._ended < self._run.times:
            self._next()
            return
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4
        ran = Ran(
            each_s=tuple(self._each),
            all_s=self.now() - self._began,
            outcomes=tuple(sorted(self._outcomes)),
            resident_kib=resident,
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
        )
        self.reply(self._envelope, ran)
