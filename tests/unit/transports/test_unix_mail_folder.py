"""The folder of the sockets: who may own it, what is stale in it, and paths too long for the kernel."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from callboard.transports import unix_socket
from callboard.transports.mail_errors import MailError
from callboard.transports.mail_folder import MailFolder


def test_it_is_made_private(tmp_path: Path) -> None:
    MailFolder(str(tmp_path / "mail"), create=True).close()
    assert (tmp_path / "mail").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(MailError, match="written to by others"):
        MailFolder(str(tmp_path), create=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to somebody else")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    os.chown(tmp_path / "mail", 65534, 65534)
    with pytest.raises(MailError, match="belongs to user id 65534"):
        MailFolder(str(tmp_path / "mail"), create=True)


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "mail").symlink_to(tmp_path / "real")
    with pytest.raises(MailError, match="not a folder"):
        MailFolder(str(tmp_path / "mail"), create=True)


def test_a_missing_folder_is_an_error_for_who_does_not_make_it(tmp_path: Path) -> None:
    with pytest.raises(MailError, match="no mail folder"):
        MailFolder(str(tmp_path / "mail"))


@pytest.mark.parametrize("depth", [0, 3], ids=["short path", "long path"])
def test_sockets_work_whatever_the_length_of_the_path(tmp_path: Path, depth: int) -> None:
    path = tmp_path.joinpath(*["d" * 50] * depth)
    path.mkdir(parents=True, exist_ok=True)
    folder = MailFolder(str(path / "mail"), create=True)
    bound = unix_socket.bind(folder.sun_path("0123456789abcdef"))
    try:
        assert folder.is_open("0123456789abcdef")
        assert (path / "mail" / "0123456789abcdef").stat().st_mode & 0o777 == 0o600
    finally:
        bound.close()
        folder.remove()
        folder.close()
    assert not (path / "mail").exists()


def test_the_sweep_takes_dead_sockets_and_leaves_living_and_young_ones(tmp_path: Path) -> None:
    folder = MailFolder(str(tmp_path / "mail"), create=True)
    unix_socket.bind(folder.sun_path("dead")).close()
    (tmp_path / "mail" / "a file").touch()
    with unix_socket.bind(folder.sun_path("alive")):
        assert folder.sweep() == 0, "young ones stay"
        assert folder.sweep(older_than_s=0.0) == 1
        assert sorted(os.listdir(folder.path)) == ["a file", "alive"]
    folder.close()


def test_removing_leaves_a_folder_in_which_somebody_still_listens(tmp_path: Path) -> None:
    folder = MailFolder(str(tmp_path / "mail"), create=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"{folder.path}/x")
        folder.remove()
        assert os.listdir(folder.path) == ["x"]
    folder.remove()
    folder.remove()
    assert not (tmp_path / "mail").exists()
    folder.close()
