"""A bench for the supervisor's core: it plays the processes, the clock and the mailbox."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from callboard.supervisor import core_terms as terms
from callboard.supervisor.commands import Command, StartChild
from callboard.supervisor.core import SupervisorCore
from callboard.supervisor.spec import ChildSpec, SupervisorFlags


class Bench:
    """Runs a core to rest after each step. What children do: ``starts[id]`` and ``stops[id]``, by behaviour.

    A start is ``ok`` (the default), ``hang``, ``ignore``, or a reason to fail with; a stop is ``obey``, ``hang``,
    ``unkillable``, or a reason to end with; ``starts`` are used up one by one, the last one stays. ``log`` holds
    (what, id) in order.
    """

    def __init__(self, *children: ChildSpec, random: float = 0.0, **flags: Any) -> None:
        self.core = SupervisorCore(SupervisorFlags(**flags), children, lambda: random)
        self.now = 0.0
        self.starts: dict[str, list[str]] = defaultdict(lambda: ["ok"])
        self.stops: dict[str, str] = defaultdict(lambda: "obey")
        self.infos: dict[str, object] = {}
        self.lives: dict[str, int] = {}
        self.specs: dict[str, ChildSpec] = {}
        self.log: list[tuple[str, str]] = []
        self.reports: list[terms.Report] = []
        self.delays: list[float] = []
        self.shown: dict[str, str] = {}
        self.up = False
        self.ended: str | None = None
        self._answers: dict[str, Any] = {}
        self._refs = itertools.count()
        self._mail: deque[terms.Event] = deque()
        self._timers: list[tuple[float, int, terms.TimerDue]] = []
        self._numbers = itertools.count()

    # ------------------------------------------------------------ steps
    def boot(self) -> Bench:
        """Start the static children."""
        return self.feed(terms.Boot())

    def feed(self, *events: terms.Event) -> Bench:
        """Put events into the mailbox, and run until it is empty."""
        self._mail.extend(events)
        while self._mail:
            for effect in self.core.handle(self._mail.popleft(), self.now):
                self._perform(effect)
        return self

    def exit(self, id: str, reason: str = "crashed: boom") -> Bench:
        """The child's process ends by itself."""
        return self.feed(self._death(id, reason))

    def exit_together(self, *ids: str, reason: str = "crashed: boom") -> Bench:
        """Several processes end before the supervisor hears of any."""
        return self.feed(*[self._death(id, reason) for id in ids])

    def up_now(self, id: str) -> Bench:
        """A child that hung in its start finishes it."""
        return self.feed(terms.ChildStarted(id, self.lives[id], self.infos.get(id)))

    def advance(self, seconds: float) -> Bench:
        """Let time pass; timers come when they are due."""
        until = self.now + seconds
        while self._timers and self._timers[0][0] <= until:
            self.now, _, due = heapq.heappop(self._timers)
            self.feed(due)
        self.now = until
        return self

    def ask(self, command: Command) -> Any:
        """Give a command; its answer, or None when it waits (see ``answer``)."""
        self.last_ref = f"ref-{next(self._refs)}"
        self.feed(terms.Asked(self.last_ref, command))
        return self._answers.get(self.last_ref)

    def answer(self, ref: str | None = None) -> Any:
        """The answer to a command given before (by default the last)."""
        return self._answers.get(ref or self.last_ref)

    def start(self, *specs: ChildSpec) -> Bench:
        """Start further children, which must succeed."""
        for spec in specs:
            assert isinstance(self.ask(StartChild(spec)), terms.ChildUp)
        return self

    def stop(self) -> Bench:
        """The parent wants the supervisor to end."""
        return self.feed(terms.Stop())

    # ------------------------------------------------------------ views
    def state(self, id: str) -> str | None:
        """The child's state; None when it is not known."""
        child = self.core.children.get(id)
        return child.state if child is not None else None

    def count(self, what: str, id: str) -> int:
        """How often (what, id) is in the log."""
        return self.log.count((what, id))

    def since(self, mark: int) -> list[tuple[str, str]]:
        """The log from ``mark`` on."""
        return self.log[mark:]

    def facts(self, id: str) -> list[tuple[str, str]]:
        """The facts reported of a child, with their reasons."""
        return [(report.fact, report.reason) for report in self.reports if report.id == id]

    # ------------------------------------------------------------ the world
    def _death(self, id: str, reason: str) -> terms.ChildExited:
        self.log.append(("exit", id))
        return terms.ChildExited(id, self.lives.pop(id), reason)

    def _perform(self, effect: terms.Effect) -> None:
        assert self.ended is None or isinstance(effect, terms.Answer), f"an effect after the end: {effect}"
        match effect:
            case terms.Spawn(spec, incarnation):
                assert spec.id not in self.lives, f"{spec.id} was started while it lives"
                self.log.append(("spawn", spec.id))
                self.lives[spec.id] = incarnation
                self.specs[spec.id] = spec
                self._start(spec.id, incarnation)
            case terms.AskToStop(id, incarnation):
                self.log.append(("ask", id))
                if self.lives.get(id) == incarnation and self.stops[id] not in ("hang", "unkillable"):
                    self._mail.append(
                        self._death(id, "shutdown" if self.stops[id] == "obey" else self.stops[id])
                    )
            case terms.Kill(id, incarnation):
                self.log.append(("kill", id))
                if self.lives.get(id) == incarnation and self.stops[id] != "unkillable":
                    self._mail.append(self._death(id, "killed by SIGKILL"))
            case terms.SetTimer(due, delay_s):
                if due.purpose == "restart":
                    self.delays.append(delay_s)
                if delay_s == 0:
                    self._mail.append(due)
                else:
                    heapq.heappush(self._timers, (self.now + delay_s, next(self._numbers), due))
            case terms.Answer(ref, body):
                assert ref not in self._answers, f"{ref} was answered twice"
                self._answers[ref] = body
            case terms.Report():
                self.reports.append(effect)
            case terms.Show(id, _, state):
                self.shown[id] = state or "gone"
            case terms.Up():
                assert not self.up
                self.up = True
            case terms.End(reason):
                self.ended = reason
            case terms.Abandon(id):
                self.lives.pop(id)

    def _start(self, id: str, incarnation: int) -> None:
        behaviours = self.starts[id]
        match behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]:
            case "ok":
                self._mail.append(terms.ChildStarted(id, incarnation, self.infos.get(id)))
            case "hang":
                pass
            case "ignore":
                self._mail.append(self._death(id, terms.IGNORED))
            case reason:
                self._mail.append(self._death(id, reason))


@pytest.fixture
def bench() -> Callable[..., Bench]:
    """Make a bench: ``bench(*children, **flags)``."""
    return Bench


@pytest.fixture
def spec() -> Callable[..., ChildSpec]:
    """Make a child spec: ``spec("a", restart="transient")``."""

    def make(id: str, **fields: Any) -> ChildSpec:
        return ChildSpec(id=id, actor="some.Actor", **fields)

    return make


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known that ties a test to rows of the list (pyproject.toml names it too)."""
    config.addinivalue_line(
        "markers", "covers(*rows): the rows of tests/unit/otp/rows.py that the test covers"
    )
