"""Many short-lived children of one supervisor, in a process and an actor system of their own.

``python short_lives.py COUNT`` prints, as JSON lines, what the supervisor holds after each batch of children.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from callboard.supervisor.process import become_subreaper
from callboard.transports import mail

mail.prepare_environment(tempfile.gettempdir())

import gc  # noqa: E402

import mend_scenarios  # noqa: E402
import psutil  # noqa: E402

from callboard.supervisor import mends, supervisor  # noqa: E402
from callboard.supervisor.child import Child  # noqa: E402
from callboard.supervisor.envelope import Envelope, Init, Reply, Started  # noqa: E402
from callboard.supervisor.spec import ChildSpec, SupervisorFlags  # noqa: E402
from callboard.supervisor.supervisor import StartChild, SupervisorActor  # noqa: E402
from callboard.supervisor.table import ProcessTable  # noqa: E402

BATCH = 50
START_S = 4.0  # A timer lives on until then: the shorter, the sooner what is left is only what grows.


class Brief(Child):
    """A child that ends as soon as it is up; three of ten are killed instead."""

    def start(self) -> None:
        """End right after the start."""
        if self.init.id.endswith(("0", "4", "8")):
            self.then_continue(lambda: os.kill(os.getpid(), 9))
        else:
            self.then_continue(self.finish)


class Counting(SupervisorActor):
    """A supervisor that tells what it holds, and remembers few answers."""

    def start(self) -> bool:
        """Keep few of the answers that it gave: they are bounded, but a thousand would hide what grows."""
        supervisor._ANSWERED_KEPT = 8
        return super().start()

    def handle(self, envelope: Envelope) -> None:
        """Count."""
        if envelope.body != "count":
            super().handle(envelope)
            return
        gc.collect()
        manager = self._myRef
        self.reply(
            envelope,
            {
                "lives": len(self._lives),
                "timers": len(self._timers._heap),
                "blocks": sys.getallocatedblocks(),
                "rss": psutil.Process().memory_info().rss,
                "children": len(manager._children),
                "processes": len(manager._child_procs),
                "waiting": len(manager._awaitingAddressUpdate._awt),
                "exit_codes": len(mends._exit_codes),
                "descriptors": len(list(Path("/proc/self/fd").iterdir())),
            },
        )


def main() -> None:
    """Run the batches."""
    become_subreaper()
    with tempfile.TemporaryDirectory(prefix="cb-") as name:
        try:
            mends.apply(os.getpid())
            ProcessTable(Path(name)).create()
            live(mail.open_system(name), name, int(sys.argv[1]))
        finally:
            mend_scenarios.end_all()


def live(system: Any, folder: str, count: int) -> None:
    """Start the supervisor, then batch after batch of children."""
    args = {"flags": SupervisorFlags(dynamic=True)}
    init = Init(id="root", kind="supervisor", incarnation=1, runtime_dir=folder, args=args)
    root = system.create("short_lives.Counting")
    system.send(root, init)
    assert isinstance(system.receive(20.0), Started)
    endpoint = mail.Endpoint(folder)

    def ask(*bodies: Any) -> Any:
        for body in bodies:
            envelope = Envelope(request_id=uuid.uuid4().hex, body=body, reply_to=endpoint.address)
            endpoint.send(root, envelope)
        answer = None
        for _ in bodies:
            answer = endpoint.receive(30.0)
            assert isinstance(answer, Reply), answer
        return answer.body if answer is not None else None

    for first in range(0, count, BATCH):
        ask(
            *(
                StartChild(
                    ChildSpec(
                        id=f"b{n}",
                        actor="short_lives.Brief",
                        kind="brief",
                        restart="temporary",
                        start_s=START_S,
                    )
                )
                for n in range(first, first + BATCH)
            )
        )
        give_up_at = time.monotonic() + 20.0
        while (counted := ask("count"))["lives"] and time.monotonic() < give_up_at:
            time.sleep(0.02)
        print(json.dumps(counted | {"born": first + BATCH}), flush=True)
    endpoint.close()


if __name__ == "__main__":
    import short_lives  # the module's importable self: actors are created by its name

    short_lives.main()
