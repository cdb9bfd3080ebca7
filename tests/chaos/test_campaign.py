"""A short campaign with a fixed seed, and the leash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from callboard.testing.chaos.campaign import Campaign, run_campaign
from callboard.testing.chaos.history import History, read_history
from callboard.testing.chaos.nemesis import LeashOn, Nemesis


def test_a_short_campaign_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS", "1")
    verdict = run_campaign(Campaign(seed=7, duration_s=8.0, every_s=0.8), tmp_path)
    assert verdict.violations == ()
    assert verdict.turns > 5
    assert sum(verdict.faults.values()) > 3
    entries = read_history(verdict.history)
    assert [e.at for e in entries] == sorted(e.at for e in entries)


def test_without_the_leash_off_nothing_is_harmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHAOS", raising=False)
    history = History(tmp_path / "history.jsonl")
    with pytest.raises(LeashOn):
        Nemesis(tmp_path, history, seed=1)
    history.close()
    done = subprocess.run(
        [sys.executable, "-m", "callboard.testing.chaos", "--duration", "1"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    assert "CHAOS=1" in done.stderr
    assert "Traceback" not in done.stderr
