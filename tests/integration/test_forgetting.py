"""A supervisor with very many short-lived children, really forked, holds nothing of those that are gone (B21)."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = 2000
LIMIT_BYTES = 100.0
BLOCK_BYTES = 64
SCRIPT = Path(__file__).parent / "short_lives.py"


@pytest.mark.timeout(240)
def test_two_thousand_short_lived_children_leave_nothing_in_their_supervisor(tmp_path: Path) -> None:
    printed = tmp_path / "printed"
    with printed.open("wb") as out, (tmp_path / "errors").open("wb") as errors:
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        subprocess.run(
            [sys.executable, str(SCRIPT), str(COUNT)],
            stdout=out,
            stderr=errors,
            env=environment,
            timeout=220,
            check=False,
        )
    counts = [json.loads(line) for line in printed.read_text().splitlines()]
    assert counts, (tmp_path / "errors").read_text()[-2000:]
    assert counts[-1]["born"] == COUNT, (tmp_path / "errors").read_text()[-2000:]
    last = counts[-1]
    assert [last[name] for name in ("lives", "children", "processes", "waiting", "exit_codes")] == [0] * 5
    assert last["descriptors"] == counts[0]["descriptors"]
    # What is bounded (late notices of the dead, timers not yet due) has filled up by the middle.
    steady = counts[len(counts) // 2 :]
    born = [count["born"] for count in steady]
    blocks = statistics.linear_regression(born, [count["blocks"] for count in steady]).slope
    # Resident memory grows in steps of the allocator's arenas: it is shown, and not judged.
    resident = statistics.linear_regression(born, [count["rss"] for count in steady]).slope
    print(f"growth per child: {blocks * BLOCK_BYTES:.0f} bytes of objects, {resident:.0f} bytes resident")
    assert blocks * BLOCK_BYTES < LIMIT_BYTES
