"""Resting conversations: how fast one returns, and what the directory and the supervisor keep of those that left.

    python benchmarks/conversations.py [--returns N] [--parts N] [--real N]

Prints a table. ``returns``: a conversation that rests is asked for its history; the time until the answer, its client
started and its log opened in between. ``parts``: that many conversations are opened and left by the directory's desks
and the supervisor's core alone, in this process; bytes kept for each, by a line through the measured points. ``real``:
the same with real processes; resident memory of the directory, the supervisor and the journal, and their descriptors.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import threading
import time
import tracemalloc
from collections.abc import Callable

import psutil

import callboard
from callboard.actors.directory_desk import Desks
from callboard.actors.directory_terms import Arrived, ClientGone, ClientUp, Key, LeaveAsked
from callboard.actors.events import ConversationOpened
from callboard.api import System
from callboard.config import Config, default_config
from callboard.supervisor import core_terms
from callboard.supervisor.backoff import Backoff
from callboard.supervisor.commands import StartChild
from callboard.supervisor.core import SupervisorCore
from callboard.supervisor.envelope import Envelope
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.testing.model_server import ScriptedModelServer
from callboard.testing.turns import eventually

_POINTS = 10
_GROUPS = 4
_WARM_UP = 1200  # more than the answers that a supervisor keeps for repeated commands


def _config(model: ScriptedModelServer, idle_after_s: float) -> Config:
    config = default_config({}).with_flags(base_url=model.base_url, model="scripted", api_key="k")
    limits = config.limits.model_copy(update={"idle_after_s": idle_after_s})
    return config.model_copy(update={"limits": limits})


def _clients(system: System) -> int:
    return sum(1 for row in system.tree() if row.kind == "client")


def slope(points: list[tuple[int, int]]) -> float:
    """Fit a line and give what each one more costs."""
    return statistics.linear_regression([x for x, _ in points], [y for _, y in points]).slope


# ------------------------------------------------------------------ returning
def measure_returns(count: int) -> list[float]:
    """Give the seconds that each return took."""
    took = []
    with (
        ScriptedModelServer() as model,
        callboard.connect(config=_config(model, 0.05), private=True) as system,
    ):
        conversation = system.conversation(linked=False)
        list(conversation.ask("hello"))
        for _ in range(count):
            eventually(lambda: not _clients(system), 20.0)
            began = time.perf_counter()
            conversation.history()
            took.append(time.perf_counter() - began)
    return took


# ------------------------------------------------------------------ the parts alone
def measure_parts(count: int) -> dict[str, float]:
    """Give the bytes that each part keeps for a conversation that was opened and left."""
    return {"directory": _kept(_desk_life(), count), "supervisor": _kept(_core_life(), count)}


def _kept(live_once: Callable[[int], None], count: int) -> float:
    for n in range(2000):
        live_once(n)
    tracemalloc.start()
    points = []
    for point in range(_POINTS):
        for n in range(count // _POINTS):
            live_once(2000 + point * (count // _POINTS) + n)
        gc.collect()
        points.append(((point + 1) * (count // _POINTS), tracemalloc.get_traced_memory()[0]))
    tracemalloc.stop()
    return slope(points)


def _desk_life() -> Callable[[int], None]:
    desks = Desks(1)

    def live_once(n: int) -> None:
        key: Key = ("team", f"c{n}")
        opened = ConversationOpened(conversation_id=key[1], user="u", team="team")
        asked = Envelope(request_id=f"r{n}", body=None, reply_to=f"caller {n}")
        desks.handle(Arrived(key=key, letter=asked, create=opened))
        desks.handle(ClientUp(key=key, address=f"client {n}", pid=n, incarnation=n))
        wish = Envelope(request_id=f"l{n}", body=None)
        desks.handle(LeaveAsked(key=key, letter=wish, incarnation=n, pid=n, mark=(1, n + 1)))
        desks.handle(ClientGone(key, n))

    return live_once


def _core_life() -> Callable[[int], None]:
    core = SupervisorCore(SupervisorFlags(intensity=Intensity(10, 10.0), dynamic=True), (), lambda: 0.5)
    core.handle(core_terms.Boot(), 0.0)
    backoff = Backoff(min_s=0.01, max_s=2.0)
    incarnations = itertools.count(1)

    def live_once(n: int) -> None:
        spec = ChildSpec(
            id=f"c{n}",
            actor="callboard.actors.client.ClientActor",
            kind="client",
            restart="transient",
            backoff=backoff,
            max_consecutive=5,
            on_exhausted="drop",
        )
        core.handle(core_terms.Asked(f"r{n}", StartChild(spec)), float(n))
        incarnation = next(incarnations)
        core.handle(core_terms.ChildStarted(f"c{n}", incarnation, None), float(n))
        core.handle(core_terms.ChildExited(f"c{n}", incarnation, "expired"), float(n))
        if len(core.children):
            raise RuntimeError("the supervisor keeps a child that has left")

    return live_once


# ------------------------------------------------------------------ real processes
def measure_real(count: int) -> dict[str, tuple[float, int]]:
    """Give, by actor, the KiB of private memory that a conversation leaves behind, and how many descriptors in all."""
    with (
        ScriptedModelServer() as model,
        callboard.connect(config=_config(model, 0.05), private=True) as system,
    ):
        pids = {
            row.id: row.pid for row in system.tree() if row.id in ("directory", "conversations", "journal")
        }
        processes = {id: psutil.Process(pid) for id, pid in pids.items() if pid is not None}
        points: dict[str, list[tuple[int, int]]] = {id: [] for id in processes}
        _open(system, 0, _WARM_UP)
        before = {id: process.num_fds() for id, process in processes.items()}
        for point in range(_GROUPS):
            _open(system, (point + _WARM_UP) * 10_000, count // _GROUPS)
            for id, process in processes.items():
                used = process.memory_full_info().uss
                points[id].append(((point + 1) * (count // _GROUPS), used))
        return {
            id: (slope(points[id]) / 1024, process.num_fds() - before[id])
            for id, process in processes.items()
        }


def _open(system: System, first: int, count: int) -> None:
    numbers = iter(range(first, first + count))
    lock = threading.Lock()

    def open_some() -> None:
        while True:
            with lock:
                n = next(numbers, None)
            if n is None:
                return
            system.conversation(conversation_id=f"c{n}", linked=False)

    threads = [threading.Thread(target=open_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: not _clients(system), 60.0, "all of them left")


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--returns", type=int, default=30)
    parser.add_argument("--parts", type=int, default=100_000)
    parser.add_argument("--real", type=int, default=300)
    given = parser.parse_args()
    if given.returns:
        took = sorted(measure_returns(given.returns))
        print(f"return of a resting conversation   median {statistics.median(took) * 1000:6.1f} ms")
        print(f"                                   p90    {took[int(0.9 * (len(took) - 1))] * 1000:6.1f} ms")
    if given.parts:
        for part, kept in measure_parts(given.parts).items():
            print(f"kept per conversation that left    {part:<14} {kept:8.1f} bytes ({given.parts} in all)")
    if given.real:
        for id, (kept_kib, descriptors) in measure_real(given.real).items():
            print(
                f"kept by {id:<14} in real        {kept_kib:8.2f} KiB each, {descriptors:+d} descriptors in all"
            )


if __name__ == "__main__":
    main()
