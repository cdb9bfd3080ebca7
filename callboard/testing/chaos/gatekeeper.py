"""The other end of ``gate.gated``: sees every commit of a system's journal, and holds the ones that a trap waits for.

It keeps what went through (which epoch was issued, who appended what, what was refused). Called by the test's own
process; each journal process that connects is served by one thread.
"""

from __future__ import annotations

import json
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from callboard.testing.chaos.gate import GO_ON, LOSE

Side: TypeAlias = Literal["before", "after"]
_STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What went through the gate: ``side`` ``opened`` (an epoch was issued), ``before`` or ``after`` (a commit)."""

    side: str
    conversation: str
    epoch: int
    seqs: tuple[int, ...]
    refused: str | None = None


@dataclass(slots=True, kw_only=True)
class Trap:
    """Strike once, when ``conversation``'s record ``seq`` is about to be committed, or has just been.

    The commit (or its acknowledgement) is held while ``strike`` runs. With ``lose`` the commit is then lost, as if its
    sender had died a moment earlier.
    """

    conversation: str
    seq: int
    side: Side
    strike: Callable[[], None]
    lose: bool = False
    sprung: threading.Event = field(default_factory=threading.Event)

    def waits_for(self, passed: Passed) -> bool:
        """True for the commit that it was set for."""
        here = (passed.conversation, passed.side) == (self.conversation, self.side)
        return here and self.seq in passed.seqs


class Gatekeeper:
    """Listens on the socket ``path``, in a short folder of its own; use as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="callboard-gate-")
        self.path = Path(self._folder.name) / "gate"
        self._lock = threading.Lock()
        self._passed: list[Passed] = []
        self._trap: Trap | None = None
        self._lines: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Gatekeeper:
        """Begin to listen."""
        self._listener.bind(str(self.path))
        self._listener.listen(8)
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        """Let whoever waits go on, and end all threads."""
        with self._lock:
            self._closed = True
            lines = [self._listener, *self._lines]
        for line in lines:
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        for thread in list(self._threads):
            thread.join(_STOP_S)
        for line in lines:
            line.close()
        self._folder.cleanup()

    def set(self, trap: Trap) -> None:
        """Set the one trap; a former one is taken away."""
        with self._lock:
            self._trap = trap

    def passed(self, conversation: str) -> list[Passed]:
        """Give what went through for this conversation, in order."""
        with self._lock:
            return [entry for entry in self._passed if entry.conversation == conversation]

    def _spawn(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name="gatekeeper", daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._closed:
                    line.close()
                    return
                self._lines.append(line)
            self._spawn(lambda line=line: self._serve(line))  # type: ignore[misc]

    def _serve(self, line: socket.socket) -> None:
        try:
            with line.makefile("rb") as lines:
                for text in lines:
                    self._let_through(json.loads(text), line)
        except OSError:
            return  # the journal's process was killed, or we close

    def _let_through(self, said: dict[str, Any], line: socket.socket) -> None:
        entries = [
            Passed(side=said["side"], **(what | {"seqs": tuple(what["seqs"])})) for what in said["what"]
        ]
        with self._lock:
            self._passed += entries
            trap = self._trap
            if trap is None or not any(trap.waits_for(entry) for entry in entries):
                trap = None
            else:
                self._trap = None
        if trap is None:
            line.sendall(GO_ON)
            return
        try:
            trap.strike()
        finally:
            trap.sprung.set()
        line.sendall(LOSE if trap.lose else GO_ON)
