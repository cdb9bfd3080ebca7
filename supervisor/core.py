"""The supervisor's decisions, pure: ``handle(event, now)`` gives the effects that its actor performs.

It decides who is started, restarted, waited for, parked, stopped or given up (one_for_one and dynamic, OTP's
semantics with backoff in front of the intensity). It never spawns, kills, sleeps or reads a clock. Called by
``supervisor/supervisor.py`` alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from callboard.supervisor.envelope import Failure
from callboard.supervisor.intensity import RestartWindow
from callboard.supervisor.spec import ChildSpec, SpecError, SupervisorFlags

State: TypeAlias = Literal["starting", "running", "restarting", "parked", "stopping"]
CLEAN = frozenset({"normal", "shutdown"})


# ------------------------------------------------------------------ events
@dataclass(frozen=True, slots=True)
class Boot:
    """Start the static children, in order."""


@dataclass(frozen=True, slots=True)
class StartChild:
    """Somebody asks for a further child; ``ref`` comes back in the Answer."""

    spec: ChildSpec
    ref: str


@dataclass(frozen=True, slots=True)
class TerminateChild:
    """Somebody asks to stop the child and forget it."""

    id: str
    ref: str


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """The incarnation finished its start."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class ChildExited:
    """The incarnation's process is gone; ``reason`` is its own word, else ``killed``."""

    id: str
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer that SetTimer asked for."""

    id: str
    purpose: Literal["restart", "start", "stop", "reset"]
    incarnation: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The parent (or an escalation) wants the supervisor to end."""


Event: TypeAlias = Boot | StartChild | TerminateChild | ChildStarted | ChildExited | TimerDue | Stop


# ------------------------------------------------------------------ effects
@dataclass(frozen=True, slots=True)
class Spawn:
    """Start this incarnation."""

    spec: ChildSpec
    incarnation: int


@dataclass(frozen=True, slots=True)
class AskToStop:
    """Send the incarnation its Shutdown."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL the incarnation."""

    id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Deliver the TimerDue after ``delay_s`` seconds."""

    due: TimerDue
    delay_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request ``ref``: with the child's id, or a Failure."""

    ref: str
    body: str | Failure


@dataclass(frozen=True, slots=True)
class Show:
    """The child's row for the process table; ``state`` None removes it."""

    id: str
    state: State | None
    restarts: int


@dataclass(frozen=True, slots=True)
class Report:
    """A fact of life for the log."""

    id: str
    fact: str
    incarnation: int
    reason: str
    consecutive: int
    restarts: int
    delay_s: float | None = None


@dataclass(frozen=True, slots=True)
class Up:
    """All static children have started."""


@dataclass(frozen=True, slots=True)
class End:
    """No child is left: the supervisor ends with this reason."""

    reason: str


Effect: TypeAlias = Spawn | AskToStop | Kill | SetTimer | Answer | Show | Report | Up | End


@dataclass(slots=True)
class Child:
    """What the core remembers of one child."""

    spec: ChildSpec
    state: State = "starting"
    incarnation: int = 0
    restarts: int = 0
    consecutive: int = 0
    alive: bool = False
    forget: bool = False
    waiting: list[str] = field(default_factory=list)
    stop_refs: list[str] = field(default_factory=list)


class SupervisorCore:
    """One supervisor's state. ``random`` gives numbers in [0, 1) for the backoff's jitter."""

    def __init__(
        self, flags: SupervisorFlags, children: tuple[ChildSpec, ...], random: Callable[[], float]
    ) -> None:
        ids = [spec.id for spec in children]
        if len(set(ids)) != len(ids):
            raise SpecError(f"duplicate child ids in {ids}")
        self._flags = flags
        self._random = random
        self._window = RestartWindow(flags.intensity)
        self._to_boot = list(children)
        self.children: dict[str, Child] = {}
        self._up = False
        self._ending: str | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event and say what is to be done, in order."""
        match event:
            case Boot():
                return self._boot_next()
            case StartChild(spec, ref):
                return self._start_child(spec, ref)
            case TerminateChild(id, ref):
                return self._terminate_child(id, ref)
            case ChildStarted(id, incarnation):
                return self._started(self._current(id, incarnation))
            case ChildExited(id, incarnation, reason):
                return self._exited(self._current(id, incarnation), reason, now)
            case TimerDue(id, purpose, incarnation):
                return self._due(self._current(id, incarnation), purpose)
            case Stop():
                return self._end("shutdown")

    def _current(self, id: str, incarnation: int) -> Child | None:
        child = self.children.get(id)
        return child if child is not None and child.incarnation == incarnation else None

    # -------------------------------------------------------------- starting
    def _boot_next(self) -> list[Effect]:
        if self._ending is not None:
            return []
        if not self._to_boot:
            self._up = True
            return [Up()]
        return self._spawn(self._add(self._to_boot.pop(0)))

    def _add(self, spec: ChildSpec) -> Child:
        child = self.children[spec.id] = Child(spec)
        return child

    def _spawn(self, child: Child) -> list[Effect]:
        child.incarnation += 1
        child.state = "starting"
        child.alive = True
        due = TimerDue(child.spec.id, "start", child.incarnation)
        return [
            Spawn(child.spec, child.incarnation),
            self._show(child),
            SetTimer(due, child.spec.start_s),
        ]

    def _start_child(self, spec: ChildSpec, ref: str) -> list[Effect]:
        if self._ending is not None:
            return [
                Answer(ref, Failure(kind="stopping", message="the supervisor is stopping", retryable=True))
            ]
        child = self.children.get(spec.id)
        if child is None:
            limit = self._flags.max_children
            if limit is not None and len(self.children) >= limit:
                return [Answer(ref, Failure(kind="max_children", message=f"there are {limit} already"))]
            child = self._add(spec)
            child.waiting.append(ref)
            return self._spawn(child)
        if child.state == "running":
            return [Answer(ref, spec.id)]
        child.waiting.append(ref)
        return []

    def _started(self, child: Child | None) -> list[Effect]:
        if child is None or child.state != "starting":
            return []
        child.state = "running"
        effects: list[Effect] = [self._show(child), self._report(child, "started", "")]
        effects += [Answer(ref, child.spec.id) for ref in child.waiting]
        child.waiting.clear()
        if child.consecutive:
            reset = child.spec.backoff.reset_after_s if child.spec.backoff else 10.0
            effects.append(SetTimer(TimerDue(child.spec.id, "reset", child.incarnation), reset))
        if not self._up and not self._flags.dynamic:
            effects += self._boot_next()
        return effects

    # -------------------------------------------------------------- exits
    def _exited(self, child: Child | None, reason: str, now: float) -> list[Effect]:
        if child is None or not child.alive:
            return []
        was = child.state
        child.alive = False
        if self._ending is not None or child.forget:
            return [self._report(child, "ended", reason), *self._gone(child), *self._continue_end()]
        if was == "starting" and not self._up and not self._flags.dynamic:
            failed = f"failed_to_start_child {child.spec.id}: {reason}"
            return [self._report(child, "start_failed", reason), *self._gone(child), *self._end(failed)]
        clean = was != "starting" and reason in CLEAN
        match child.spec.restart:
            case "permanent":
                return self._restart(child, reason, now)
            case "transient" if not clean:
                return self._restart(child, reason, now)
        return [self._report(child, "ended", reason), *self._gone(child)]

    def _restart(self, child: Child, reason: str, now: float) -> list[Effect]:
        child.consecutive += 1
        limit = child.spec.max_consecutive
        if limit is not None and child.consecutive > limit and child.spec.on_exhausted != "escalate":
            return self._exhausted(child, reason)
        exhausted = limit is not None and child.consecutive > limit
        counts = child.spec.backoff is None or child.spec.on_exhausted == "escalate"
        if exhausted or (counts and not self._window.record(now)):
            report = self._report(child, "gave_up", reason)
            return [report, *self._gone(child), *self._end("reached_max_restart_intensity")]
        child.restarts += 1
        delay = child.spec.backoff.delay_s(child.consecutive, self._random()) if child.spec.backoff else 0.0
        child.state = "restarting"
        report = self._report(child, "restarting", reason, delay)
        if delay <= 0:
            return [report, *self._spawn(child)]
        return [
            report,
            self._show(child),
            SetTimer(TimerDue(child.spec.id, "restart", child.incarnation), delay),
        ]

    def _exhausted(self, child: Child, reason: str) -> list[Effect]:
        if child.spec.on_exhausted == "drop":
            return [self._report(child, "dropped", reason), *self._gone(child, reason)]
        child.state = "parked"
        delay = child.spec.backoff.max_s if child.spec.backoff else 30.0
        return [
            self._report(child, "parked", reason, delay),
            self._show(child),
            SetTimer(TimerDue(child.spec.id, "restart", child.incarnation), delay),
        ]

    def _gone(self, child: Child, reason: str = "ended") -> list[Effect]:
        del self.children[child.spec.id]
        failure = Failure(kind="child_gone", message=f"{child.spec.id} could not be started: {reason}")
        effects: list[Effect] = [Show(child.spec.id, None, child.restarts)]
        effects += [Answer(ref, failure) for ref in child.waiting]
        effects += [Answer(ref, child.spec.id) for ref in child.stop_refs]
        return effects

    # -------------------------------------------------------------- timers and stopping
    def _due(self, child: Child | None, purpose: str) -> list[Effect]:
        if child is None:
            return []
        match purpose, child.state:
            case "restart", "restarting" | "parked":
                return self._spawn(child)
            case ("start", "starting") | ("stop", "stopping"):
                return [Kill(child.spec.id, child.incarnation)]
            case "reset", "running":
                child.consecutive = 0
        return []

    def _terminate_child(self, id: str, ref: str) -> list[Effect]:
        child = self.children.get(id)
        if child is None:
            return [Answer(ref, Failure(kind="not_found", message=f"no child {id}"))]
        child.stop_refs.append(ref)
        child.forget = True
        return self._stop_child(child)

    def _stop_child(self, child: Child) -> list[Effect]:
        if not child.alive:
            return self._gone(child)
        if child.state == "stopping":
            return []
        starting = child.state == "starting"
        child.state = "stopping"
        if child.spec.shutdown_s <= 0 or starting:
            return [self._show(child), Kill(child.spec.id, child.incarnation)]
        due = TimerDue(child.spec.id, "stop", child.incarnation)
        return [
            self._show(child),
            AskToStop(child.spec.id, child.incarnation),
            SetTimer(due, child.spec.shutdown_s),
        ]

    def _end(self, reason: str) -> list[Effect]:
        if self._ending is not None:
            return []
        self._ending = reason
        return self._continue_end()

    def _continue_end(self) -> list[Effect]:
        if self._ending is None:
            return []
        effects: list[Effect] = []
        for child in reversed(list(self.children.values())):
            effects += self._stop_child(child)
            if not self._flags.dynamic and child.alive:
                break
        if not self.children:
            effects.append(End(self._ending))
        return effects

    # -------------------------------------------------------------- views
    def _show(self, child: Child) -> Show:
        return Show(child.spec.id, child.state, child.restarts)

    def _report(self, child: Child, fact: str, reason: str, delay_s: float | None = None) -> Report:
        return Report(
            child.spec.id, fact, child.incarnation, reason, child.consecutive, child.restarts, delay_s
        )
