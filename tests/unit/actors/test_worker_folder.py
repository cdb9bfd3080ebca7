"""The private folder of a call: its own, gone with it, and taken out by the next where its worker was killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from callboard.actors.worker_folder import make_folder, remove_stale
from callboard.testing.folders import dig
from callboard.tools.removal import remove_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of temporary files of this test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_private_and_no_two_are_the_same(place: Path) -> None:
    one, other = make_folder(), make_folder()
    assert one != other
    assert {folder.parent for folder in (one, other)} == {place}
    assert one.stat().st_mode & 0o777 == 0o700


def test_it_goes_with_all_that_is_in_it_whatever_rights_that_has() -> None:
    folder = make_folder()
    inner = folder / "inner"
    inner.mkdir()
    (inner / "file").write_text("x")
    (folder / "link").symlink_to("/nowhere")
    inner.chmod(0o500)
    folder.chmod(0o500)
    remove_folder(folder)
    assert not folder.exists()
    remove_folder(folder)


def test_only_the_folders_of_the_dead_are_taken_out(place: Path) -> None:
    mine = make_folder()
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    prefix = mine.name.partition(f"{os.getpid()}-")[0]
    dead = place / f"{prefix}{process.pid}-123-abc"
    reused = place / f"{prefix}{os.getpid()}-123-abc"
    for folder in (dead, reused):
        folder.mkdir()
        (folder / "left").write_text("x")
    others = [place / "something", place / f"{prefix}x-y", place / f"{prefix}file"]
    others[0].mkdir()
    others[1].mkdir()
    others[2].write_text("x")
    remove_stale()
    assert mine.exists()
    assert all(other.exists() for other in others)
    assert not dead.exists()
    assert not reused.exists(), "the pid is another's now"


def test_the_folders_of_makers_that_cannot_be_seen_stay(place: Path) -> None:
    """They may live, in a container that shares the place."""
    foreign = place / make_folder().name.replace("callboard-call-", "callboard-call-1")
    foreign.mkdir()
    remove_stale()
    assert foreign.exists()


def test_two_pid_namespaces_leave_each_others_folders_alone(place: Path) -> None:
    mine = make_folder()
    code = "from callboard.actors.worker_folder import make_folder, remove_stale; print(make_folder()); remove_stale()"
    inside = [
        "unshare",
        "--user",
        "--map-root-user",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-c",
        code,
    ]
    try:
        done = subprocess.run(
            inside, env={**os.environ, "TMPDIR": str(place)}, capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode != 0 and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    theirs = Path(done.stdout.strip())
    assert theirs.parent == place
    remove_stale()
    assert [mine.exists(), theirs.exists()] == [True, True], done.stderr


def test_a_folder_goes_that_is_deeper_than_python_climbs() -> None:
    folder = make_folder()
    dig(folder, 3000)
    remove_folder(folder)
    assert not folder.exists()


def test_nothing_above_or_beside_a_folder_is_touched(place: Path) -> None:
    place.chmod(0o755)
    beside = place / "beside"
    beside.mkdir(mode=0o500)
    for made in (lambda folder: folder.symlink_to(beside), lambda folder: folder.write_text("x")):
        folder = make_folder()
        folder.rmdir()
        made(folder)
        remove_folder(folder)
        assert not folder.is_symlink()
        assert not folder.exists()
    gone = make_folder()
    (gone / "file").write_text("x")
    remove_folder(gone)
    remove_folder(gone)
    assert place.stat().st_mode & 0o777 == 0o755
    assert beside.stat().st_mode & 0o777 == 0o500


def test_a_folder_that_took_all_rights_from_itself_goes() -> None:
    folder = make_folder()
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("x")
    (folder / "inner").chmod(0)
    folder.chmod(0)
    remove_folder(folder)
    assert not folder.exists()
