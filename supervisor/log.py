"""The log: one structured JSON line per fact of life, written by each actor itself to one shared file.

Not Thespian's logging, which sends every record as a message to one process. Lines are appended in one write each,
so that many processes share the file; it is rotated once it exceeds ``ROTATE_BYTES``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import structlog

ROTATE_BYTES = 16 * 1024 * 1024
_LINE_LIMIT = 16 * 1024
FILE_NAME = "log.jsonl"


class _AppendLogger:
    """Writes each rendered line with one O_APPEND write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def msg(self, line: str) -> None:
        """Append one line; a full disk costs the line, never the actor."""
        data = line.encode("utf-8", "replace")[:_LINE_LIMIT] + b"\n"
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return
        try:
            os.write(fd, data)
            if os.fstat(fd).st_size > ROTATE_BYTES:
                self._path.replace(self._path.with_suffix(".1.jsonl"))
        except OSError as fault:
            print(f"callboard: cannot write the log: {fault}", file=sys.stderr)  # noqa: T201
        finally:
            os.close(fd)

    debug = info = warning = error = critical = exception = msg


def open_log(runtime_dir: str | Path, **context: Any) -> structlog.typing.FilteringBoundLogger:
    """Open the log of a runtime directory, bound to ``context`` (child, incarnation, pid)."""
    logger: structlog.typing.FilteringBoundLogger = structlog.wrap_logger(
        _AppendLogger(Path(runtime_dir) / FILE_NAME),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(default=str),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        context_class=dict,
    ).bind(pid=os.getpid(), **context)
    return logger


def tail(runtime_dir: str | Path, lines: int = 20) -> list[str]:
    """Give the last lines of the log, for an error message; empty when there is none."""
    try:
        with (Path(runtime_dir) / FILE_NAME).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 64 * 1024))
            return file.read().decode("utf-8", "replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []
