"""The actor of ``benchmarks/tools.py``: it hosts calls as a client does."""

from __future__ import annotations

import functools
import os
import resource
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from callboard.actors.call import Calls
from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope
from callboard.tools.content import ToolResult
from callboard.tools.contract import ToolContext, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Call the tool ``times`` times, ``at_once`` at a time. Answer: Ran.

    ``prepared``: each round waits, untimed, until workers stand ready for it, and ``all_s`` is the calls' time alone.
    """

    spec: ToolSpec
    times: int
    at_once: int = 1
    prepared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Seconds for each of the last 1,000 calls, and for all; and what the caller uses afterwards."""

    each_s: tuple[float, ...]
    all_s: float
    outcomes: tuple[str, ...]
    caller_cpu_s: float
    workers_cpu_s: float
    resident_kib: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """Fork so many processes that end at once, and wait for the last. Answer: seconds."""

    count: int


def _cpu_s() -> tuple[float, float]:
    own, workers = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, workers.ru_utime + workers.ru_stime


_LOOK_S = 0.002
_PAUSE_S = 0.02


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
                self._cpu = _cpu_s()
                self._spent_s = 0.0
                self._round()
            case Spawn(count):
                began = self.now()
                pids = [pid for _ in range(count) if (pid := os.fork()) or os._exit(0)]
                for pid in pids:
                    os.waitpid(pid, 0)
                self.reply(envelope, self.now() - began)

    def _round(self) -> None:
        """Begin so many calls as run at once, where it is wanted with a worker ready for each."""
        if self._run.prepared:
            wanted = [self._run.spec] * self._run.at_once
            self._calls.prepare(wanted)
            if self._calls.ready < len(wanted):
                self.after(_LOOK_S, self._round)
                return
        self._round_began = self.now()
        for _ in range(self._run.at_once):
            self._next()

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
            if not self._run.prepared:
                self._next()
            elif self._ended == self._begun:
                self._spent_s += self.now() - self._round_began
                self.after(_PAUSE_S, self._round)
            return
        self._spent_s += self.now() - self._round_began
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4
        own_s, workers_s = (after - before for after, before in zip(_cpu_s(), self._cpu, strict=True))
        ran = Ran(
            caller_cpu_s=own_s,
            workers_cpu_s=workers_s,
            each_s=tuple(self._each),
            all_s=self._spent_s if self._run.prepared else self.now() - self._began,
            outcomes=tuple(sorted(self._outcomes)),
            resident_kib=resident,
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
        )
        self.reply(self._envelope, ran)
