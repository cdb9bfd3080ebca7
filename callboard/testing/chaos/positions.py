"""Kills placed by log position: one process is killed when one record is about to be written, or has just been.

A seed is one daemon and a few conversations, each with a turn of five steps and one kill: at a record, before its
commit or between the commit and the acknowledgement, of one kind of process. ``kills_of`` says which, from the seed's
number alone: consecutive seeds walk through every pair of place and kind. ``run_seed`` plays it and gives what did not
hold (``position_checks``). It kills processes of the daemon that it started itself, and only with ``CHAOS=1``.
"""

from __future__ import annotations

import random
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired

from callboard.api import System
from callboard.config import default_config
from callboard.config_tables import ModelConfig, StorageConfig
from callboard.testing.chaos import gate
from callboard.testing.chaos.daemon import ChaosDaemon
from callboard.testing.chaos.five_steps import RECORDS, TOOLS, rule
from callboard.testing.chaos.gatekeeper import Gatekeeper, Side
from callboard.testing.chaos.nemesis import check_leash
from callboard.testing.chaos.position_turn import Kill, Struck, Turn
from callboard.testing.chaos.stored_log import read_log
from callboard.testing.chaos.victims import KINDS
from callboard.testing.model_server import ModelScript, ScriptedModelServer

KILLS_PER_SEED = 5
SIDES: tuple[Side, ...] = ("before", "after")
PLACES = tuple((seq, side) for seq in range(1, RECORDS + 1) for side in SIDES)
_FIRST_KIND = 8
"""So the first round kills the client between the effect of each call that must not run twice, and its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedVerdict:
    """How a seed went. ``faults`` are those of the daemon as a whole."""

    seed: int
    struck: tuple[Struck, ...]
    faults: tuple[str, ...]

    @property
    def held(self) -> bool:
        """True when everything held."""
        return not self.faults and not any(struck.faults for struck in self.struck)

    def sentences(self) -> list[str]:
        """Say for each kill how it went, and what did not hold."""
        lines = []
        for struck in self.struck:
            how = "" if struck.killed else " (there was none)"
            lines.append(f"{struck.kill}{how}: {struck.took_s:.2f} s")
            lines += [f"asked again after {refusal}" for refusal in struck.refusals]
            lines += [f"VIOLATED {fault}" for fault in struck.faults]
        return lines + [f"VIOLATED {fault}" for fault in self.faults]


def kills_of(seed: int, count: int = KILLS_PER_SEED) -> tuple[Kill, ...]:
    """Give the kills of a seed; 20 seeds of five hit every place and every kind, 108 every pair of them.

    The places are walked round and round. As 37 (the step of the kind from round to round at one place) and 15 kinds
    have no common divisor, each round gives every place another kind.
    """
    kills = []
    for number in range(seed * count, (seed + 1) * count):
        seq, side = PLACES[number % len(PLACES)]
        kind = KINDS[(_FIRST_KIND + number + number // len(PLACES)) % len(KINDS)]
        kills.append(Kill(seq=seq, side=side, kind=kind))
    return tuple(kills)


def run_seed(seed: int, folder: Path, count: int = KILLS_PER_SEED) -> SeedVerdict:
    """Play a seed; everything that it writes is in ``folder``, but the system's runtime folder. Raises LeashOn."""
    check_leash()
    with ScriptedModelServer(ModelScript(rule=rule)) as model, Gatekeeper() as gatekeeper:
        daemon = _daemon(seed, folder, model.base_url, gatekeeper.path)
        try:
            return _Seed(seed, folder, daemon, gatekeeper, model).run(kills_of(seed, count))
        except (AssertionError, TimeoutExpired) as failed:
            return SeedVerdict(seed=seed, struck=(), faults=(*daemon.faults, f"I13: {failed}"))
        finally:
            daemon.end()
            shutil.rmtree(daemon.folder, ignore_errors=True)


def _daemon(seed: int, folder: Path, base_url: str, gate_path: Path) -> ChaosDaemon:
    config = default_config({}).with_flags(
        base_url=base_url, model="scripted", api_key="chaos", tools_from=[TOOLS]
    )
    model: ModelConfig = config.model.model_copy(update={"actors": 1})
    config = config.model_copy(update={"model": model, "storage": StorageConfig(path=folder / "state")})
    name = f"chaos-{seed}-{uuid.uuid4().hex[:8]}"
    return ChaosDaemon(config, name, f"{gate.__name__}:gated", {gate.GATE: str(gate_path)})


class _Seed:
    """One daemon, and one conversation after the other."""

    def __init__(
        self, seed: int, folder: Path, daemon: ChaosDaemon, gatekeeper: Gatekeeper, model: ScriptedModelServer
    ) -> None:
        self._folder = folder
        self._daemon = daemon
        self._gatekeeper = gatekeeper
        self._model = model
        self._seed = seed
        self._random = random.Random(seed)

    def run(self, kills: tuple[Kill, ...]) -> SeedVerdict:
        with self._daemon.kept() as system:
            turns = [self._turn(system, number, kill) for number, kill in enumerate(kills)]
        code = self._daemon.stop()
        faults = list(self._daemon.faults)
        if code != 0:
            faults.append(f"I13: the stop gave {code}: {self._daemon.last_words()}")
        with read_log(self._folder / "state") as journal:
            faults += [f"I3: {complaint}" for complaint in journal.check()]
            struck = tuple(turn.verdict(self._model, self._gatekeeper, journal.read) for turn in turns)
        return SeedVerdict(seed=self._seed, struck=struck, faults=tuple(faults))

    def _turn(self, system: System, number: int, kill: Kill) -> Turn:
        seconds = self._random.uniform(0.03, 0.12)
        turn = Turn(f"s{self._seed}-{number}", kill, self._folder, seconds, self._daemon, system)
        turn.play(self._gatekeeper)
        return turn
