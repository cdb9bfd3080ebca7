"""Random load on the actor mail, with kills: ``python benchmarks/mail_soak.py --minutes 30 [--seed N]``.

A nursery keeps ten actors that flood, ask and wake each other at random; every second one of them is killed and
replaced, another stopped for a while. It prints descriptors and memory as it goes, and fails when a wakeup was lost,
an outbox is stuck, or descriptors, sockets or memory grew. Memory is compared at rest, before the load's second minute
and at the end, by the interpreter's allocated blocks: resident memory also holds the highest backlog that there was,
which chance decides, and is only held under a ceiling.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_ACTORS = 10
_CEILING_KB = 64_000


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        from callboard.transports import mail

        self.folder = folder
        self.chance = random.Random(seed)
        self.handle = mail.open_system(folder, "unix")
        self.system: Any = self.handle._system
        self.nursery = self.system.createActor("mail_soak_actors.Nursery")
        self.stopped: list[int] = []
        self.kills = 0

    def ask(self, *command: Any, seconds: float = 60.0) -> Any:
        """Ask the nursery."""
        answer = self.system.ask(self.nursery, command, timedelta(seconds=seconds))
        if answer is None:
            raise SystemExit(f"no answer to {command[0]}")
        return answer

    def figures(self) -> dict[str, float]:
        """Give descriptors, memory and sockets."""
        pid, blocks = self.ask("pid"), self.ask("blocks")
        return {
            "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
            "rss_kb": _status(pid, "VmRSS"),
            "admin_rss_kb": _status(_status(pid, "PPid"), "VmRSS"),
            "blocks": blocks,
            "sockets": len(list((self.folder / "mail").iterdir())),
            "kills": self.kills,
        }

    def second(self) -> None:
        """A second of load, a kill and a stop."""
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            self.ask("load", self.chance.randrange(1, 400), self.chance.choice([10, 1000, 100_000]))
        for pid in self.stopped:
            _signal(pid, signal.SIGCONT)
        pids = self.ask("pids")
        if len(pids) > 2:
            victim, self_stopped = self.chance.sample(pids, 2)
            _signal(victim, signal.SIGKILL)
            _signal(self_stopped, signal.SIGSTOP)
            self.stopped = [self_stopped]
            self.kills += 1

    def settle(self) -> dict[str, Any]:
        """Let all run, and give what is left over."""
        for pid in self.stopped:
            _signal(pid, signal.SIGCONT)
        left: dict[str, Any] = {}
        give_up_at = time.monotonic() + 180
        while time.monotonic() < give_up_at:
            answer = self.system.ask(self.nursery, ("left",), timedelta(seconds=3))
            left = answer if isinstance(answer, dict) else {"no answer": 1}  # One died meanwhile: ask again.
            if not any(left.values()):
                return left
            time.sleep(0.2)
        return left


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith(f"{name}:"))


def main() -> int:
    """Run it; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    sys.path.insert(0, str(_HERE))
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory(prefix="mail-soak-") as folder:
        os.environ["THESPLOG_FILE"] = f"{folder}/thespian.log"
        soak = Soak(Path(folder), given.seed)
        soak.ask("fill", _ACTORS)
        end = time.monotonic() + given.minutes * 60
        for _ in range(60):
            soak.second()
        soak.settle()
        first, report_at = soak.figures(), 0.0
        while time.monotonic() < end:
            if time.monotonic() > report_at:
                report_at = time.monotonic() + 60
                print(soak.figures(), flush=True)
            soak.second()
        left, last = soak.settle(), soak.figures()
        print(f"left over: {left}; at the end {last}")
        soak.system.shutdown()
        soak.handle.close()
    flat = last["fds"] <= first["fds"] + 2 and last["blocks"] < first["blocks"] * 1.05
    bounded = max(last["rss_kb"], last["admin_rss_kb"]) < _CEILING_KB and last["sockets"] < 40
    good = flat and bounded and not any(left.values())
    print("good" if good else "FAILED")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
