"""A hostile tool for ``callboard doctor sandbox``: it tries to get out, and says what worked. No system offers it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from callboard.tools.contract import ToolContext
from callboard.tools.decorator import Tool


class Probe(Tool):
    """Try to get out of the sandbox."""

    name = "probe"

    def execute(self, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, bool]:
        """Give, for each attempt, whether it worked. ``targets`` has file, folder, port, mail and pid."""
        targets = arguments["targets"]
        attempts: dict[str, Callable[[], object]] = {
            "read another's file": Path(targets["file"]).read_bytes,
            "list another's folder": lambda: os.listdir(targets["folder"]),  # noqa: PTH208
            "write outside its own folder": lambda: (Path(targets["folder"]) / "new").write_bytes(b"x"),
            "read the daemon's environment": Path(f"/proc/{targets['pid']}/environ").read_bytes,
            "connect by TCP": lambda: socket.create_connection(("127.0.0.1", targets["port"]), 1.0).close(),
            "send to the daemon's mail": lambda: _send(targets["mail"]),
            "signal the daemon": lambda: os.kill(targets["pid"], 0),
        }
        return {what: _works(attempt) for what, attempt in attempts.items()}


def _send(path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"x", path)


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return False
    return True


probe = Probe()
