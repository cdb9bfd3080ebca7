"""The supervisor actor: performs what ``supervisor/core.py`` decides. The shell, without a decision of its own.

It holds a pidfd for each child: its readability is the truth about a death, and SIGKILL goes through it; a child's
``Exiting`` notice only says why, and Thespian's ``ChildActorExited`` is not needed. It is administered by the commands
of ``supervisor/commands.py``; the same request id again is the same command.
"""

from __future__ import annotations

import dataclasses
import importlib
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from callboard.supervisor import core_terms as core
from callboard.supervisor.child import Child, Spawned
from callboard.supervisor.commands import (
    ChildAt,
    ChildCounts,
    ChildDeleted,
    ChildNotStarted,
    ChildStatus,
    ChildTerminated,
    Command,
    CountChildren,
    DeleteChild,
    RestartChild,
    StartChild,
    TerminateChild,
    WhichChildren,
)
from callboard.supervisor.core import SupervisorCore
from callboard.supervisor.envelope import (
    Busy,
    Envelope,
    Exiting,
    Failure,
    Ignored,
    Init,
    Pong,
    Shutdown,
    Started,
    StartFailed,
)
from callboard.supervisor.exits import exit_code, kill_by
from callboard.supervisor.figures import Limits
from callboard.supervisor.process import close_private, describe_exit, kill_group, start_time
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.table import ROOT, Row, write_address
from callboard.supervisor.vigil import Vigil

SUPERVISOR = "callboard.supervisor.supervisor.SupervisorActor"
LIFE = 1_000_000_000
_NOTICE_GRACE_S = 0.1
_EXIT_GRACE_S = 0.5
_ASKED_LIMIT = 10_000
_ANSWERED_KEPT = 1024
_QUIET_FACTS = ("started", "ended", "ignored")


@dataclass(slots=True)
class _Life:
    """One incarnation as the shell sees it. ``over``: its pidfd is closed."""

    incarnation: int
    spawned: Spawned
    started_at: float | None
    address: Any = None
    limits: Limits | None = None
    reason: str | None = None
    over: bool = False


class SupervisorActor(Child):
    """A supervisor. ``args``: ``flags`` (SupervisorFlags), ``children`` (ChildSpecs), ``preload``.

    What is preloaded (``module``, or ``module:function`` to be called) is inherited by every child that it forks.
    The incarnations of its children begin anew, above all former ones, with each of its own lives.
    """

    forks = True

    def start(self) -> bool:
        """Start the static children in order; up when all of them are."""
        self.core = SupervisorCore(
            self.init.args.get("flags", SupervisorFlags()),
            tuple(self.init.args.get("children", ())),
            random.random,
            (self.init.incarnation - 1) * LIFE,
        )
        self._lives: dict[str, _Life] = {}
        self._vigil = Vigil(self, self._end_hung)
        self._asked: dict[str, Envelope] = {}
        self._answered: OrderedDict[str, Any] = OrderedDict()
        for what in self.init.args.get("preload", ()):
            _load(what)
        self.then_continue(lambda: self._take(core.Boot()))
        return False

    def handle(self, envelope: Envelope) -> None:
        """Take a command about the children; one that came before is answered as before."""
        ref = envelope.request_id
        if ref in self._answered:
            self.reply(envelope, self._answered[ref])
        elif ref in self._asked or not isinstance(envelope.body, Command):
            return
        elif len(self._asked) >= _ASKED_LIMIT:
            full = Failure(kind="overloaded", message="too many commands are waiting", retryable=True)
            self.reply(envelope, full)
        else:
            self._asked[ref] = envelope
            self._take(core.Asked(ref, envelope.body))

    def handle_notice(self, message: Any, sender: Any) -> None:
        """Hear from a child: it has started, cannot or will not start, or is about to end."""
        match message:
            case Started(id=id, incarnation=incarnation, address=address, info=info):
                life = self._life(id, incarnation)
                if life is not None:
                    life.address = address
                    self._vigil.watch(self._local(id), incarnation, address, life.limits)
                    self._take(core.ChildStarted(self._local(id), incarnation, info))
            case Ignored(id=id, incarnation=incarnation):
                self._note_reason(id, incarnation, core.IGNORED)
            case StartFailed(id=id, incarnation=incarnation, failure=failure):
                self._note_reason(id, incarnation, f"start_failed: {failure.message}")
            case Exiting(id=id, incarnation=incarnation, reason=reason):
                self._note_reason(id, incarnation, reason)
            case Pong():
                self._vigil.heard(message)
            case Busy(id=id):
                self._vigil.excuse(self._local(id), message)

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
        self.after(_EXIT_GRACE_S, lambda: _kill(life))

    def _end_hung(self, id: str, incarnation: int, reason: str) -> None:
        life = self._lives.get(id)
        if life is not None and life.incarnation == incarnation and not life.over:
            life.reason = life.reason or reason
            _kill(life)

    def _gone(self, id: str, life: _Life) -> None:
        """The process has ended. Who was killed by a signal gave no notice; any other's may still be in the mail."""
        code = exit_code(life.spawned.pidfd, life.spawned.pid)
        self._let_go(life)
        kill_group(life.spawned.pid)
        if life.reason is not None or (code is not None and code < 0):
            self._buried(id, life, code)
        else:
            self.after(_NOTICE_GRACE_S, lambda: self._buried(id, life, code))

    def _let_go(self, life: _Life) -> None:
        life.over = True
        self.unwatch(life.spawned.pidfd)
        close_private(life.spawned.pidfd)

    def _buried(self, id: str, life: _Life, code: int | None) -> None:
        if self._lives.get(id) is not life:
            return
        del self._lives[id]
        self.forget_child(life.spawned)
        self._vigil.forget(id)
        self.table.remove_below(self._full(id))
        self._take(core.ChildExited(id, life.incarnation, life.reason or describe_exit(code)))

    # ------------------------------------------------------------ effects
    def _take(self, event: core.Event) -> None:
        for effect in self.core.handle(event, self.now()):
            self._perform(effect)

    def _perform(self, effect: core.Effect) -> None:
        match effect:
            case core.Spawn(spec, incarnation, restarts):
                self._spawn_child(spec, incarnation, restarts)
            case core.AskToStop(id, _) if (life := self._lives.get(id)) is not None:
                self._vigil.forget(id)
                self.send(life.address, Shutdown())
            case core.Kill(id, _) if (life := self._lives.get(id)) is not None:
                _kill(life)
            case core.Abandon(id, _) if (life := self._lives.pop(id, None)) is not None and not life.over:
                self._let_go(life)
            case core.SetTimer(due, delay_s):
                self.after(delay_s, lambda: self._take(due))
            case core.Answer(ref, body):
                self._answer(ref, body)
            case core.Show():
                self._show(effect)
            case core.Report():
                self._report(effect)
            case core.Up():
                self.ready()
            case core.End(reason):
                self.finish(reason)

    def _spawn_child(self, spec: ChildSpec, incarnation: int, restarts: int) -> None:
        id = spec.id
        init = Init(
            id=self._full(id),
            kind=spec.kind,
            incarnation=incarnation,
            runtime_dir=self.init.runtime_dir,
            args=spec.args,
            restarts=restarts,
        )
        spawned = self.spawn(spec.actor, init)
        if spawned is None:
            exited = core.ChildExited(id, incarnation, "start_failed: the process could not be forked")
            self.then_continue(lambda: self._take(exited))
            return
        life = self._lives[id] = _Life(incarnation, spawned, start_time(spawned.pid), limits=spec.limits)
        self.watch(spawned.pidfd, lambda _events: self._gone(id, life))

    def _answer(self, ref: str, body: core.AnswerBody) -> None:
        envelope = self._asked.pop(ref, None)
        if envelope is None:
            return
        answer = self._with_processes(body)
        if not isinstance(envelope.body, WhichChildren | CountChildren):
            self._answered[ref] = answer
            if len(self._answered) > _ANSWERED_KEPT:
                self._answered.popitem(last=False)
        self.reply(envelope, answer)

    def _with_processes(self, body: core.AnswerBody) -> Any:
        """Add what only the shell knows: where a child is, and its pid."""
        if isinstance(body, tuple):
            return tuple(dataclasses.replace(status, pid=self._pid(status.id)) for status in body)
        if not isinstance(body, core.ChildUp):
            return body
        life = self._lives[body.id]
        return ChildAt(
            id=body.id,
            address=life.address,
            pid=life.spawned.pid,
            incarnation=body.incarnation,
            info=body.info,
            already_started=body.already_started,
        )

    def _pid(self, id: str) -> int | None:
        life = self._lives.get(id)
        return life.spawned.pid if life is not None and not life.over else None

    def _show(self, show: core.Show) -> None:
        if show.state is None:
            self.table.remove(self._full(show.id))
            return
        life = self._lives.get(show.id)
        self.table.put(
            Row(
                id=self._full(show.id),
                kind=show.kind,
                parent=self.init.id,
                state=show.state,
                incarnation=show.incarnation,
                restarts=show.restarts,
                pid=life.spawned.pid if life else None,
                started_at=life.started_at if life else None,
                address=write_address(life.address) if life and life.address is not None else None,
            )
        )

    def _report(self, fact: core.Report) -> None:
        level = self.log.info if fact.fact in _QUIET_FACTS else self.log.warning
        level(
            fact.fact,
            subject=self._full(fact.id),
            subject_incarnation=fact.incarnation,
            reason=fact.reason,
            in_a_row=fact.consecutive,
            restarts=fact.restarts,
            next_delay_s=fact.delay_s,
        )


def _kill(life: _Life) -> None:
    if not life.over:
        kill_by(life.spawned.pidfd)


def _load(what: str) -> None:
    module, _, function = what.partition(":")
    loaded = importlib.import_module(module)
    if function:
        getattr(loaded, function)()


__all__ = [
    "LIFE",
    "SUPERVISOR",
    "ChildAt",
    "ChildCounts",
    "ChildDeleted",
    "ChildNotStarted",
    "ChildStatus",
    "ChildTerminated",
    "CountChildren",
    "DeleteChild",
    "RestartChild",
    "StartChild",
    "SupervisorActor",
    "TerminateChild",
    "WhichChildren",
]
