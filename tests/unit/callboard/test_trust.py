"""The trust record: what is remembered, and what makes a file untrusted again."""

from __future__ import annotations

from pathlib import Path

import pytest

from callboard import trust
from callboard.errors import ConfigError


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "callboard"


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "callboard.toml"
    path.write_text("a = 1")
    return path


def test_a_recorded_file_is_trusted_until_it_changes(config_file: Path) -> None:
    assert trust.doubt(config_file) == "it was never recorded"
    assert trust.record(config_file) == (config_file,)
    assert trust.doubt(config_file) is None
    config_file.write_text("a = 2")
    assert trust.doubt(config_file) == f"{config_file} changed since it was recorded"


def test_a_file_it_names_counts_too(config_file: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools.py"
    tools.write_text("1")
    trust.record(config_file, [tools])
    assert trust.doubt(config_file, [tools]) is None
    assert trust.doubt(config_file) == "it names other files than before"
    tools.unlink()
    assert trust.doubt(config_file, [tools]) == f"{tools} changed since it was recorded"


def test_a_missing_file_cannot_be_trusted(config_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be trusted"):
        trust.record(config_file, [tmp_path / "none.py"])


def test_another_folders_copy_is_not_trusted(config_file: Path, tmp_path: Path) -> None:
    trust.record(config_file)
    copy = tmp_path / "other" / "callboard.toml"
    copy.parent.mkdir()
    copy.write_text("a = 1")
    assert trust.doubt(copy) == "it was never recorded"


def test_a_link_is_the_file_it_points_to(config_file: Path, tmp_path: Path) -> None:
    trust.record(config_file)
    link = tmp_path / "link.toml"
    link.symlink_to(config_file)
    assert trust.doubt(link) is None


def test_what_is_forgotten_is_not_trusted(config_file: Path) -> None:
    assert not trust.forget(config_file)
    trust.record(config_file)
    assert trust.forget(config_file)
    assert trust.doubt(config_file) == "it was never recorded"


def test_the_record_is_private_and_leaves_no_scratch_file(config_file: Path, own_folder: Path) -> None:
    trust.record(config_file)
    assert [path.name for path in own_folder.iterdir()] == ["trust.json"]
    assert (own_folder / "trust.json").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("broken", ["", "[]", '{"trusted": 3}', "{"])
def test_a_broken_record_is_complained_of_not_believed(
    config_file: Path, own_folder: Path, broken: str
) -> None:
    own_folder.mkdir(parents=True)
    (own_folder / "trust.json").write_text(broken)
    with pytest.raises(ConfigError, match=r"trust\.json"):
        trust.doubt(config_file)
