"""Packages are found by their metadata, and not imported for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from callboard.tools.packages import modules_of_packages


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, module in {"zoo": "zoo_tools.all", "ark": "ark_tools", "ark2": "ark_tools:unused"}.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[callboard.tools]\n{name} = {module}\n[other]\nx = y\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("site")
def test_entry_points_name_modules_in_the_order_of_their_names() -> None:
    assert modules_of_packages(["*"]) == ("ark_tools", "zoo_tools.all")
    assert modules_of_packages(["z*"]) == ("zoo_tools.all",)
    assert modules_of_packages([]) == ()
    assert not {"ark_tools", "zoo_tools"} & set(sys.modules)
