"""The folders: private, ours, and refused when somebody else made them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from callboard import paths
from callboard.errors import ConfigError, Unavailable


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_runtime_folder_is_below_the_sessions_own(tmp_path: Path) -> None:
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert paths.runtime_dir("default", environ) == tmp_path / "callboard" / "default"
    assert mode(tmp_path / "callboard") == mode(tmp_path / "callboard" / "default") == 0o700


@pytest.mark.parametrize("value", ["", "relative", "/nonexistent/run"])
def test_without_a_usable_session_folder_it_is_in_tmp(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Path] = []
    monkeypatch.setattr(paths, "private_dir", lambda path: made.append(path) or path)
    assert paths.runtime_root({"XDG_RUNTIME_DIR": value}) == Path(f"/tmp/callboard-{os.geteuid()}")
    assert made == [Path(f"/tmp/callboard-{os.geteuid()}")]


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a" * 33, "a b", "a\n"])
def test_a_name_that_could_leave_the_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--name: expected"):
        paths.checked_name(name)


def test_a_folder_that_others_may_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o755)
    assert mode(paths.private_dir(tmp_path / "d")) == 0o700


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o777)
    with pytest.raises(Unavailable, match="written to by others"):
        paths.private_dir(tmp_path / "d")


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    for name in ("link", "dangling", "file"):
        with pytest.raises(Unavailable, match="is not a folder"):
            paths.private_dir(tmp_path / name)


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(Unavailable, match="belongs to user id"):
        paths.private_dir(tmp_path / "d")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot make the folder"):
        paths.private_dir(tmp_path / "none" / "d")
