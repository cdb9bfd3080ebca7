"""The process table: one small file per actor, so that everyone of the same user can see and find it.

Rows are written by the parent when a child's state changes, and removed when it is gone; a reader never waits for
an actor. It is also how a long-lived actor is found under its name: the row holds its present address.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from callboard.supervisor.process import is_running

ROOT = "root"
_FOUND_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One actor as its parent sees it. ``address`` is opaque text for ``read_address``; ``pid`` None: no process."""

    id: str
    kind: str
    parent: str | None
    state: str
    incarnation: int = 0
    restarts: int = 0
    pid: int | None = None
    started_at: float | None = None
    address: str | None = None


class ProcessTable:
    """The table in ``runtime_dir`` (mode 0700, so that an address in it is as trusted as the mail itself)."""

    def __init__(self, runtime_dir: str | Path) -> None:
        self._folder = Path(runtime_dir) / "actors"
        self._found: dict[str, tuple[tuple[int, int], Any, int]] = {}

    def create(self) -> None:
        """Make the folder, empty of any former life's rows."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in self._folder.iterdir():
            stale.unlink()

    def put(self, row: Row) -> None:
        """Write the row, whole or not at all."""
        path = os.fspath(self._path(row.id))
        draft = f"{path}.{os.getpid()}"
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps({name: getattr(row, name) for name in Row.__slots__}).encode())
        finally:
            os.close(fd)
        os.replace(draft, path)  # noqa: PTH105

    def remove(self, id: str) -> None:
        """Remove the row and all below it."""
        self._path(id).unlink(missing_ok=True)
        for below in self._folder.glob(f"{_file_name(id)}.*.json"):
            below.unlink(missing_ok=True)

    def remove_row(self, id: str) -> None:
        """Remove the row of an actor that has none below it."""
        self._path(id).unlink(missing_ok=True)

    def remove_below(self, id: str) -> None:
        """Remove the rows of all that descends from ``id``: they died with it."""
        for below in self._folder.glob(f"{_file_name(id)}.*.json"):
            below.unlink(missing_ok=True)

    def get(self, id: str) -> Row | None:
        """Read one row; None when there is none."""
        try:
            return Row(**json.loads(self._path(id).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def rows(self) -> list[Row]:
        """Read all rows, parents before children; a process that is gone shows as ``dead``."""
        found = [self.get(path.stem) for path in sorted(self._folder.glob("*.json"), key=_by_id)]
        return [_as_seen(row) for row in found if row is not None]

    def find(self, id: str) -> tuple[Any, int] | None:
        """Give the actor's address and pid while it is running, else None.

        A row is replaced by another file, never written again: what was read from this one still holds.
        """
        try:
            seen = os.stat(self._path(id))  # noqa: PTH116
        except FileNotFoundError:
            self._found.pop(id, None)
            return None
        version, address, pid = self._found.get(id, (None, None, 0))
        if version != (seen.st_ino, seen.st_mtime_ns):
            row = self.get(id)
            if row is None or row.address is None or row.pid is None or row.state != "running":
                self._found.pop(id, None)
                return None
            address, pid = read_address(row.address), row.pid
            if len(self._found) >= _FOUND_KEPT:
                self._found.clear()
            self._found[id] = ((seen.st_ino, seen.st_mtime_ns), address, pid)
        return (address, pid) if is_running(pid) else None

    def _path(self, id: str) -> Path:
        return self._folder / f"{_file_name(id)}.json"


def write_address(address: Any) -> str:
    """Put an actor address in text."""
    return base64.b64encode(pickle.dumps(address)).decode("ascii")


def read_address(text: str) -> Any:
    """Read an actor address back from its text."""
    return pickle.loads(base64.b64decode(text))


def _by_id(path: Path) -> str:
    """Without the suffix, so that a parent's name comes before all that begin with it."""
    return path.stem


def _file_name(id: str) -> str:
    return id.replace("/", "_")


def _as_seen(row: Row) -> Row:
    if row.pid is None or row.state in ("restarting", "parked") or is_running(row.pid):
        return row
    return replace(row, state="dead")
