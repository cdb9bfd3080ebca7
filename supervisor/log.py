"""The log: one JSON line per fact of life, written by each actor itself to one shared file.

Not Thespian's logging, which sends every record as a message to one process; and no logging library, which would stay
in the memory of every actor and be copied at every fork (docs/decisions/006). Lines are appended in one write each, so
that many processes share the file; it is rotated once it exceeds ``ROTATE_BYTES``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROTATE_BYTES = 16 * 1024 * 1024
LINE_LIMIT = 16 * 1024
FILE_NAME = "log.jsonl"


class Log:
    """A log file, and what stands in every line of it that is written through this object."""

    def __init__(self, path: Path, **context: Any) -> None:
        self._path = path
        self._context = context

    def info(self, event: str, **facts: Any) -> None:
        """Write a fact that is as it should be."""
        self._write("info", event, facts)

    def warning(self, event: str, **facts: Any) -> None:
        """Write a fact that somebody on call may want to know."""
        self._write("warning", event, facts)

    def error(self, event: str, exc_info: bool = False, **facts: Any) -> None:
        """Write a fault; with ``exc_info`` the exception that is being handled, and its traceback."""
        if exc_info:
            facts["traceback"] = traceback.format_exc(limit=20)
        self._write("error", event, facts)

    def critical(self, event: str, **facts: Any) -> None:
        """Write that the whole cannot go on."""
        self._write("critical", event, facts)

    def _write(self, level: str, event: str, facts: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"timestamp": at, "level": level, "event": event, **self._context, **facts}
        data = json.dumps(line, default=str).encode("utf-8", "replace")
        if len(data) > LINE_LIMIT:
            short = {key: str(value)[:1000] for key, value in line.items()} | {"cut_from_bytes": len(data)}
            data = json.dumps(short).encode("utf-8", "replace")
        self._append(data + b"\n")

    def _append(self, data: bytes) -> None:
        """A full disk costs the line, never the actor; a folder that is gone means that the system is ending."""
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return
        except OSError as fault:
            print(f"callboard: cannot open the log: {fault}", file=sys.stderr)  # noqa: T201
            return
        try:
            os.write(fd, data)
            if os.fstat(fd).st_size > ROTATE_BYTES:
                self._path.replace(self._path.with_suffix(".1.jsonl"))
        except OSError as fault:
            print(f"callboard: cannot write the log: {fault}", file=sys.stderr)  # noqa: T201
        finally:
            os.close(fd)


def open_log(runtime_dir: str | Path, **context: Any) -> Log:
    """Open the log of a runtime directory; ``context`` (child, incarnation) stands in each line, with the pid."""
    return Log(Path(runtime_dir) / FILE_NAME, pid=os.getpid(), **context)


def tail(runtime_dir: str | Path, lines: int = 20) -> list[str]:
    """Give the last lines of the log, for an error message; empty when there is none."""
    try:
        with (Path(runtime_dir) / FILE_NAME).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []
