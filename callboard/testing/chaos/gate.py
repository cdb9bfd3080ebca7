"""Stores that stand before the journal's own, in the journal's process: a gate at each commit, and faults on demand.

Named by ``Settings.journal_wrapper`` ("module:callable"), which only code and tests can set. ``gated`` tells whoever
listens on the Unix socket in ``CALLBOARD_CHAOS_GATE`` what is about to be committed and what has just been, and goes on
when told so, or loses what was to be committed. ``faulty`` refuses everything with the kind that stands in the file
named by ``CALLBOARD_CHAOS_FAULT``.
They decide nothing: the test does, at the other end.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callboard.storage.journal_terms import STORAGE_IO, Append, JournalError

if TYPE_CHECKING:
    from callboard.storage.journal import Journal

GATE = "CALLBOARD_CHAOS_GATE"
FAULT = "CALLBOARD_CHAOS_FAULT"
GO_ON = b"g"
LOSE = b"l"


def gated(store: Journal) -> GatedStore:
    """Put a gate before the store; the socket's path is in the environment."""
    return GatedStore(store, os.environ[GATE])


def faulty(store: Journal) -> FaultyStore:
    """Put a fault before the store, which is there while the file named in the environment is."""
    return FaultyStore(store, Path(os.environ[FAULT]))


class GatedStore:
    """The store, with every commit announced before and after it. Without a listener it is the store itself."""

    def __init__(self, store: Journal, path: str) -> None:
        self._store = store
        self._path = path
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, conversation: str, team: str, *given: Any, **named: Any) -> Any:
        """Open the log; then say which epoch was issued."""
        opened = self._store.open(conversation, team, *given, **named)
        self._announce("opened", [{"conversation": conversation, "epoch": opened.epoch, "seqs": []}])
        return opened

    def commit(self, appends: Sequence[Append]) -> Any:
        """Announce, commit, announce; each announcement waits until the listener lets it through, or has it lost."""
        what = [
            {
                "conversation": a.conversation,
                "epoch": a.epoch,
                "seqs": [record["seq"] for record in a.records],
            }
            for a in appends
        ]
        if self._announce("before", what) == LOSE:
            return [JournalError(STORAGE_IO, "lost on the way to the disk")] * len(appends)
        answers = self._store.commit(appends)
        for entry, answer in zip(what, answers, strict=True):
            entry["refused"] = answer.kind if isinstance(answer, JournalError) else None
        self._announce("after", what)
        return answers

    def _announce(self, side: str, what: list[dict[str, Any]]) -> bytes:
        with self._lock:
            if self._gone:
                return GO_ON
            try:
                if self._line is None:
                    self._line = socket.socket(socket.AF_UNIX)
                    self._line.connect(self._path)
                self._line.sendall(json.dumps({"side": side, "what": what}).encode() + b"\n")
                answer = self._line.recv(1)
            except OSError:
                answer = b""
            self._gone = not answer
            return answer


class FaultyStore:
    """The store, which writes nothing while the fault's file is there."""

    def __init__(self, store: Journal, file: Path) -> None:
        self._store = store
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self, conversation: str, team: str, *given: Any, **named: Any) -> Any:
        """Open the log; raises the fault."""
        fault = self._fault()
        if fault is not None:
            raise fault
        return self._store.open(conversation, team, *given, **named)

    def commit(self, appends: Sequence[Append]) -> Any:
        """Commit, or answer all with the fault."""
        fault = self._fault()
        return self._store.commit(appends) if fault is None else [fault] * len(appends)

    def _fault(self) -> JournalError | None:
        try:
            kind = self._file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        return JournalError(kind, f"the disk of the test failed ({kind})")
