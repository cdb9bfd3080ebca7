"""One process is killed at one record of the log, before its commit or before its acknowledgement: nothing is lost.

Twenty seeds hit every position and every kind of process, 108 hit every pair (``docs/chaos.md``). Each prints its
kills; ``CHAOS=1 python -m callboard.testing.chaos positions --seed N`` plays one again.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from callboard.testing.chaos.positions import SeedVerdict, run_seed

SEEDS = 20
AT_A_TIME = 4


@pytest.mark.parametrize("first", range(0, SEEDS, AT_A_TIME))
def test_wherever_a_process_is_killed_the_turn_is_answered_and_the_log_is_whole(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAOS", "1")

    def play(seed: int) -> SeedVerdict:
        folder = tmp_path / f"seed-{seed}"
        folder.mkdir()
        return run_seed(seed, folder)

    seeds = range(first, min(SEEDS, first + AT_A_TIME))
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        verdicts = list(pool.map(play, seeds))
    for verdict in verdicts:
        print(f"seed {verdict.seed}", *verdict.sentences(), sep="\n  ")
    assert [verdict.seed for verdict in verdicts if not verdict.held] == []
