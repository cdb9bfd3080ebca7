"""Switches thrown at run time are kept in a file, or not thrown at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard.actors.feature_switches import FILE_NAME, FeatureSwitches


def test_switches_survive_a_restart(tmp_path: Path) -> None:
    switches = FeatureSwitches(tmp_path)
    switches.switch("beta", "", True)
    switches.switch("beta", "red", False)
    switches.switch("gamma", "", True)
    switches.switch("gamma", "", None)
    assert FeatureSwitches(tmp_path).switches == {("beta", ""): True, ("beta", "red"): False}
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"switches": [1]}', '{"switches": 3}'])
def test_a_file_that_cannot_be_read_is_told_and_changes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE_NAME).write_text(text)
    switches = FeatureSwitches(tmp_path)
    assert switches.switches == {}
    assert "cannot be read" in switches.fault
    switches.switch("beta", "", True)
    assert FeatureSwitches(tmp_path).fault == ""


def test_a_switch_that_cannot_be_written_down_is_not_thrown(tmp_path: Path) -> None:
    switches = FeatureSwitches(tmp_path / "gone")
    with pytest.raises(OSError):
        switches.switch("beta", "", True)
    assert switches.switches == {}
