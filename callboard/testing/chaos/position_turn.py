"""One conversation with one kill: its caller, its subscriber, the kill, and what each of them saw of it.

It plays a turn of five steps and has one process killed at one record of its log; ``verdict`` then checks everything.
Called by ``positions``.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from callboard.actors.events import ConversationClosed, Event, event_from_json
from callboard.actors.messages import AppendEvents
from callboard.actors.names import JOURNAL
from callboard.api import Conversation, System
from callboard.errors import CallboardError, Unavailable
from callboard.supervisor.envelope import Failure
from callboard.supervisor.process import is_alive
from callboard.testing.chaos.daemon import ChaosDaemon
from callboard.testing.chaos.five_steps import question
from callboard.testing.chaos.gatekeeper import Gatekeeper, Side, Trap
from callboard.testing.chaos.position_checks import LIMIT_S, Evidence, faults_of
from callboard.testing.chaos.victims import Kind, Victim, find_victim, kill_exactly
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import eventually

_SENDERS: frozenset[Kind] = frozenset({"client", "conversations"})
_GOES_TOO: dict[Kind, Kind] = {
    "root": "journal",
    "admin": "journal",
    "outermost": "journal",
    "conversations": "client",
}
_HOLD_S = 0.2
_ASK_AGAIN_S = 0.05
_GONE_S = 10.0
_WORKER_WITHIN_S = 3.0
_ANSWER_S = 10.0
_FOLLOWED_S = 10.0
_USER, _TEAM = "ann", "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL for the process of this kind, when record ``seq`` is about to be committed, or has just been."""

    seq: int
    side: Side
    kind: Kind

    def __str__(self) -> str:
        return f"{self.kind} killed {self.side} record {self.seq}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Struck:
    """How one kill went.

    ``killed``: there was such a process; ``refusals``: why the caller had to ask again; ``faults``: what did not hold.
    """

    kill: Kill
    killed: bool
    took_s: float
    refusals: tuple[str, ...]
    faults: tuple[str, ...]


class Turn:
    """One conversation: its caller, its subscriber, its kill, and what each of them saw."""

    def __init__(
        self, id: str, kill: Kill, folder: Path, seconds: float, daemon: ChaosDaemon, system: System
    ) -> None:
        self.id = id
        self.kill = kill
        self.effects = folder / f"effects-{id}"
        self._question = question(str(self.effects), seconds)
        self._loses = kill.side == "before" and kill.kind in _SENDERS
        self._daemon = daemon
        self._system = system
        self._turn_id = uuid.uuid5(uuid.NAMESPACE_OID, id).hex
        self._asked: list[Event] = []
        self._followed: list[Event] = []
        self._told: tuple[Event, ...] = ()
        self._stale: str | None = None
        self._faults: list[str] = []
        self._refusals: list[str] = []
        self._took_s = 0.0
        self._killed = threading.Event()
        self._over = threading.Event()
        self._open = threading.Event()

    # ------------------------------------------------------------ while it runs
    def play(self, gatekeeper: Gatekeeper) -> None:
        """Ask, kill, and wait for the ending."""
        seq, side = self.kill.seq, self.kill.side
        trap = Trap(conversation=self.id, seq=seq, side=side, strike=self._strike, lose=self._loses)
        gatekeeper.set(trap)
        threads = [threading.Thread(target=run, daemon=True) for run in (self._call, self._follow)]
        for thread in threads:
            thread.start()
        self._over.wait(2 * LIMIT_S)
        if not trap.sprung.is_set():
            self._faults.append(f"record {self.kill.seq} was never written")
        self._end(gatekeeper)
        for thread in threads:
            thread.join(_FOLLOWED_S)
            if thread.is_alive():
                self._faults.append(f"{thread.name} never ended")

    def _strike(self) -> None:
        if self.kill.kind in ("tool_worker", "fork_server"):
            threading.Thread(target=self._strike_worker, daemon=True).start()
            return
        if self._loses:
            time.sleep(_HOLD_S)  # what must wait for the commit has time to show that it does not
        try:
            if self._kill_one():
                self._killed.set()
        except AssertionError as failed:
            self._faults.append(str(failed))

    def _strike_worker(self) -> None:
        """Kill the next worker (or who forks them) that appears, if one still does."""
        give_up_at = time.monotonic() + _WORKER_WITHIN_S
        while not self._over.is_set() and time.monotonic() < give_up_at:
            if self._kill_one():
                self._killed.set()
                return
            self._over.wait(0.002)

    def _kill_one(self) -> bool:
        """Kill; who goes with the victim and has a part in the commit is to be dead, too, before it is let go."""
        kind = self.kill.kind
        other = self._find(_GOES_TOO[kind]) if kind in _GOES_TOO else None
        victim = self._find(kind)
        if victim is None or not kill_exactly(victim.pid, victim.started_at):
            return False
        if other is not None:
            eventually(
                lambda: not is_alive(other.pid, other.started_at), _GONE_S, f"the {other.kind} is gone"
            )
        return True

    def _find(self, kind: Kind) -> Victim | None:
        try:
            outermost = self._daemon.outermost()
        except psutil.NoSuchProcess:
            return None
        return find_victim(kind, self._daemon.folder, outermost, self.id)

    def _call(self) -> None:
        """Take the turn; what is refused because the system is away is asked again under the same request id."""
        began = time.monotonic()
        try:
            while not self._try_call() and time.monotonic() - began < LIMIT_S:
                time.sleep(_ASK_AGAIN_S)
        except CallboardError as refused:
            self._faults.append(f"the caller was refused: {refused!r}")
        finally:
            self._took_s = time.monotonic() - began
            self._over.set()
            self._open.set()

    def _try_call(self) -> bool:
        try:
            conversation = self._conversation()
            self._open.set()
            self._asked.clear()
            for event in conversation.ask(self._question, request_id=self._turn_id):
                if event.seq is not None:
                    self._asked.append(event)
        except Unavailable as away:
            self._refusals.append(f"{away.kind}: {away}")
            return False
        return True

    def _conversation(self) -> Conversation:
        return self._system.conversation(conversation_id=self.id, user=_USER, team=_TEAM, linked=False)

    def _follow(self) -> None:
        """Read the log throughout, until the conversation is closed."""
        self._open.wait(LIMIT_S)
        try:
            for event in self._conversation().events(after=0):
                if event.seq is not None:
                    self._followed.append(event)
                if isinstance(event, ConversationClosed):
                    return
        except CallboardError as lost:
            self._faults.append(f"the subscriber was lost: {lost!r}")

    def _end(self, gatekeeper: Gatekeeper) -> None:
        try:
            conversation = self._conversation()
            self._told = tuple(conversation.history())
            self._stale = self._append_as_former_owner(gatekeeper)
            conversation.close()
        except CallboardError as refused:
            self._faults.append(f"the conversation cannot be ended: {refused!r}")

    def _append_as_former_owner(self, gatekeeper: Gatekeeper) -> str | None:
        epochs = [passed.epoch for passed in gatekeeper.passed(self.id) if passed.side == "opened"]
        if len(set(epochs)) < 2:
            return None
        late = ConversationClosed(seq=len(self._told) + 1, at=self._told[-1].at)
        command = AppendEvents(conversation_id=self.id, team=_TEAM, epoch=min(epochs), events=(late,))
        answer = self._system._mailbox.request(command, timeout_s=_ANSWER_S, to=JOURNAL)
        return answer.kind if isinstance(answer, Failure) else "taken"

    # ------------------------------------------------------------ afterwards
    def verdict(self, model: ScriptedModelServer, gatekeeper: Gatekeeper, read: Any) -> Struck:
        """Check everything, with what the journal has on disk."""
        effects = self.effects.read_text().splitlines() if self.effects.exists() else []
        evidence = Evidence(
            turn_id=self._turn_id,
            took_s=self._took_s,
            log=tuple(event_from_json(record) for record in read(self.id, _TEAM)[0]),
            told=self._told,
            followed=tuple(self._followed),
            asked=tuple(self._asked),
            effects=tuple(effects),
            passed=tuple(gatekeeper.passed(self.id)),
            requests=tuple(r.messages for r in model.requests if str(self.effects) in r.last_user_text),
            stale=self._stale,
        )
        return Struck(
            kill=self.kill,
            killed=self._killed.is_set(),
            took_s=round(self._took_s, 3),
            refusals=tuple(self._refusals),
            faults=(*self._faults, *faults_of(evidence)),
        )
