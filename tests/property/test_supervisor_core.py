"""The supervisor's core as a state machine: against a model of OTP's supervisor, and against chaos.

``HYPOTHESIS_PROFILE=slow`` runs 10,000 examples of each.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.supervisor import core_terms as terms
from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import Command, DeleteChild, RestartChild, StartChild, TerminateChild
from callboard.supervisor.core import SupervisorCore
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec import ChildSpec, SupervisorFlags

settings.register_profile("quick", max_examples=60, stateful_step_count=40, deadline=None)
settings.register_profile(
    "slow",
    max_examples=10_000,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
PROFILE = settings.get_profile("slow" if os.environ.get("HYPOTHESIS_PROFILE") == "slow" else "quick")

IDS = ["a", "b", "c", "d"]
CRASH, CLEAN = "crashed: boom", "normal"
PERIOD_S, RESET_S = 5.0, 7.0


def backoff_of(id: str) -> Backoff:
    """A different one for each, so that no two timers are due at once."""
    least = 1.0 + IDS.index(id) * 0.0137
    return Backoff(min_s=least, max_s=4 * least, jitter=0.0, reset_after_s=RESET_S)


SPECS = st.builds(
    lambda id, restart, significant, backoff, limit, on_exhausted: ChildSpec(
        id=id,
        actor="some.Actor",
        restart=restart,
        significant=significant and restart != "permanent",
        backoff=backoff_of(id) if backoff or on_exhausted != "escalate" else None,
        max_consecutive=limit if on_exhausted != "escalate" else None,
        on_exhausted=on_exhausted if restart != "temporary" else "escalate",
        start_s=2.5,
        shutdown_s=1.5,
    ),
    st.sampled_from(IDS),
    st.sampled_from(["permanent", "permanent", "transient", "temporary"]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from(["escalate", "escalate", "park", "drop"]),
)
FLAGS = st.builds(
    lambda strategy, dynamic, auto, limit: SupervisorFlags(
        strategy="one_for_one" if dynamic else strategy,
        dynamic=dynamic,
        auto_shutdown=auto,
        intensity=Intensity(limit, PERIOD_S),
        max_children=3 if dynamic else None,
    ),
    st.sampled_from(["one_for_one", "one_for_all", "rest_for_one"]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from(["never", "any_significant", "all_significant"]),
    st.integers(0, 6),
)


class World:
    """The processes, the mail and the clock around one core; it checks each effect by itself."""

    def __init__(self, flags: SupervisorFlags) -> None:
        self.flags = flags
        self.core = SupervisorCore(flags, (), lambda: 0.0)
        self.now = 0.0
        self.alive: dict[str, int] = {}
        self.known: set[str] = set()
        self.mail: list[terms.Event] = []
        self.timers: list[tuple[float, terms.TimerDue]] = []
        self.answers: dict[str, Any] = {}
        self.asked: set[str] = set()
        self.fails: Counter[str] = Counter()
        self.spawns: Counter[str] = Counter()
        self.last: dict[str, int] = {}
        self.counted: list[float] = []
        self.ended: str | None = None
        self.stubborn: set[str] = set()
        self.silent: set[str] = set()

    def give(self, event: terms.Event) -> None:
        """Hand one event to the core, and perform what it says."""
        effects = self.core.handle(event, self.now)
        done = [
            effect for effect in effects if self.ended is not None and not isinstance(effect, terms.Answer)
        ]
        assert not done, f"effects after the end: {done}"
        for effect in effects:
            self._perform(effect)

    def ask(self, command: Command) -> str:
        """Give a command; its ref."""
        ref = f"r{len(self.asked)}"
        self.asked.add(ref)
        self.give(terms.Asked(ref, command))
        return ref

    def die(self, id: str, reason: str) -> None:
        """The process ends; the core will hear of it by mail."""
        self.mail.append(terms.ChildExited(id, self.alive.pop(id), reason))

    def settle(self) -> None:
        """Deliver all mail."""
        while self.mail:
            self.give(self.mail.pop(0))

    def advance(self, seconds: float) -> None:
        """Let time pass, and settle after each timer."""
        until = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= until]:
            first = min(due, key=lambda timer: timer[0])
            self.timers.remove(first)
            self.now = first[0]
            self.give(first[1])
            self.settle()
        self.now = until

    def _perform(self, effect: terms.Effect) -> None:
        match effect:
            case terms.Spawn(spec, incarnation):
                self._spawn(spec, incarnation)
            case terms.AskToStop(id, incarnation) if self.alive.get(id) == incarnation:
                if id not in self.stubborn:
                    self.die(id, "shutdown")
            case terms.Kill(id, incarnation) if self.alive.get(id) == incarnation:
                self.die(id, "killed by SIGKILL")
            case terms.SetTimer(due, delay_s):
                if delay_s == 0:
                    self.mail.append(due)
                else:
                    self.timers.append((self.now + delay_s, due))
            case terms.Answer(ref, body):
                assert ref in self.asked and ref not in self.answers
                self.answers[ref] = body
            case terms.Show(id, _, state):
                (self.known.discard if state is None else self.known.add)(id)
            case terms.Report(fact=fact, delay_s=float(), id=id) if fact in ("restarting", "start_failed"):
                self._count(id)
            case terms.End(reason):
                assert not self.alive, f"ended with {self.alive}"
                assert not self.known, f"still shown: {self.known}"
                self.ended = reason

    def _spawn(self, spec: ChildSpec, incarnation: int) -> None:
        assert spec.id not in self.alive, f"{spec.id} lives twice"
        assert incarnation > self.last.get(spec.id, 0), "an incarnation came twice"
        self.last[spec.id] = incarnation
        self.spawns[spec.id] += 1
        self.alive[spec.id] = incarnation
        if self.fails[spec.id]:
            self.fails[spec.id] -= 1
            self.die(spec.id, "start_failed: no")
        elif spec.id not in self.silent:
            self.mail.append(terms.ChildStarted(spec.id, incarnation))

    def _count(self, id: str) -> None:
        child = self.core.children.get(id)
        if child is not None and child.spec.on_exhausted == "escalate":
            self.counted.append(self.now)
            recent = [at for at in self.counted if at >= self.now - PERIOD_S]
            assert len(recent) <= self.flags.intensity.limit, "more restarts than the intensity allows"


# ---------------------------------------------------------------- the model
@dataclass
class M:
    """A child as the model sees it. ``due``: when its next start is tried."""

    spec: ChildSpec
    state: str = "stopped"
    row: int = 0
    since: float = 0.0
    due: float | None = None


@dataclass
class Model:
    """OTP's supervisor, which does one thing after the other, with our backoff in front."""

    flags: SupervisorFlags
    children: dict[str, M] = field(default_factory=dict)
    fails: Counter[str] = field(default_factory=Counter)
    spawns: Counter[str] = field(default_factory=Counter)
    window: list[float] = field(default_factory=list)
    ended: bool = False

    def spawn(self, child: M, now: float) -> bool:
        self.spawns[child.spec.id] += 1
        child.due = None
        if self.fails[child.spec.id]:
            self.fails[child.spec.id] -= 1
            return False
        child.state, child.since = "running", now
        return True

    def start(self, spec: ChildSpec, now: float) -> None:
        full = self.flags.max_children is not None and len(self.children) >= self.flags.max_children
        if spec.id in self.children or full or (spec.significant and self.flags.auto_shutdown == "never"):
            return
        if spec.on_exhausted != "escalate" and self.flags.strategy != "one_for_one":
            return
        child = self.children[spec.id] = M(spec)
        if not self.spawn(child, now):
            if spec.on_exhausted == "escalate":
                del self.children[spec.id]
            else:
                self.restart(child, now, failed=True)

    def terminate(self, id: str) -> None:
        if id in self.children:
            self.put_down(self.children[id])

    def manual(self, id: str, now: float) -> None:
        child = self.children.get(id)
        if not child or child.state not in ("stopped", "parked") or self.flags.dynamic:
            return
        if not self.spawn(child, now):
            child.state = "stopped"
            if child.spec.on_exhausted != "escalate":
                self.restart(child, now, failed=True)

    def delete(self, id: str) -> None:
        if id in self.children and self.children[id].state == "stopped" and not self.flags.dynamic:
            del self.children[id]

    def put_down(self, child: M) -> None:
        child.state, child.due = "stopped", None
        if self.flags.dynamic or child.spec.restart == "temporary":
            del self.children[child.spec.id]

    def exit(self, id: str, clean: bool, now: float) -> None:
        child = self.children[id]
        if child.spec.restart == "permanent" or (child.spec.restart == "transient" and not clean):
            self.restart(child, now, failed=False)
        else:
            self.put_down(child)
            self.auto(child)

    def auto(self, child: M) -> None:
        others = any(c.spec.significant and c.state != "stopped" for c in self.children.values())
        wanted = {"never": False, "any_significant": True, "all_significant": not others}[
            self.flags.auto_shutdown
        ]
        if child.spec.significant and wanted:
            self.end()

    def end(self) -> None:
        self.ended = True
        self.children.clear()

    def restart(self, child: M, now: float, failed: bool) -> None:
        """Once for the first failure, and once more for each start that fails on the way."""
        child.row += 1
        spent = child.spec.max_consecutive is not None and child.row > child.spec.max_consecutive
        if child.spec.on_exhausted == "drop" and spent:
            del self.children[child.spec.id]
            return self.auto(child)
        if child.spec.on_exhausted == "park" and spent:
            assert child.spec.backoff
            child.state, child.due = "parked", now + child.spec.backoff.max_s
            return None
        if child.spec.on_exhausted == "escalate":
            self.window = [at for at in self.window if at >= now - PERIOD_S] + [now]
            if len(self.window) > self.flags.intensity.limit:
                return self.end()
        delay_s = child.spec.backoff.delay_s(child.row, 0.0) if child.spec.backoff else 0.0
        child.state, child.due = "restarting", now + delay_s
        if delay_s and not failed:
            for other in reversed(self.group(child)):
                if other is not child:
                    self.put_down(other)
        return None if delay_s else self.retry(child, now)

    def retry(self, child: M, now: float) -> None:
        for other in reversed(self.group(child)):
            if other is not child:
                self.put_down(other)
        child.state, child.due = "stopped", None
        for other in self.group(child):
            if not self.spawn(other, now):
                return self.restart(other, now, failed=True)
        return None

    def group(self, child: M) -> list[M]:
        all = list(self.children.values())
        match self.flags.strategy:
            case "one_for_one":
                return [child]
            case "one_for_all":
                return all
            case _:
                return all[all.index(child) :]

    def advance(self, now: float, seconds: float) -> None:
        while due := [c for c in self.children.values() if c.due is not None and c.due <= now + seconds]:
            child = min(due, key=lambda c: c.due or 0.0)
            assert child.due is not None
            at, child.due = child.due, None
            self.rest(at)
            self.retry(child, at)
        self.rest(now + seconds)

    def rest(self, now: float) -> None:
        """Forget the failures of those who have lived long enough since."""
        for child in self.children.values():
            enough_s = RESET_S if child.spec.backoff else PERIOD_S
            if child.state == "running" and child.since + enough_s <= now:
                child.row = 0


class AgainstTheModel(RuleBasedStateMachine):
    """Every step runs to rest; then core and model agree on every child, every start and the end."""

    @initialize(flags=FLAGS)
    def begin(self, flags: SupervisorFlags) -> None:
        self.world = World(flags)
        self.model = Model(flags)
        self.world.give(terms.Boot())

    def running(self) -> list[str]:
        return sorted(self.world.alive)

    @rule(spec=SPECS, fails=st.sampled_from([0, 0, 0, 1, 2]))
    @precondition(lambda self: not self.model.ended)
    def start_child(self, spec: ChildSpec, fails: int) -> None:
        known = self.model.children.get(spec.id)
        if known is not None and known.state == "restarting" and self.world.flags.dynamic:
            return
        self.will_fail(spec.id, fails)
        self.model.start(spec, self.world.now)
        self.world.ask(StartChild(spec))
        self.world.settle()

    @rule(id=st.sampled_from(IDS))
    @precondition(lambda self: not self.model.ended)
    def terminate_child(self, id: str) -> None:
        self.model.terminate(id)
        self.world.ask(TerminateChild(id))
        self.world.settle()

    @rule(id=st.sampled_from(IDS), fails=st.sampled_from([0, 0, 1]))
    @precondition(lambda self: not self.model.ended)
    def restart_child(self, id: str, fails: int) -> None:
        self.will_fail(id, fails)
        self.model.manual(id, self.world.now)
        self.world.ask(RestartChild(id))
        self.world.settle()

    @rule(id=st.sampled_from(IDS))
    @precondition(lambda self: not self.model.ended)
    def delete_child(self, id: str) -> None:
        self.model.delete(id)
        self.world.ask(DeleteChild(id))
        self.world.settle()

    @rule(
        data=st.data(), clean=st.booleans(), failing=st.dictionaries(st.sampled_from(IDS), st.integers(1, 3))
    )
    @precondition(lambda self: self.world.alive)
    def exit(self, data: st.DataObject, clean: bool, failing: dict[str, int]) -> None:
        id = data.draw(st.sampled_from(self.running()))
        for other, fails in failing.items():
            self.will_fail(other, fails)
        self.world.die(id, CLEAN if clean else CRASH)
        self.model.exit(id, clean, self.world.now)
        self.world.settle()

    @rule(seconds=st.sampled_from([0.1, 0.9, 1.03, 2.1, 4.9, 7.3, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.advance(self.world.now, seconds)
        self.world.advance(seconds)

    @rule(data=st.data(), purpose=st.sampled_from(["start", "stop", "restart", "reset", "abandon"]))
    @precondition(lambda self: self.world.last)
    def stale_news_change_nothing(self, data: st.DataObject, purpose: terms.Purpose) -> None:
        id = data.draw(st.sampled_from(sorted(self.world.last)))
        incarnation = data.draw(st.integers(0, self.world.last[id] - 1))
        self.world.give(terms.TimerDue(id, purpose, incarnation))
        self.world.give(terms.ChildExited(id, incarnation, CRASH))
        self.world.give(terms.ChildStarted(id, incarnation))
        self.world.settle()

    def will_fail(self, id: str, fails: int) -> None:
        self.world.fails[id] = self.model.fails[id] = fails

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "world"):
            return
        world, model = self.world, self.model
        assert (world.ended is not None) == model.ended
        assert {c.id: c.state for c in world.core.children} == {
            id: m.state for id, m in model.children.items()
        }
        assert [c.id for c in world.core.children] == list(model.children)
        assert set(world.alive) == {id for id, m in model.children.items() if m.state == "running"}
        assert +world.spawns == +model.spawns
        assert world.known == set(model.children)


class UnderChaos(RuleBasedStateMachine):
    """Events come late, twice, in any order; starts hang, children do not obey. The world checks each effect."""

    @initialize(flags=FLAGS)
    def begin(self, flags: SupervisorFlags) -> None:
        self.world = World(flags)
        self.heard: list[terms.Event] = []
        self.world.give(terms.Boot())

    @rule(spec=SPECS, fails=st.sampled_from([0, 0, 1, 2]))
    def start_child(self, spec: ChildSpec, fails: int) -> None:
        self.world.fails[spec.id] = fails
        self.world.ask(StartChild(spec))

    @rule(
        id=st.sampled_from(IDS),
        what=st.sampled_from([TerminateChild, TerminateChild, RestartChild, DeleteChild]),
    )
    def command(self, id: str, what: Any) -> None:
        self.world.ask(what(id))

    @rule(data=st.data(), reason=st.sampled_from([CRASH, CLEAN, "shutdown", terms.IGNORED, "killed"]))
    @precondition(lambda self: self.world.alive)
    def die(self, data: st.DataObject, reason: str) -> None:
        self.world.die(data.draw(st.sampled_from(sorted(self.world.alive))), reason)

    @rule(data=st.data())
    @precondition(lambda self: self.world.mail)
    def deliver(self, data: st.DataObject) -> None:
        """One piece of mail; what one child says stays in order."""
        ids = sorted({event.id for event in self.world.mail})  # type: ignore[union-attr]
        id = data.draw(st.sampled_from(ids))
        event = next(event for event in self.world.mail if event.id == id)  # type: ignore[union-attr]
        self.world.mail.remove(event)
        self.heard.append(event)
        self.world.give(event)

    @rule(data=st.data())
    @precondition(lambda self: self.heard)
    def deliver_again(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.heard))
        if not isinstance(event, terms.ChildStarted) or event.incarnation != self.world.alive.get(event.id):
            self.world.give(event)

    @rule(data=st.data())
    @precondition(lambda self: self.world.timers)
    def timer(self, data: st.DataObject) -> None:
        """The earliest timer comes, on time; some of them a second time later."""
        first = min(self.world.timers, key=lambda timer: timer[0])
        self.world.timers.remove(first)
        self.world.now = max(self.world.now, first[0])
        self.world.give(first[1])

    @rule(id=st.sampled_from(IDS), hangs=st.booleans(), disobeys=st.booleans())
    def behave(self, id: str, hangs: bool, disobeys: bool) -> None:
        (self.world.silent.add if hangs else self.world.silent.discard)(id)
        (self.world.stubborn.add if disobeys else self.world.stubborn.discard)(id)

    @rule()
    @precondition(lambda self: self.world.ended is None)
    def stop_now_and_then(self) -> None:
        if len(self.heard) % 7 == 6:
            self.world.give(terms.Stop())

    @invariant()
    def what_is_shown_is_what_is_known(self) -> None:
        if hasattr(self, "world"):
            assert self.world.known == {child.id for child in self.world.core.children}
            for child in self.world.core.children:
                assert child.state in ("starting", "running", "stopping") or not child.alive

    def teardown(self) -> None:
        """Once the faults are over, everything comes to rest, every command is answered, and a stop ends it."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.silent.clear()
        world.fails.clear()
        world.settle()
        for _ in range(30):
            world.advance(10.0)
        assert world.asked == set(world.answers)
        for child in world.core.children:
            assert child.state in ("running", "stopped"), f"{child.id} is {child.state} for ever"
            assert child.alive == (child.state == "running") == (child.id in world.alive)
        world.give(terms.Stop())
        world.settle()
        for _ in range(30):
            world.advance(10.0)
        assert world.ended is not None


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = PROFILE
TestUnderChaos = UnderChaos.TestCase
TestUnderChaos.settings = PROFILE
