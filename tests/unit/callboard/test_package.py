"""The package itself: its public names, and a copy that lost its symbolic links."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import callboard

PACKAGE = Path(callboard.__file__).parent


def test_every_public_name_can_be_loaded() -> None:
    for name in callboard.__all__:
        assert getattr(callboard, name) is not None


def test_importing_it_loads_nothing_heavy() -> None:
    code = "import sys, callboard; print([m for m in ('openai', 'pydantic', 'thespian', 'psutil') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.strip() == "[]"


def test_a_copy_without_its_links_says_so_at_import(tmp_path: Path) -> None:
    copy = tmp_path / "callboard"
    copy.mkdir()
    for file in PACKAGE.glob("*.py"):
        (copy / file.name).write_bytes(file.read_bytes())
    environment = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", "import callboard"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode != 0
    assert "symbolic links" in done.stderr
