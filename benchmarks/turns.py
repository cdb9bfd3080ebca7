"""What a turn costs, and what neighbours do to it, beside a peer in the same run; ``python benchmarks/turns.py``.

    python benchmarks/turns.py [--peer-python PYTHON] [--quick] [--only turns|crowd|noisy] [--replies whole|streamed]

A private system is asked through the public API; the model is a process that answers at once (``turn_model.py``). The
peer, openai-agents, does the same work (``turn_work.py``) on the same model, if ``--peer-python`` names a Python that
has it: ``python3 -m venv P && P/bin/pip install openai-agents``. All are measured in turn, so that a machine that is
slower for a while is slower for all; the ratios are what counts. A call is a process and the journal is durable on our
side, and neither is on the peer's.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from turn_cpu import WORKER
from turn_ours import Ours
from turn_peer import Theirs
from turn_work import CALLS_AT_ONCE, HEAVY_CONVERSATIONS

Side: TypeAlias = Ours | Theirs
_KERNEL = (
    "/proc/sys/kernel/sched_autogroup_enabled",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)
_NOISES = {None: "a quiet system", "nap": "tools that sleep for 1 s", "burn": "tools that burn 0.5 s of CPU"}
_AT_MOST = {"nap": 1.5, "burn": 4.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: rounds of turns in a row, turns of each in a crowd, light turns beside a noise."""

    rounds: int = 6
    turns: int = 15
    crowd: int = 50
    each: int = 10
    crowds: int = 3
    noises: int = 2
    light: int = 15
    within_s: float = 30.0


QUICK = Plan(rounds=2, turns=5, each=1, crowds=1, noises=1, light=7, within_s=15.0)


# ------------------------------------------------------------ one turn after the other
def turns(sides: list[Side], plan: Plan) -> None:
    """A turn with one tool, sequential."""
    titles = {
        True: f"in conversations of {plan.turns} turns",
        False: "each in a conversation of its own, opening included",
    }
    for same, title in titles.items():
        for side in sides:
            side.turns(3, same=same)
            side.cpu_ms.clear()
        took: dict[str, list[float]] = {side.name: [] for side in sides}
        for _ in range(plan.rounds):
            for side in sides:
                took[side.name] += side.turns(plan.turns, same=same)
        print(f"\na turn with one tool, {title} ({plan.rounds * plan.turns} turns)\n")
        for name, each in took.items():
            print(f"  {name:<14} {_spread(each)}")
        _print_ratio([statistics.median(took[side.name]) for side in sides], "at most 1.5, aim 1.0", 1.5)
        _print_cpu(sides, "same" if same else "new", plan.rounds * plan.turns)


def crowd(sides: list[Side], plan: Plan) -> None:
    """Turns a second of many conversations at once."""
    for side in sides:
        side.turns(3, same=True)
        side.cpu_ms.clear()
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(plan.crowds):
        for side in sides:
            rates[side.name].append(side.crowd(plan.crowd, plan.each))
    print(f"\n{plan.crowd} conversations at once, {plan.each} turns each, median of {plan.crowds}\n")
    for name, each in rates.items():
        print(f"  {name:<14} {statistics.median(each):.1f} turns a second")
    _print_ratio(
        [statistics.median(rates[side.name]) for side in sides], "at least 1.0, aim 1.5", 1.0, more=True
    )
    _print_cpu(sides, "crowd", plan.crowds * plan.crowd * plan.each)


def noisy(sides: list[Side], plan: Plan) -> None:
    """A light tenant's turn, beside nobody and beside heavy ones."""
    took: dict[tuple[str | None, str], list[float]] = {}
    for _ in range(plan.noises):
        for tool in _NOISES:
            for side in sides:
                took.setdefault((tool, side.name), []).extend(side.noisy(tool, plan.light, plan.within_s))
    print(
        f"\na light tenant's turn beside {HEAVY_CONVERSATIONS} conversations of {CALLS_AT_ONCE} calls at a time, "
        f"median of {plan.noises * plan.light}, or of as many as began in {plan.noises * plan.within_s:g} s\n"
    )
    for (tool, name), each in took.items():
        ratio = statistics.median(each) / statistics.median(took[None, name])
        limit = _AT_MOST.get(tool or "") if name == Ours.name else None
        verdict = "" if limit is None else f" (at most {limit:g}: {_yes(ratio <= limit)})"
        print(
            f"  {_NOISES[tool]:<28} {name:<14} {_spread(each)}, {len(each):>2} turns: {ratio:.1f} times{verdict}"
        )


# ------------------------------------------------------------ printing
def _print_ratio(values: list[float], wanted: str, limit: float, *, more: bool = False) -> None:
    for peer in values[1:]:
        ratio = values[0] / peer
        print(f"  ratio          {ratio:.2f} ({wanted}: {_yes(ratio >= limit if more else ratio <= limit)})")


def _print_cpu(sides: list[Side], what: str, count: int) -> None:
    """Print it by kind. Tool workers are counted where one conversation reaps many: see ``turn_cpu``."""
    print("  CPU milliseconds a turn:")
    for side in sides:
        used = side.cpu_ms[what]
        without = "" if what == "same" or WORKER not in used else ", without tool workers"
        shown = {kind: ms for kind, ms in used.items() if not (without and kind == WORKER)}
        print(f"    {side.name + ', in all' + without:<44} {sum(shown.values()) / count:7.2f}")
        for kind, ms in sorted(shown.items(), key=lambda item: -item[1]) if len(used) > 1 else ():
            print(f"      {kind:<42} {ms / count:7.2f}")


def _spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    return f"p50 {statistics.median(ordered) * 1000:8.1f} ms, p95 {ordered[int(len(ordered) * 0.95)] * 1000:8.1f} ms"


def _yes(is_kept: bool) -> str:
    return "yes" if is_kept else "NO"


def _machine() -> Iterator[str]:
    yield f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"
    yield f"Python {platform.python_version()}"
    for path in map(Path, _KERNEL):
        yield f"{path.name}: {path.read_text().strip() if path.exists() else 'not to be read here'}"
    yield f"load before: {os.getloadavg()[0]:.1f}"


# ------------------------------------------------------------ who is measured
@contextmanager
def _model() -> Iterator[str]:
    command = [sys.executable, str(Path(__file__).parent / "turn_model.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _measure(
    parts: Sequence[Callable[[list[Side], Plan], None]], peer: str | None, plan: Plan, *, streamed: bool
) -> None:
    with ExitStack() as stack:
        url = stack.enter_context(_model())
        sides: list[Side] = [stack.enter_context(closing(Ours(url, streamed=streamed)))]
        if peer is not None:
            theirs = stack.enter_context(closing(Theirs(peer, url, streamed=streamed)))
            print(f"peer: {theirs.name} {theirs.version}")
            sides.append(theirs)
        for part in parts:
            part(sides, plan)


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts: dict[str, Callable[[list[Side], Plan], None]] = {"turns": turns, "crowd": crowd, "noisy": noisy}
    parser.add_argument("--peer-python", help="a Python with openai-agents; without it the peer is left out")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", choices=parts, help="one of the three parts")
    parser.add_argument(
        "--replies", choices=("whole", "streamed"), help="one way of answering; without it both"
    )
    given = parser.parse_args()
    print("\n".join(_machine()))
    if given.peer_python is None:
        print("no --peer-python: the peer's rows, and the ratios to it, are left out")
    ways = [given.replies] if given.replies else ["whole", "streamed"]
    for way in ways:
        print(f"\n=== the model's replies come {'in pieces (streamed)' if way == 'streamed' else 'whole'}")
        chosen = [parts[given.only]] if given.only else [turns, crowd] + ([noisy] if way == ways[-1] else [])
        _measure(chosen, given.peer_python, QUICK if given.quick else Plan(), streamed=way == "streamed")
    print(f"\nload after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
