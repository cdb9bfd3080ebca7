"""The supervisor's decisions, pure: ``handle(event, now)`` gives the effects that its actor performs.

It decides who is started, restarted, waited for, parked, stopped or given up, by OTP's semantics, with backoff in
front of the intensity. It never spawns, kills, sleeps or reads a clock. Called by ``supervisor/supervisor.py`` alone.

OTP's supervisor blocks while a child starts or stops; this one does not. A *plan* holds what it is in the middle of
(the boot, or a group's restart), and what comes in meanwhile is held and taken up, in order, once the plan is done.
What the commands mean, ``supervisor/core_admin.py`` says.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from callboard.supervisor.commands import (
    ChildDeleted,
    ChildNotStarted,
    ChildTerminated,
    CountChildren,
    WhichChildren,
)
from callboard.supervisor.core_admin import (
    MAX_WAITING,
    Add,
    Forget,
    Halt,
    Join,
    Later,
    Reply,
    StartAgain,
    Step,
    next_step,
    refuse,
)
from callboard.supervisor.core_children import Child, Children, Plan, Why, is_clean, is_restarted
from callboard.supervisor.core_terms import (
    IGNORED,
    Abandon,
    Answer,
    Asked,
    AskToStop,
    Boot,
    ChildExited,
    ChildStarted,
    ChildUp,
    Effect,
    End,
    Event,
    ExitHeld,
    Kill,
    SetTimer,
    Show,
    Spawn,
    Stop,
    TimerDue,
    Up,
)
from callboard.supervisor.envelope import Failure
from callboard.supervisor.intensity import RestartWindow
from callboard.supervisor.spec import ChildSpec, SupervisorFlags, check_children

KILL_WAIT_S = 5.0


class SupervisorCore:
    """One supervisor's state. ``random`` gives numbers in [0, 1) for the backoff's jitter.

    ``floor``: no incarnation number is given that is not above it. Raises a child of SpecError.
    """

    def __init__(
        self,
        flags: SupervisorFlags,
        children: tuple[ChildSpec, ...],
        random: Callable[[], float],
        floor: int = 0,
    ) -> None:
        check_children(flags, children)
        self.children = Children(floor)
        self._flags = flags
        self._random = random
        self._window = RestartWindow(flags.intensity)
        self._plan: Plan | None = None
        self._held: deque[Event] = deque()
        self._ending: str | None = None
        self._to_stop: list[str] = []
        for spec in children:
            self.children.add(spec)

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event and say what is to be done, in order. ``now`` is monotonic and never goes back."""
        effects = self._take(event, now)
        while self._held and self._plan is None:
            effects += self._take(self._held.popleft(), now)
        return effects

    def _take(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Boot():
                return self._begin(Plan(start=deque(child.id for child in self.children), boot=True))
            case Asked():
                return self._asked(event)
            case ChildStarted(id, incarnation, info):
                child = self.children.living(id, incarnation)
                return self._started(child, info) if child and child.state == "starting" else []
            case ChildExited(id, incarnation, reason):
                child = self.children.living(id, incarnation)
                return self._exited(child, reason, now) if child else []
            case ExitHeld(id, incarnation, reason):
                child = self.children.current(id, incarnation)
                undecided = child is not None and child.state == "running" and self._ending is None
                return self._fell(child, reason, now) if child and undecided else []
            case TimerDue(id, _, incarnation):
                child = self.children.current(id, incarnation)
                return self._due(child, event, now) if child else []
            case Stop():
                return self._end("shutdown")
            case _:
                assert_never(event)

    def _asked(self, asked: Asked) -> list[Effect]:
        ref, views = asked.ref, isinstance(asked.command, WhichChildren | CountChildren)
        if self._ending is not None and not views:
            step: Step = refuse("stopping", "the supervisor is stopping", retryable=True)
        elif self._plan is not None and not views:
            if len(self._held) < MAX_WAITING:
                self._held.append(asked)
                return []
            step = refuse("overloaded", "too many commands wait for this supervisor", retryable=True)
        else:
            step = next_step(asked.command, self.children, self._flags)
        match step:
            case Reply(body):
                return [Answer(ref, body)]
            case Later(child):
                child.later.append(asked)
                return []
            case Join(child):
                child.starters.append(ref)
                return []
            case Add(spec):
                child = self.children.add(spec)
                child.starters.append(ref)
                return self._spawn(child, "asked")
            case StartAgain(child):
                child.starters.append(ref)
                return self._spawn(child, "manual")
            case Halt(child):
                child.stoppers.append(ref)
                return self._ask_to_stop(child) if child.alive else self._put_down(child)
            case Forget(child):
                return [*self._remove(child), Answer(ref, ChildDeleted(child.id))]
            case _:
                assert_never(step)

    # ------------------------------------------------------------ plans
    def _begin(self, plan: Plan) -> list[Effect]:
        self._plan = plan
        return self._advance(plan)

    def _advance(self, plan: Plan) -> list[Effect]:
        """Take the plan's next step; it is over when it has none, or when the supervisor has begun to end."""
        effects: list[Effect] = []
        if plan is not self._plan:
            return effects
        while plan.stop:
            child = self.children.get(plan.stop[-1])
            if child is not None and child.alive:
                plan.awaited = child.id
                return effects + self._ask_to_stop(child)
            plan.stop.pop()
            if child is not None and child.state != "stopped":
                effects += self._put_down(child)
        while plan.start:
            child = self.children.get(plan.start.popleft())
            if child is not None:
                plan.awaited = child.id
                return effects + self._spawn(child, "boot" if plan.boot else "restart")
        self._plan = None
        return [*effects, Up()] if plan.boot else effects

    def _awaited(self, child: Child) -> Plan | None:
        return self._plan if self._plan is not None and self._plan.awaited == child.id else None

    def _restart_group(self, failed: Child) -> list[Effect]:
        """Stop all and start all again; a temporary one is forgotten once it is stopped.

        The failed one is among them: should an earlier start fail, it waits for its turn like the rest.
        """
        group = [child.id for child in self.children.group(self._flags.strategy, failed)]
        return self._begin(Plan(stop=group, start=deque(group)))

    # ------------------------------------------------------------ starts
    def _spawn(self, child: Child, why: Why) -> list[Effect]:
        child.incarnation += 1
        child.why = why
        child.alive = True
        child.verdict = None
        self.children.set(child, "starting")
        spec = child.spec
        if self._flags.extra_args:
            spec = replace(spec, args={**self._flags.extra_args, **spec.args})
        if spec.restart == "temporary":
            child.spec = replace(spec, args={})
        due = TimerDue(child.id, "start", child.incarnation)
        return [Spawn(spec, child.incarnation, child.restarts), child.show(), SetTimer(due, spec.start_s)]

    def _started(self, child: Child, info: object) -> list[Effect]:
        self.children.set(child, "running")
        effects: list[Effect] = [child.show(), child.report("started")]
        effects += [Answer(ref, ChildUp(child.id, child.incarnation, info)) for ref in child.starters]
        child.starters.clear()
        self._take_up_later(child)
        if child.consecutive:
            sustained = (
                child.spec.backoff.reset_after_s if child.spec.backoff else self._flags.intensity.period_s
            )
            effects.append(SetTimer(TimerDue(child.id, "reset", child.incarnation), sustained))
        plan = self._awaited(child)
        return effects + self._advance(plan) if plan else effects

    def _start_ended(self, child: Child, reason: str, now: float) -> list[Effect]:
        """The process ended before it was up: a failed start, or one that chose not to be."""
        plan = self._awaited(child)
        if reason == IGNORED:
            effects = [child.report("ignored"), *self._put_down(child, ignored=True)]
            return effects + self._advance(plan) if plan else effects
        retried = child.spec.on_exhausted != "escalate"
        match child.why:
            case "boot" if not retried:
                end = f"shutdown: failed_to_start_child {child.id}: {reason}"
                return [child.report("start_failed", reason), *self._remove(child), *self._end(end)]
            case "asked" if not retried:
                return [child.report("start_failed", reason), *self._remove(child, reason)]
            case "manual" if not retried:
                return [child.report("start_failed", reason), *self._put_down(child, reason)]
            case "boot" if plan is not None:
                return self._restart(child, reason, now, failed_start=True) + self._advance(plan)
        self._plan = None if plan else self._plan
        return self._restart(child, reason, now, failed_start=True)

    # ------------------------------------------------------------ exits
    def _exited(self, child: Child, reason: str, now: float) -> list[Effect]:
        was, child.alive = child.state, False
        reason = child.verdict or reason
        if self._ending is not None:
            return [
                child.report(_fact(child, was, reason), reason),
                *self._remove(child),
                *self._continue_end(),
            ]
        match was:
            case "stopping":
                plan = self._awaited(child)
                effects = [child.report(_fact(child, was, reason), reason), *self._put_down(child)]
                return effects + self._advance(plan) if plan else effects
            case "starting":
                return self._start_ended(child, reason, now)
            case _ if self._plan is not None and self._flags.strategy != "one_for_one":
                self._held.append(ExitHeld(child.id, child.incarnation, reason))
                return [child.report("exited", reason)]
            case _:
                return self._fell(child, reason, now)

    def _fell(self, child: Child, reason: str, now: float) -> list[Effect]:
        """Decide about a running child that ended by itself."""
        if is_restarted(child.spec, reason):
            return self._restart(child, reason, now)
        return [child.report("ended", reason), *self._put_down(child), *self._shut_down_after(child)]

    def _shut_down_after(self, child: Child) -> list[Effect]:
        """A significant child ended by itself: perhaps the supervisor does too (OTP.md 1.9)."""
        match self._flags.auto_shutdown:
            case "any_significant" if child.spec.significant:
                return self._end(f"shutdown: significant child {child.id} ended")
            case "all_significant" if child.spec.significant and not self.children.any_significant_active:
                return self._end("shutdown: all significant children ended")
        return []

    def _restart(self, child: Child, reason: str, now: float, failed_start: bool = False) -> list[Effect]:
        """Start the child again, now or later, unless its own limit or the supervisor's is reached."""
        child.consecutive += 1
        limit = child.spec.max_consecutive
        spent = limit is not None and child.consecutive > limit
        if child.spec.on_exhausted != "escalate":
            if spent:
                return self._exhausted(child, reason)
        elif spent or not self._window.record(now):
            report = child.report("gave_up", reason)
            return [
                report,
                *self._remove(child, reason),
                *self._end("shutdown: reached_max_restart_intensity"),
            ]
        child.restarts += 1
        delay_s = child.spec.backoff.delay_s(child.consecutive, self._random()) if child.spec.backoff else 0.0
        report = child.report("start_failed" if failed_start else "restarting", reason, delay_s)
        self.children.set(child, "restarting")
        if delay_s == 0 and not failed_start:
            return [report, *self._try(child)]
        # A failed start is tried again through the mailbox, so that a stop or a command can come between (OTP-9549).
        effects: list[Effect] = [
            report,
            child.show(),
            SetTimer(TimerDue(child.id, "restart", child.incarnation), delay_s),
        ]
        self._take_up_later(child)
        if not failed_start and self._flags.strategy != "one_for_one":
            others = [
                other.id for other in self.children.group(self._flags.strategy, child) if other is not child
            ]
            effects += self._begin(Plan(stop=others))
        return effects

    def _try(self, child: Child) -> list[Effect]:
        if self._flags.strategy == "one_for_one":
            return self._spawn(child, "restart")
        return self._restart_group(child)

    def _exhausted(self, child: Child, reason: str) -> list[Effect]:
        if child.spec.on_exhausted == "drop":
            return [
                child.report("dropped", reason),
                *self._remove(child, reason),
                *self._shut_down_after(child),
            ]
        assert child.spec.backoff is not None
        self.children.set(child, "parked")
        delay_s = child.spec.backoff.max_s
        failure = Failure(kind="parked", message=f"{child.id} is parked after: {reason}", retryable=True)
        due = TimerDue(child.id, "restart", child.incarnation)
        effects: list[Effect] = [
            child.report("parked", reason, delay_s),
            child.show(),
            SetTimer(due, delay_s),
        ]
        return effects + self._fail_starters(child, failure)

    def _put_down(self, child: Child, reason: str = "it was stopped", ignored: bool = False) -> list[Effect]:
        """The child has no process and is to have none for now: keep its spec, where one is kept (OTP.md 1.1)."""
        if self._flags.dynamic or child.spec.restart == "temporary":
            return self._remove(child, reason, ignored)
        self.children.set(child, "stopped")
        return [
            child.show(),
            *self._answer_all(child, reason, ChildNotStarted(child.id, True) if ignored else None),
        ]

    def _remove(self, child: Child, reason: str = "it was stopped", ignored: bool = False) -> list[Effect]:
        self.children.remove(child)
        gone = Show(child.id, child.spec.kind, None, child.incarnation, child.restarts)
        return [gone, *self._answer_all(child, reason, ChildNotStarted(child.id, False) if ignored else None)]

    def _answer_all(self, child: Child, reason: str, not_started: ChildNotStarted | None) -> list[Effect]:
        failure = Failure(kind="start_failed", message=f"{child.id} could not be started: {reason}")
        effects: list[Effect] = [Answer(ref, not_started or failure) for ref in child.starters]
        effects += [Answer(ref, ChildTerminated(child.id)) for ref in child.stoppers]
        child.starters.clear()
        child.stoppers.clear()
        self._take_up_later(child)
        return effects

    def _fail_starters(self, child: Child, failure: Failure) -> list[Effect]:
        effects: list[Effect] = [Answer(ref, failure) for ref in child.starters]
        child.starters.clear()
        self._take_up_later(child)
        return effects

    def _take_up_later(self, child: Child) -> None:
        self._held.extend(child.later)
        child.later.clear()

    # ------------------------------------------------------------ timers and stopping
    def _due(self, child: Child, due: TimerDue, now: float) -> list[Effect]:
        match due.purpose, child.state:
            case "restart", "restarting" | "parked" if self._ending is None:
                if self._plan is not None and self._flags.strategy != "one_for_one":
                    self._held.append(due)
                    return []
                return self._try(child)
            case "start", "starting":
                child.verdict = f"start_failed: it was not up after {child.spec.start_s:g} s"
                return self._kill(child)
            case "stop", "stopping":
                return self._kill(child)
            case "abandon", _ if child.alive:
                effects: list[Effect] = [
                    child.report("abandoned", "SIGKILL did not end it"),
                    Abandon(child.id, child.incarnation),
                ]
                return effects + self._exited(child, "abandoned", now)
            case "reset", "running":
                child.consecutive = 0
        return []

    def _ask_to_stop(self, child: Child) -> list[Effect]:
        if child.state == "stopping":
            return []
        if child.state == "starting":
            child.verdict = "shutdown: its start was broken off"
        self.children.set(child, "stopping")
        if child.verdict is not None or child.spec.stop_limit_s == 0:
            return [child.show(), *self._kill(child)]
        effects: list[Effect] = [child.show(), AskToStop(child.id, child.incarnation)]
        if child.spec.stop_limit_s < math.inf:
            due = TimerDue(child.id, "stop", child.incarnation)
            effects.append(SetTimer(due, child.spec.stop_limit_s))
        return effects

    def _kill(self, child: Child) -> list[Effect]:
        due = TimerDue(child.id, "abandon", child.incarnation)
        return [Kill(child.id, child.incarnation), SetTimer(due, KILL_WAIT_S)]

    def _end(self, reason: str) -> list[Effect]:
        """Stop everybody: last first and one by one, or all at once where there is no order (OTP.md 1.8)."""
        if self._ending is not None:
            return []
        self._ending = reason
        self._plan = None
        self._to_stop = [child.id for child in self.children]
        return self._continue_end()

    def _continue_end(self) -> list[Effect]:
        assert self._ending is not None
        effects: list[Effect] = []
        while self._to_stop:
            child = self.children.get(self._to_stop[-1])
            if child is not None and child.alive:
                effects += self._ask_to_stop(child)
                if not self._flags.dynamic:
                    return effects
            elif child is not None:
                effects += self._remove(child)
            self._to_stop.pop()
        if not len(self.children):
            effects.append(End(self._ending))
        return effects


def _fact(child: Child, was: str, reason: str) -> str:
    """Say how a child that was asked to stop has ended: by the rules, or not (OTP's shutdown_error)."""
    by_the_rules = (
        was != "stopping"
        or child.verdict is not None
        or reason == "shutdown"
        or (is_clean(reason) and child.spec.restart != "permanent")
        or (reason.startswith("killed") and child.spec.stop_limit_s == 0)
    )
    return "ended" if by_the_rules else "shutdown_error"
