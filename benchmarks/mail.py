"""The actor mail's speed against Thespian's stock TCP and UDP, measured in the same run on the same machine.

``python benchmarks/mail.py [--rounds 3] [--quick] [--only BASE]`` prints a table of medians and of how many times
better ours is than each stock base. Every measurement runs in an actor system and a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_HERE = Path(__file__).parent
_LIMIT = timedelta(seconds=170)
BASES = ("unix", "udp", "tcp")
MEASURES = (
    # name, unit, better is lower, bases that can
    ("external_ask_ms", "external ask, ms (median)", True, BASES),
    ("round_trip_ms", "actor round trip, ms", True, BASES),
    ("flood_per_s", "flood of 5,000, messages/s", False, BASES),
    ("mutual_s", "two flood each other with 3,000, s", True, ("unix", "tcp")),
    ("mutual_ask_ms", "... and answer an ask meanwhile, ms", True, ("unix", "tcp")),
    ("mb1_s", "payload of 1 MB, s", True, ("unix", "tcp")),
    ("mb50_s", "payload of 50 MB, s", True, ("unix", "tcp")),
    ("mb200_s", "payload of 200 MB, s", True, ("unix", "tcp")),
    ("spawn_ms", "spawn to answer, ms", True, BASES),
    ("many_created_s", "300 actors: createActor, s", True, ("unix", "tcp")),
    ("many_answered_s", "300 actors: all answered, s", True, ("unix", "tcp")),
    ("many_fds", "descriptors per child in the parent", True, ("unix", "tcp")),
)


def open_base(base: str, folder: str) -> Any:
    """Open an actor system on this base."""
    import socket

    from thespian.actors import ActorSystem

    logs = {"version": 1}
    if base == "unix":
        from callboard.transports.unix_base import ActorSystemBase
        from callboard.transports.unix_transport import MAIL_FOLDER

        settings = SimpleNamespace(capabilities={MAIL_FOLDER: f"{folder}/mail"})
        made = ActorSystemBase(settings, logDefs=logs)
        return ActorSystem(made, settings.capabilities, transientUnique=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        capabilities = {"Admin Port": probe.getsockname()[1]}
    return ActorSystem(f"multiproc{base.upper()}Base", capabilities, logDefs=logs, transientUnique=True)


def _asks(system: Any, number: int) -> dict[str, float]:
    echo = system.createActor("mail_actors.Echo")
    times = []
    for _ in range(number):
        began = time.perf_counter()
        if system.ask(echo, ("ask", 0), _LIMIT) is None:
            raise RuntimeError("no answer")
        times.append(time.perf_counter() - began)
    return {"external_ask_ms": statistics.median(times) * 1000}


def _round_trips(system: Any, number: int) -> dict[str, float]:
    pinger = system.createActor("mail_actors.Pinger")
    return {"round_trip_ms": system.ask(pinger, ("rounds", number), _LIMIT) * 1000}


def _flood(system: Any, number: int) -> dict[str, float]:
    flooder, counter = (system.createActor("mail_actors.Counter") for _ in range(2))
    system.tell(flooder, ("flood", counter, number))
    answers = [system.listen(_LIMIT), system.listen(_LIMIT)]
    (began,) = [a[1] for a in answers if isinstance(a, tuple)]
    (ended,) = [a for a in answers if isinstance(a, float)]
    return {"flood_per_s": number / (ended - began)}


def _mutual(system: Any, number: int) -> dict[str, float]:
    one, two = (system.createActor("mail_actors.Counter") for _ in range(2))
    began = time.perf_counter()
    system.tell(one, ("flood", two, number))
    system.tell(two, ("flood", one, number))
    asked = time.perf_counter()
    system.tell(one, ("ask", 0))
    ended, answered = 0, 0.0
    while ended < 2 or not answered:
        match system.listen(_LIMIT):
            case float():
                ended += 1
                finished = time.perf_counter()
            case ("answer", _):
                answered = time.perf_counter() - asked
            case None:
                raise RuntimeError("the flood did not end")
    return {"mutual_s": finished - began, "mutual_ask_ms": answered * 1000}


def _payload(system: Any, megabytes: int) -> dict[str, float]:
    pinger = system.createActor("mail_actors.Pinger")
    return {f"mb{megabytes}_s": system.ask(pinger, ("send", megabytes << 20), _LIMIT)}


def _spawn(system: Any, number: int) -> dict[str, float]:
    times = []
    for _ in range(number):
        began = time.perf_counter()
        if system.ask(system.createActor("mail_actors.Echo"), ("ask", 0), _LIMIT) is None:
            raise RuntimeError("no answer")
        times.append(time.perf_counter() - began)
    return {"spawn_ms": statistics.median(times) * 1000}


def _many(system: Any, number: int) -> dict[str, float]:
    nursery = system.createActor("mail_actors.Nursery")
    created, answered, fds = system.ask(nursery, ("children", number), _LIMIT)
    return {"many_created_s": created, "many_answered_s": answered, "many_fds": fds}


JOBS = {
    "asks": (_asks, 1000, BASES),
    "round_trips": (_round_trips, 1000, BASES),
    "flood": (_flood, 5000, BASES),
    "mutual": (_mutual, 3000, ("unix", "tcp")),
    "mb1": (_payload, 1, ("unix", "tcp")),
    "mb50": (_payload, 50, ("unix", "tcp")),
    "mb200": (_payload, 200, ("unix", "tcp")),
    "spawn": (_spawn, 20, BASES),
    "many": (_many, 300, ("unix", "tcp")),
}


def measure(base: str, job: str) -> None:
    """Run one job in this process and print its figures as JSON."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    run, size, _ = JOBS[job]
    with tempfile.TemporaryDirectory(prefix="mail-bench-") as folder:
        os.environ["THESPLOG_FILE"] = f"{folder}/thespian.log"
        system = open_base(base, folder)
        try:
            print(json.dumps(run(system, size)))
        finally:
            system.shutdown()


def run_job(base: str, job: str) -> dict[str, float]:
    """Run one job in a process of its own; gives nothing when it failed or took too long."""
    command = [sys.executable, __file__, "--measure", base, job]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_HERE), os.environ.get("PYTHONPATH", "")]),
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=200, env=environment, check=True
        )
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.SubprocessError, ValueError, IndexError) as fault:
        print(f"{base} {job}: {type(fault).__name__} {getattr(fault, 'stderr', '')!s:.300}", file=sys.stderr)
        return {}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--measure", nargs=2, metavar=("BASE", "JOB"))
    given = parser.parse_args()
    if given.measure:
        measure(*given.measure)
        return
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(given.rounds):
        for job in given.jobs.split(","):
            for base in JOBS[job][2]:
                for name, value in run_job(base, job).items():
                    found.setdefault((base, name), []).append(value)
    _print({key: statistics.median(values) for key, values in found.items()}, given.rounds)


def _print(medians: dict[tuple[str, str], float], rounds: int) -> None:
    model = next((line.split(":")[1].strip() for line in _cpu() if line.startswith("model name")), "?")
    print(f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()},")
    print(f"load {os.getloadavg()[0]:.1f}; medians of {rounds} rounds\n")
    print("| | ours | UDP | TCP | ours/UDP | ours/TCP |\n| --- | --- | --- | --- | --- | --- |")
    for name, title, lower, _ in MEASURES:
        ours, udp, tcp = (medians.get((base, name)) for base in BASES)
        if ours is not None:
            gains = [_gain(ours, other, lower) for other in (udp, tcp)]
            print("|", " | ".join([title, *map(_figure, (ours, udp, tcp)), *gains]), "|")


def _cpu() -> list[str]:
    return Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _gain(ours: float, other: float | None, lower: bool) -> str:
    if other is None or not ours or not other:
        return "-"
    return f"{other / ours if lower else ours / other:.2g} times better"


if __name__ == "__main__":
    main()
