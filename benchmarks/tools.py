"""What a call of a local tool costs. Prints a table; ``python benchmarks/tools.py [--quick] [--many N]``.

Real actors and workers on the product's own mail, in a tree of this process alone: from the decision to start a call to
its result, above the tool's own time. ``--many`` makes so many calls in a row and shows that nothing grows.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from callboard.supervisor import mends
from callboard.supervisor.envelope import Init, Started
from callboard.supervisor.intensity import Intensity
from callboard.supervisor.process import become_subreaper, descendants, raise_descriptor_limit
from callboard.supervisor.spec import ChildSpec, SupervisorFlags
from callboard.supervisor.supervisor import SUPERVISOR, StartChild
from callboard.transports import mail

NAP_S = 0.05


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--many", type=int, default=0, help="so many calls in a row")
    given = parser.parse_args()
    folder = Path(__file__).parent
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    become_subreaper()
    raise_descriptor_limit()
    mends.apply(os.getpid())
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"load before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="cb-", dir="/tmp") as name:
        mail.prepare_environment(Path(name))
        bench = _Bench(Path(name))
        try:
            rows = bench.rows(20 if given.quick else 100)
            rows += bench.many(given.many) if given.many else []
        finally:
            bench.close()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


class _Bench:
    """A tree as the product's is above a client, with the actor that makes the calls."""

    def __init__(self, folder: Path) -> None:
        import supervision

        self._reap = supervision.reap
        self._tree = supervision.Tree.__new__(supervision.Tree)
        tree = self._tree
        tree.table = supervision.ProcessTable(folder)
        tree.table.create()
        tree.folder = folder
        tree.system = mail.open_system(folder)
        root = tree.system.create(SUPERVISOR)
        preload = ("tool_actors", "callboard.tools.runner", "asyncio", "callboard.tools.signature:preload")
        flags = SupervisorFlags(intensity=Intensity(100, 1.0), dynamic=True)
        args: dict[str, Any] = {"flags": flags, "preload": preload}
        tree.system.send(
            root, Init(id="root", kind="supervisor", incarnation=1, runtime_dir=str(folder), args=args)
        )
        started = tree.system.receive(30)
        assert isinstance(started, Started), started
        tree.root, tree.root_pid = started.address, started.pid
        tree.endpoint = mail.Endpoint(folder)
        self._at = tree.ask(
            tree.root, StartChild(ChildSpec(id="b", actor="tool_actors.BenchActor", kind="bench"))
        )
        from callboard.tools.loader import specs_of

        module = str(Path(__file__).parent / "tool_bench_tools.py")
        self._specs = {spec.name: spec for spec in specs_of(module)}

    def run(self, tool: str, times: int, at_once: int = 1, *, prepared: bool = False, **limits: Any) -> Any:
        from tool_actors import Run

        spec = self._specs[tool]
        spec = replace(spec, limits=replace(spec.limits, **limits))
        ran = self._tree.ask(
            self._at.address, Run(spec=spec, times=times, at_once=at_once, prepared=prepared), 3600.0
        )
        assert ran.outcomes == ("ok",), ran.outcomes
        return ran

    def rows(self, times: int) -> list[tuple[str, str]]:
        from tool_actors import Spawn

        self.run("nothing", 5)
        rows = []
        for profile, count in (("none", times), ("confined", times // 5), ("isolated", times // 5)):
            ran = self.run("nothing", count, sandbox=profile)
            rows.append((f"one call, profile {profile}", _spread(sorted(ran.each_s))))
            caller_ms, workers_ms = (1000 * s / count for s in (ran.caller_cpu_s, ran.workers_cpu_s))
            rows.append(("  CPU", f"{caller_ms:.1f} ms in the caller, {workers_ms:.1f} ms in the worker"))
            rows.append(("  prepared", _spread(sorted(self._prepared_s(count, profile)))))
        forks = [self._tree.ask(self._at.address, Spawn(8)) for _ in range(10)]
        spawned = [self.run("nothing", 8, 8).all_s for _ in range(times // 5)]
        napped = [self.run("nap", 8, 8).all_s for _ in range(times // 5)]
        ready = [self.run("nap", 8, 8, prepared=True).all_s for _ in range(times // 5)]
        spawn_s, nap_s = statistics.median(spawned), statistics.median(napped)
        limit_s = NAP_S + 1.3 * spawn_s
        rows.append(("8 bare forks of the caller", f"{statistics.median(forks) * 1000:.1f} ms"))
        rows.append(("8 calls at once of nothing (the time to spawn 8)", f"{spawn_s * 1000:.1f} ms"))
        rows.append(
            (
                "8 calls at once of 50 ms",
                f"{nap_s * 1000:.1f} ms (at most {limit_s * 1000:.1f}: {'yes' if nap_s <= limit_s else 'NO'})",
            )
        )
        ready_s = statistics.median(ready)
        rows.append(
            (
                "8 prepared calls at once of 50 ms",
                f"{ready_s * 1000:.1f} ms (at most 75.0: {'yes' if ready_s <= 0.075 else 'NO'})",
            )
        )
        return rows

    def _prepared_s(self, count: int, profile: str) -> list[float]:
        return list(self.run("nothing", count, prepared=True, sandbox=profile).each_s)

    def many(self, count: int) -> list[tuple[str, str]]:
        self.run("nothing", 1000)
        before, processes = self.run("nothing", 50), len(descendants(os.getpid()))
        began = time.monotonic()
        after = self.run("nothing", count)
        seconds = time.monotonic() - began
        grown = after.resident_kib - before.resident_kib
        return [
            (f"{count} calls in a row", f"{seconds / count * 1000:.1f} ms each"),
            ("  memory of the caller", f"{before.resident_kib} -> {after.resident_kib} KiB ({grown:+d})"),
            ("  descriptors of the caller", f"{before.descriptors} -> {after.descriptors}"),
            ("  processes", f"{processes} -> {len(descendants(os.getpid()))}"),
        ]

    def close(self) -> None:
        self._tree.close()


def _spread(each: list[float]) -> str:
    return (
        f"{statistics.median(each) * 1000:.1f} ms median, {each[0] * 1000:.1f} least, "
        f"{each[int(len(each) * 0.95)] * 1000:.1f} at 95 %"
    )


if __name__ == "__main__":
    main()
