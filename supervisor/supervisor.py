"""The supervisor actor: performs what ``supervisor/core.py`` decides. The shell, without a decision of its own.

It holds a pidfd for each child: its readability is the truth about a death; a child's ``Exiting`` notice only says
why, and Thespian's ``ChildActorExited`` is not needed. Requests: ``StartChild`` / ``TerminateChild`` commands.
"""

from __future__ import annotations

import importlib
import random
from dataclasses import dataclass
from typing import Any

from callboard.supervisor import core, mends
from callboard.supervisor.child import Child, Spawned
from callboard.supervisor.envelope import Envelope, Exiting, Init, Shutdown, Started, StartFailed
from callboard.supervisor.process import close_private, describe_exit, kill, kill_group, start_time
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.table import ROOT, Row, write_address

SUPERVISOR = "callboard.supervisor.supervisor.SupervisorActor"
_NOTICE_GRACE_S = 0.1
_EXIT_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class StartChild:
    """Command: start this child unless one of its id lives. Answer: its ``ChildAt``, or a Failure."""

    spec: ChildSpec


@dataclass(frozen=True, slots=True)
class TerminateChild:
    """Command: stop the child and forget it. Answer: its id, or a Failure."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAt:
    """Where a running child is."""

    id: str
    address: Any
    pid: int
    incarnation: int


@dataclass(slots=True)
class _Life:
    """One incarnation as the shell sees it."""

    incarnation: int
    spawned: Spawned
    started_at: float | None
    address: Any = None
    reason: str | None = None


class SupervisorActor(Child):
    """A supervisor. ``args``: ``flags`` (SupervisorFlags), ``children`` (ChildSpecs), ``preload``.

    What is preloaded (``module``, or ``module:function`` to be called) is inherited by every child that it forks.
    """

    forks = True

    def start(self) -> bool:
        """Start the static children in order; up when all of them are."""
        self.core = core.SupervisorCore(
            self.init.args.get("flags", SupervisorFlags()),
            tuple(self.init.args.get("children", ())),
            random.random,
        )
        self._lives: dict[str, _Life] = {}
        self._asked: dict[str, Envelope] = {}
        for what in self.init.args.get("preload", ()):
            _load(what)
        self.then_continue(lambda: self._take(core.Boot()))
        return False

    def handle(self, envelope: Envelope) -> None:
        """Start or stop a child by request."""
        match envelope.body:
            case StartChild(spec):
                self._asked[envelope.request_id] = envelope
                self._take(core.StartChild(spec, envelope.request_id))
            case TerminateChild(id):
                self._asked[envelope.request_id] = envelope
                self._take(core.TerminateChild(id, envelope.request_id))

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Hear from a child: it has started, cannot start, or is about to end."""
        match message:
            case Started(id=id, incarnation=incarnation, address=address):
                life = self._life(id, incarnation)
                if life is not None:
                    life.address = address
                    self._take(core.ChildStarted(self._local(id), incarnation))
            case StartFailed(id=id, incarnation=incarnation, failure=failure):
                self._note_reason(id, incarnation, f"start_failed: {failure.message}")
            case Exiting(id=id, incarnation=incarnation, reason=reason):
                self._note_reason(id, incarnation, reason)

    def stopping(self) -> bool:
        """Stop the children first, by the core's order."""
        self._take(core.Stop())
        return False

    # ------------------------------------------------------------ names
    def _full(self, id: str) -> str:
        return id if self.init.id == ROOT else f"{self.init.id}.{id}"

    def _local(self, full: str) -> str:
        return full if self.init.id == ROOT else full.removeprefix(f"{self.init.id}.")

    def _life(self, full: str, incarnation: int) -> _Life | None:
        life = self._lives.get(self._local(full))
        return life if life is not None and life.incarnation == incarnation else None

    # ------------------------------------------------------------ deaths
    def _note_reason(self, full: str, incarnation: int, reason: str) -> None:
        life = self._life(full, incarnation)
        if life is None or life.reason is not None:
            return
        life.reason = reason
        pid = life.spawned.pid

        def still_there() -> None:
            if self._life(full, incarnation) is life:
                kill(pid)

        self.after(_EXIT_GRACE_S, still_there)

    def _gone(self, id: str, life: _Life) -> None:
        self.unwatch(life.spawned.pidfd)
        close_private(life.spawned.pidfd)
        kill_group(life.spawned.pid)
        if life.reason is not None:
            self._buried(id, life)
        else:
            self.after(_NOTICE_GRACE_S, lambda: self._buried(id, life))

    def _buried(self, id: str, life: _Life) -> None:
        if self._lives.get(id) is not life:
            return
        del self._lives[id]
        self.table.remove_below(self._full(id))
        reason = life.reason or describe_exit(mends.exit_code_of(life.spawned.pid))
        self._take(core.ChildExited(id, life.incarnation, reason))

    # ------------------------------------------------------------ effects
    def _take(self, event: core.Event) -> None:
        for effect in self.core.handle(event, self.now()):
            self._perform(effect)

    def _perform(self, effect: core.Effect) -> None:
        match effect:
            case core.Spawn(spec, incarnation):
                self._spawn_child(spec, incarnation)
            case core.AskToStop(id, _):
                self.send(self._lives[id].address, Shutdown())
            case core.Kill(id, _):
                kill(self._lives[id].spawned.pid)
            case core.SetTimer(due, delay_s):
                self.after(delay_s, lambda: self._take(due))
            case core.Answer(ref, body):
                self._answer(ref, body)
            case core.Show(id, state, restarts):
                self._show(id, state, restarts)
            case core.Report():
                self._report(effect)
            case core.Up():
                self.ready()
            case core.End(reason):
                self.finish(reason)

    def _spawn_child(self, spec: ChildSpec, incarnation: int) -> None:
        init = Init(
            id=self._full(spec.id),
            kind=spec.kind,
            incarnation=incarnation,
            runtime_dir=self.init.runtime_dir,
            args=spec.args,
        )
        spawned = self.spawn(spec.actor, init)
        if spawned is None:
            exited = core.ChildExited(spec.id, incarnation, "start_failed: the process could not be forked")
            self.then_continue(lambda: self._take(exited))
            return
        life = self._lives[spec.id] = _Life(incarnation, spawned, start_time(spawned.pid))
        self.watch(spawned.pidfd, lambda _events: self._gone(spec.id, life))

    def _answer(self, ref: str, body: Any) -> None:
        envelope = self._asked.pop(ref, None)
        if envelope is None:
            return
        life = self._lives.get(body) if isinstance(body, str) else None
        if life is not None and life.address is not None:
            body = ChildAt(
                id=str(body), address=life.address, pid=life.spawned.pid, incarnation=life.incarnation
            )
        self.reply(envelope, body)

    def _show(self, id: str, state: str | None, restarts: int) -> None:
        if state is None:
            self.table.remove(self._full(id))
            return
        life = self._lives.get(id)
        child = self.core.children[id]
        self.table.put(
            Row(
                id=self._full(id),
                kind=child.spec.kind,
                parent=self.init.id,
                state=state,
                incarnation=child.incarnation,
                restarts=restarts,
                pid=life.spawned.pid if life else None,
                started_at=life.started_at if life else None,
                address=write_address(life.address) if life and life.address is not None else None,
            )
        )

    def _report(self, fact: core.Report) -> None:
        level = self.log.info if fact.fact in ("started", "ended") else self.log.warning
        level(
            fact.fact,
            subject=self._full(fact.id),
            subject_incarnation=fact.incarnation,
            reason=fact.reason,
            in_a_row=fact.consecutive,
            restarts=fact.restarts,
            next_delay_s=fact.delay_s,
        )


def _load(what: str) -> None:
    module, _, function = what.partition(":")
    loaded = importlib.import_module(module)
    if function:
        getattr(loaded, function)()


__all__ = ["SUPERVISOR", "ChildAt", "StartChild", "SupervisorActor", "TerminateChild"]
