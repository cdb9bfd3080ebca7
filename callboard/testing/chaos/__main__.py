"""``python -m callboard.testing.chaos``: run campaigns, print verdicts, and exit with 1 when something gave way.

``python -m callboard.testing.chaos positions`` kills by log position instead.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from callboard.testing.chaos.campaign import Campaign, Verdict, run_campaign
from callboard.testing.chaos.nemesis import FAULTS, Fault, LeashOn, check_leash
from callboard.testing.chaos.positions import KILLS_PER_SEED, SeedVerdict, run_seed


def main(argv: list[str] | None = None) -> int:
    """Run one campaign, or one round of kills by position, per seed."""
    words = sys.argv[1:] if argv is None else argv
    try:
        return _positions(words[1:]) if words[:1] == ["positions"] else _campaigns(words)
    except LeashOn as leash:
        print(f"callboard chaos: {leash}", file=sys.stderr)  # noqa: T201
        return 2


def _campaigns(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.testing.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, action="append", help="may be repeated; a random one by default")
    parser.add_argument("--duration", type=float, default=30.0, metavar="S", help="seconds per campaign (30)")
    parser.add_argument("--conversations", type=int, default=4, metavar="N", help="at a time (4)")
    parser.add_argument("--every", type=float, default=1.0, metavar="S", help="seconds between faults (1)")
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"comma list of {', '.join(FAULTS)}")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the histories there")
    given = parser.parse_args(argv)
    faults = tuple(given.faults.split(","))
    if unknown := set(faults) - set(FAULTS):
        parser.error(f"unknown faults {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    seeds = given.seed or [secrets.randbelow(1_000_000)]
    verdicts = [_run(given, cast("tuple[Fault, ...]", faults), seed) for seed in seeds]
    return 1 if any(verdict.violations for verdict in verdicts) else 0


def _run(given: argparse.Namespace, faults: tuple[Fault, ...], seed: int) -> Verdict:
    campaign = Campaign(
        seed=seed,
        duration_s=given.duration,
        conversations=given.conversations,
        every_s=given.every,
        faults=faults,
    )
    if given.keep is not None:
        folder = given.keep / f"seed-{seed}"
        folder.mkdir(parents=True)
        verdict = run_campaign(campaign, folder)
    else:
        with tempfile.TemporaryDirectory(prefix="callboard-chaos-") as name:
            verdict = run_campaign(campaign, Path(name))
    _print(verdict)
    return verdict


def _positions(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.testing.chaos positions")
    parser.add_argument("--seed", type=int, action="append", help="may be repeated")
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="the first N seeds (20)")
    parser.add_argument("--kills", type=int, default=KILLS_PER_SEED, metavar="N", help="per seed (5)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="seeds at a time (1)")
    given = parser.parse_args(argv)
    check_leash()
    seeds = given.seed or range(given.seeds)
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = list(pool.map(lambda seed: _run_seed(seed, given.kills), seeds))
    broken = [verdict.seed for verdict in verdicts if not verdict.held]
    kills = sum(struck.killed for verdict in verdicts for struck in verdict.struck)
    print(f"{len(verdicts)} seeds, {kills} kills, {len(broken)} seeds broken {broken or ''}")  # noqa: T201
    return 1 if broken else 0


def _run_seed(seed: int, kills: int) -> SeedVerdict:
    with tempfile.TemporaryDirectory(prefix="callboard-chaos-") as name:
        verdict = run_seed(seed, Path(name), kills)
    lines = [f"seed {seed}: {'held' if verdict.held else 'BROKEN'}"]
    lines += [f"  {sentence}" for sentence in verdict.sentences()]
    print("\n".join(lines), flush=True)  # noqa: T201
    return verdict


def _print(verdict: Verdict) -> None:
    lines = [f"seed {verdict.seed}: {verdict.turns} turns, endings {verdict.endings}"]
    lines += [f"  {times} x {fault}" for fault, times in sorted(verdict.faults.items())]
    lines += [f"  VIOLATED {sentence}" for sentence in verdict.violations] or ["  all invariants held"]
    print("\n".join(lines), flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
