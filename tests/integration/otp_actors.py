"""The actors and the daemon of ``test_otp_rows.py``: run as a script, it keeps a tree that a pickle describes."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from callboard.supervisor.child import Child
from callboard.supervisor.envelope import Envelope, Exiting

ACTOR = "otp_actors.Willing"


class Willing(Child):
    """Does what it is told: at its start by ``args["do"]``, later by commands (a word, or a pair of word and value)."""

    def start(self) -> None:
        """Begin as told."""
        note = self.init.args.get("note")
        if note:
            _note(note, f"start {self.init.id}")
        match self.init.args.get("do", "ok"):
            case "raise":
                raise ValueError("told to fail")
            case "exit":
                sys.exit(3)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(60)

    def handle(self, envelope: Envelope) -> None:
        """Do one thing."""
        match envelope.body:
            case "segfault":
                ctypes.string_at(0)
            case "spin":
                self.reply(envelope, "spinning")
                self.then_continue(_spin)
            case ("finish", str(reason)):
                self.finish(reason)
            case ("note and raise", str(path)):
                _note(path, "done")
                raise RuntimeError("after the effect")
            case ("say goodbye and vanish", str(reason)):
                goodbye = Exiting(id=self.init.id, incarnation=self.init.incarnation, reason=reason)
                self.send(self._parent, goodbye)
                os._exit(0)
            case other:
                self.reply(envelope, other)

    def stopping(self) -> None:
        """Note the end, where there is a place for it."""
        note = self.init.args.get("note")
        if note:
            _note(note, f"stop {self.init.id}")


def _note(path: str, line: str) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _spin() -> None:
    while True:
        pass


def keep(folder: Path, root_args: dict[str, Any]) -> int:
    """Run the tree until a signal ends it."""
    from callboard.transports import mail

    mail.prepare_environment(folder)
    from callboard.supervisor.outermost import Outermost

    return Outermost(
        folder, root_args, partial(mail.open_system, folder), lambda _lives: print("up", flush=True)
    ).run()


if __name__ == "__main__":
    sys.exit(keep(Path(sys.argv[1]), pickle.loads(Path(sys.argv[2]).read_bytes())))
