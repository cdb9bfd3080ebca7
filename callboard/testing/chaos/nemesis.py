"""The nemesis: picks a process of the system's own table by seed, and does it harm.

It signals nothing but processes of that table whose start time still matches, writes each fault down before it is
done, and heals (SIGCONT) whatever it stopped.
"""

from __future__ import annotations

import os
import random
import signal
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from callboard.supervisor.envelope import Envelope
from callboard.supervisor.process import is_alive
from callboard.supervisor.table import ProcessTable, Row, read_address
from callboard.testing.chaos.bomb import Bomb
from callboard.testing.chaos.history import History
from callboard.testing.chaos.victims import kill_exactly
from callboard.transports.mail import Endpoint

Fault: TypeAlias = Literal["sigkill", "sigstop", "sigsegv", "sigterm", "raise", "exit"]
FAULTS: tuple[Fault, ...] = ("sigkill", "sigstop", "sigsegv", "sigterm", "raise", "exit")
_SIGNALS = {
    "sigkill": signal.SIGKILL,
    "sigstop": signal.SIGSTOP,
    "sigsegv": signal.SIGSEGV,
    "sigterm": signal.SIGTERM,
}


class LeashOn(RuntimeError):
    """Chaos was not asked for: ``CHAOS=1`` is not in the environment."""


def check_leash() -> None:
    """Raise LeashOn unless the person who started this said ``CHAOS=1``."""
    if os.environ.get("CHAOS") != "1":
        raise LeashOn("this kills processes of a Callboard system on purpose; set CHAOS=1 to allow it")


class Nemesis:
    """Faults on the system in ``runtime_dir``. The same seed picks the same kinds of victims in the same order."""

    def __init__(
        self, runtime_dir: Path, history: History, seed: int, faults: Sequence[Fault] = FAULTS
    ) -> None:
        check_leash()
        self._runtime_dir = runtime_dir
        self._table = ProcessTable(runtime_dir)
        self._history = history
        self._random = random.Random(seed)
        self._faults = tuple(faults)
        self._stopped: list[Row] = []

    def strike(self) -> Row | None:
        """Do one fault to one victim; None when there is none. Kinds are drawn first: rare ones get their share."""
        rows = [row for row in self._table.rows() if row.pid is not None and row.state == "running"]
        if not rows:
            return None
        kind = self._random.choice(sorted({row.kind for row in rows}))
        victim = self._random.choice([row for row in rows if row.kind == kind])
        fault = self._random.choice(self._faults)
        return victim if self.harm(victim, fault) else None

    def harm(self, victim: Row, fault: Fault) -> bool:
        """Do this fault to this victim; False when it is gone already."""
        if victim.pid is None or not is_alive(victim.pid, victim.started_at):
            return False
        self._history.write("fault", fault=fault, id=victim.id, victim=victim.kind, pid=victim.pid)
        if fault == "raise" or fault == "exit":
            return self._throw(victim, fault)
        if not kill_exactly(victim.pid, victim.started_at, _SIGNALS[fault]):
            return False
        if fault == "sigstop":
            self._stopped.append(victim)
        return True

    def _throw(self, victim: Row, how: Literal["raise", "exit"]) -> bool:
        """Have the victim's handler fail; a worker has no mail and is left alone."""
        if victim.address is None:
            return False
        endpoint = Endpoint(self._runtime_dir)
        try:
            endpoint.send(read_address(victim.address), Envelope(request_id=uuid.uuid4().hex, body=Bomb(how)))
        finally:
            endpoint.close()
        return True

    def heal(self) -> None:
        """Let everything that was stopped, and still lives, go on."""
        for row in self._stopped:
            if row.pid is not None:
                kill_exactly(row.pid, row.started_at, signal.SIGCONT)
        self._stopped.clear()
        self._history.write("heal")
